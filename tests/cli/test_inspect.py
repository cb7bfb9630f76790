"""`keyedwm inspect` reads back what the sink wrote down, and says in one sentence what it cannot read."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace

import pytest
from deltalake import DeltaTable, write_deltalake

from keyedwm.cli.main import main
from keyedwm.cli.query.tables import reach_of
from keyedwm.core.errors import OptionError
from keyedwm.kafka.requests.transactions import Transaction
from pyspark_wm_sink.batch.record import ChannelRecord, Record
from pyspark_wm_sink.kafka.ledger import Entry, Ledger, RunHistory
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from tests.sink.delta_sink import how, stage_rows


def record(batch: int) -> Record:
    channels = {
        "orders-10": ChannelRecord(snapshot=batch, offset=40 + batch, watermarks={0: 1_000 * batch}),
        "orders-2": ChannelRecord(snapshot=batch, offset=7, idle=True, watermarks={}),
    }
    return Record(
        query="q-1", run="r-2", batch=batch, attempt="a", snapshot=batch, rows=10 * batch, ignored=batch % 2,
        channels=channels, coalesced={0: 500 * batch},
    )  # fmt: skip


@pytest.fixture
def ledger(tmp_path):
    new_ledger = Ledger(tmp_path / "checkpoint" / "keyedwm")
    with new_ledger.locked():
        new_ledger.write_run_history(RunHistory(query="q-1", runs=("r-1", "r-2"), fence=Transaction("fence", 1, 0)))
        for batch in range(13):
            entry = Entry(batch=batch, record=record(batch), transactions=(Transaction("t", 1, 0),))
            new_ledger.decide(entry)
            if batch < 12:
                new_ledger.mark_published(entry)
    return new_ledger.directory


def inspected(capsys, *arguments: str) -> str:
    assert main(["inspect", *arguments]) == 0
    return re.sub(r"[ │┃]+", " ", capsys.readouterr().out)


def test_a_ledger_shows_its_last_snapshots_and_where_each_channel_stood(capsys, ledger):
    text = inspected(capsys, str(ledger))
    assert f"ledger {ledger}: query q-1, 2 runs, the latest r-2" in text
    assert "12 12 120 0 6000 ms (1970-01-01T00:00:06.000Z) decided, 1 transactions" in text
    assert "3 3 30 1 1500 ms (1970-01-01T00:00:01.500Z) published, 1 transactions" in text
    assert "2 2 20 0" not in text
    assert "Channels after batch 12" in text
    active, idle = text.index("orders-10 12 52 active 12000 ms"), text.index("orders-2 12 7 idle none")
    assert idle < active  # partition 2 before partition 10


def inspect_channels(capsys, directory, *watermarks: dict[int, int] | None) -> str:
    """What is shown of a batch whose rows told no coalesced watermark; None stands for an idle channel."""
    channels = {
        f"window#{number}": ChannelRecord(snapshot=1, idle=of_key is None, watermarks=of_key or {})
        for number, of_key in enumerate(watermarks)
    }
    ledger = Ledger(directory / "keyedwm")
    with ledger.locked():
        ledger.write_run_history(RunHistory(query="q-1", runs=("r-2",), fence=Transaction("fence", 1, 0)))
        ledger.decide(Entry(batch=1, record=replace(record(1), channels=channels, coalesced={}), transactions=()))
    return inspected(capsys, str(directory))


def test_a_batch_of_an_aggregate_shows_the_lowest_watermark_of_its_active_channels(capsys, tmp_path):
    text = inspect_channels(capsys, tmp_path, {0: 4_000}, {0: 3_000}, None)
    assert "1 1 10 1 3000 ms (1970-01-01T00:00:03.000Z), lowest of the channels decided" in text


def test_a_channel_without_a_watermark_leaves_the_coalesced_one_open(capsys, tmp_path):
    assert "1 1 10 1 none decided" in inspect_channels(capsys, tmp_path, {0: 4_000}, {})


def test_a_checkpoint_leads_to_its_ledger_and_last_says_how_many_batches(capsys, ledger):
    text = inspected(capsys, str(ledger.parent), "--last", "1")
    assert "12 12 120" in text
    assert "11 11 110" not in text


def test_a_place_may_be_named_as_for_the_sink_with_its_scheme(capsys, ledger):
    assert "12 12 120" in inspected(capsys, f"file:{ledger}")
    assert "12 12 120" in inspected(capsys, f"file://{ledger.parent}")


def test_a_table_shows_the_records_of_each_query(capsys, tmp_path):
    to = replace(how(tmp_path / "table", SnapshotMode.BATCH), is_shared=True)
    for batch in (0, 1):
        for query in ("q-a", "q-b"):
            publish(to, [stage_rows(to, [1, 2], batch, query)], batch=batch)
    text = inspected(capsys, str(tmp_path / "table"))
    assert "version 4, partitioned by nothing" in text
    first, second = text.split("query q-b")
    assert "query q-a" in first
    assert "1 none 2 0 none 3" in first
    assert "1 none 2 0 none 4" in second


def test_batches_that_a_restore_removed_from_a_table_are_not_shown(capsys, tmp_path):
    to = how(tmp_path, SnapshotMode.BATCH)
    for batch in (0, 1):
        publish(to, [stage_rows(to, [1, 2], batch)], batch=batch)
    DeltaTable(tmp_path).restore(1)
    text = inspected(capsys, str(tmp_path))
    assert "0 none 2 0 none 1" in text
    assert "1 none 2 0 none 2" not in text


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda path: path.write_text(path.read_text()[:-5]), r"the ledger file .*12\.decided\.json is damaged"),
        (lambda path: path.write_text(path.read_text().replace("orders", "0rders")), r"its checksum does not match"),
        (lambda path: path.write_bytes(b"\xff\xfe"), r"the ledger file .* cannot be read"),
    ],
)
def test_an_unreadable_ledger_is_one_sentence(capsys, ledger, spoil, sentence):
    spoil(ledger / "000000000012.decided.json")
    assert main(["inspect", str(ledger)]) == 2
    output = capsys.readouterr()
    assert re.search(sentence, output.err)
    assert output.err.count("\n") == 1
    assert "Traceback" not in output.err


def test_a_place_that_is_neither_is_one_sentence(capsys, tmp_path):
    import pyarrow as pa

    assert main(["inspect", str(tmp_path)]) == 2
    assert f"{tmp_path} is neither a ledger" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist: a ledger, a checkpoint" in capsys.readouterr().err
    write_deltalake(tmp_path / "foreign", pa.table({"n": [1]}))
    assert main(["inspect", str(tmp_path / "foreign")]) == 2
    assert (
        "holds no record of keyedwm: no batch is published there yet, or another program wrote it"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("command", "place"),
    [
        *((command, place) for command in ("inspect", "plot", "watch") for place in ("x" * 5_000, "\udcff")),
        ("watch", "s3://"),  # a variable of the shell that is not set; the others ask the store first
    ],
)
def test_a_place_that_can_name_nothing_is_one_sentence(capsys, command, place):
    assert main([command, place, *(["--once"] if command == "watch" else [])]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_checkpoint_of_which_no_batch_was_planned_says_so(capsys, tmp_path):
    (tmp_path / "metadata").write_text('{"id":"ed4a"}')  # Spark's first file
    assert inspected(capsys, str(tmp_path)) == f"checkpoint {tmp_path}: no batch was planned yet\n"
    (tmp_path / "offsets").mkdir()
    assert inspected(capsys, str(tmp_path)) == f"checkpoint {tmp_path}: no batch was planned yet\n"
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    assert main(["inspect", str(tmp_path)]) == 2
    assert "holds no ledger: give the option ledger of its query" in capsys.readouterr().err


def test_state_is_asked_of_a_place_that_does_not_exist_and_of_one_without_state(capsys, tmp_path):
    nowhere = tmp_path / "nowhere"
    for place in (str(nowhere), f"file:{nowhere}"):
        assert main(["inspect", place, "--state"]) == 2
        message = capsys.readouterr().err
        assert f"{place} does not exist: the checkpoint of a query with an aggregate" in message
        assert message.count("\n") == 1
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        assert main(["inspect", str(place), "--state"]) == 2
        assert f"{place} is no checkpoint with state" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--last", "0"], ["--storage", "secret"]])
def test_wrong_words_are_refused(capsys, tmp_path, arguments):
    assert main(["inspect", str(tmp_path), *arguments]) == 2
    assert f"{arguments[0]}: " in capsys.readouterr().err


def test_escape_codes_and_markup_of_others_have_no_effect(capsys, tmp_path):
    evil = "t\x1b]0;owned\x07\x9b31m[bold red]x[/]:bomb:-0"
    ledger = Ledger(tmp_path)
    with ledger.locked():
        ledger.write_run_history(RunHistory(query=f"q{evil}", runs=(evil,), fence=Transaction("fence", 1, 0)))
        channels = {evil: ChannelRecord(snapshot=1, offset=1, watermarks={0: 5})}
        batch_record = replace(record(1), query=evil, channels=channels)
        ledger.decide(Entry(batch=1, record=batch_record, transactions=(), control=()))
    assert main(["inspect", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text) == []
    assert text.count("[bold red]x[/]:bomb:") >= 2
    assert "\\x1b]0;owned" in text


def test_a_name_of_others_begins_no_line_of_ours(capsys, tmp_path):
    evil = "q\nledger /x: query real, 1 runs\r\u2028"
    ledger = Ledger(tmp_path)
    with ledger.locked():
        ledger.write_run_history(RunHistory(query=evil, runs=(evil,), fence=Transaction("fence", 1, 0)))
        ledger.decide(Entry(batch=1, record=record(1), transactions=(), control=()))
    text = inspected(capsys, str(tmp_path))
    name = "q\\nledger /x: query real, 1 runs\\r\\u2028"
    first = f"ledger {tmp_path}: query {name}, 1 runs, the latest {name}"
    assert [line for line in text.splitlines() if line.startswith("ledger ")] == [first]


def test_files_beside_the_batches_and_deep_json_of_others_stop_no_look_at_a_checkpoint(capsys, tmp_path):
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        (tmp_path / log / "\u00b2").write_text("")  # isdigit() holds for it, and int() refuses it
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n" + "[" * 200_000)
    assert main(["inspect", str(tmp_path)]) == 2
    assert "nor has it a source of keyedwm" in capsys.readouterr().err


@pytest.mark.parametrize("batch", [b"", b"v1\n{}", b'v1\n{}\n{"batch": 1, "chan', b"\0" * 300, b"\xff\xfe"])
def test_a_batch_that_was_cut_short_is_damaged_and_not_somebody_elses(capsys, tmp_path, batch):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_bytes(batch)
    assert main(["inspect", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert f"{tmp_path}/offsets/7 is damaged: " in message
    assert "put a copy of the checkpoint in its place" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "migrate"])
def test_an_address_with_a_login_is_refused_and_not_repeated(capsys, command):
    assert main([command, "s3://AKIA:hunter2/x@bucket/cp"]) == 2
    message = capsys.readouterr().err
    assert "the address holds a login" in message
    assert "hunter2" not in message


def _storage(pairs: list[str]) -> Mapping[str, str]:
    return reach_of(Namespace(storage=pairs, catalog=[], branch=None)).storage


@pytest.mark.parametrize(
    "name", ["azure_storage_account_key", "azure_storage_sas_key", "google_service_account_key", "account_key", "sas",
             "aws_sse_customer_key_base64", "fs.azure.sas.c.a"],
)  # fmt: skip
def test_the_secrets_of_every_store_are_refused_in_place(name):
    with pytest.raises(OptionError, match=f"give {name}=env:VARIABLE") as refused:
        _storage([f"{name}=hunter2"])
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "setting",
    ["header.Authorization=Bearer hunter2", "header.X-Api-Key=hunter2", "uri=postgresql://me:hunter2@host/db"],
)
def test_a_login_of_a_catalog_is_refused_in_place(setting, capsys):
    assert main(["inspect", "db.t", "--catalog", "type=rest", "--catalog", setting]) == 2
    message = capsys.readouterr().err
    assert f"give {setting.partition('=')[0]}=env:VARIABLE" in message
    assert "hunter2" not in message


def test_escape_codes_in_an_error_have_no_effect(capsys):
    assert main(["inspect", "no\x1b[2Jwhere"]) == 2
    assert "no\\x1b[2Jwhere does not exist" in capsys.readouterr().err


def test_a_secret_on_the_command_line_is_refused_and_taken_from_a_variable_or_a_file(capsys, tmp_path, monkeypatch):
    arguments = ["inspect", "s3://bucket/table", "--storage"]
    assert main([*arguments, "aws_secret_access_key=hunter2"]) == 2
    message = capsys.readouterr().err
    assert "give aws_secret_access_key=env:VARIABLE or aws_secret_access_key=file:PATH" in message
    assert "hunter2" not in message
    monkeypatch.setenv("THE_KEY", "hunter2")
    (tmp_path / "key").write_text("hunter3\n")
    settings = ["aws_secret_access_key=env:THE_KEY", f"aws_session_token=file:{tmp_path / 'key'}", "aws_region=here"]
    assert _storage(settings) == {
        "aws_secret_access_key": "hunter2", "aws_session_token": "hunter3", "aws_region": "here",
    }  # fmt: skip
    assert main([*arguments, "aws_secret_access_key=env:NO_SUCH"]) == 2
    assert "there is no environment variable 'NO_SUCH' here" in capsys.readouterr().err
