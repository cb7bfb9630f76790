"""`keyedwm inspect` reads back what the sink wrote down, and says in one sentence what it cannot read."""

from __future__ import annotations

import re

import pytest
from deltalake import write_deltalake

from keyedwm.cli.main import main
from keyedwm.kafka.transactions import Transaction
from pyspark_wm_sink.ledger import Entry, Ledger, Runs
from pyspark_wm_sink.options import SnapshotMode
from pyspark_wm_sink.record import ChannelRecord, Record
from tests.sink.test_publish import how, staged


def record(batch: int) -> Record:
    channels = {
        "orders-10": ChannelRecord(snapshot=batch, offset=40 + batch, watermarks={0: 1_000 * batch}),
        "orders-2": ChannelRecord(snapshot=batch, offset=7, idle=True, watermarks={}),
    }
    return Record(
        query="q-1", run="r-2", batch=batch, attempt="a", snapshot=batch, rows=10 * batch, swallowed=batch % 2,
        channels=channels, coalesced={0: 500 * batch},
    )  # fmt: skip


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "checkpoint" / "keyedwm")
    with made.locked():
        made.write_runs(Runs(query="q-1", runs=("r-1", "r-2"), fence=Transaction("fence", 1, 0)))
        for batch in range(13):
            entry = Entry(batch=batch, record=record(batch), transactions=(Transaction("t", 1, 0),))
            made.decide(entry)
            if batch < 12:
                made.mark_published(entry)
    return made.directory


def inspected(capsys, *words: str) -> str:
    assert main(["inspect", *words]) == 0
    return re.sub(r"[ │┃]+", " ", capsys.readouterr().out)


def test_a_ledger_shows_its_last_snapshots_and_where_each_channel_stood(capsys, ledger):
    said = inspected(capsys, str(ledger))
    assert f"ledger {ledger}: query q-1, 2 runs, the latest r-2" in said
    assert "12 12 120 0 6000 ms (1970-01-01T00:00:06.000Z) decided, 1 transactions" in said
    assert "3 3 30 1 1500 ms (1970-01-01T00:00:01.500Z) published, 1 transactions" in said
    assert "2 2 20 0" not in said
    assert "Channels after batch 12" in said
    active, idle = said.index("orders-10 12 52 active 12000 ms"), said.index("orders-2 12 7 idle none")
    assert idle < active  # partition 2 before partition 10


def test_a_checkpoint_leads_to_its_ledger_and_last_says_how_many_batches(capsys, ledger):
    said = inspected(capsys, str(ledger.parent), "--last", "1")
    assert "12 12 120" in said
    assert "11 11 110" not in said


def test_a_place_may_be_named_as_for_the_sink_with_its_scheme(capsys, ledger):
    assert "12 12 120" in inspected(capsys, f"file:{ledger}")
    assert "12 12 120" in inspected(capsys, f"file://{ledger.parent}")


def test_a_table_shows_the_records_of_each_query(capsys, tmp_path):
    to = how(tmp_path / "table", SnapshotMode.BATCH)
    from pyspark_wm_sink.publish import publish

    for batch in (0, 1):
        for query in ("q-a", "q-b"):
            publish(to, [staged(to, [1, 2], batch, query)], batch=batch)
    said = inspected(capsys, str(tmp_path / "table"))
    assert "version 4, partitioned by nothing" in said
    first, second = said.split("query q-b")
    assert "query q-a" in first
    assert "1 none 2 0 none 3" in first
    assert "1 none 2 0 none 4" in second


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_text(path.read_text()[:-5]), r"the ledger file .*12\.decided\.json is damaged"),
        (lambda path: path.write_text(path.read_text().replace("orders", "0rders")), r"its checksum does not fit"),
        (lambda path: path.write_bytes(b"\xff\xfe"), r"the ledger file .* cannot be read"),
    ],
)
def test_an_unreadable_ledger_is_one_sentence(capsys, ledger, spoil, said):
    spoil(ledger / "000000000012.decided.json")
    assert main(["inspect", str(ledger)]) == 2
    found = capsys.readouterr()
    assert re.search(said, found.err)
    assert found.err.count("\n") == 1
    assert "Traceback" not in found.err


def test_a_place_that_is_neither_is_one_sentence(capsys, tmp_path):
    import pyarrow as pa

    assert main(["inspect", str(tmp_path)]) == 2
    assert f"{tmp_path} is neither a ledger" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist: a ledger, a checkpoint" in capsys.readouterr().err
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    assert main(["inspect", str(tmp_path / "checkpoint")]) == 2
    assert "holds no ledger: give the option ledger of its query" in capsys.readouterr().err
    write_deltalake(tmp_path / "foreign", pa.table({"n": [1]}))
    assert main(["inspect", str(tmp_path / "foreign")]) == 2
    assert "holds no record of keyedwm" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--last", "0"], ["--storage", "secret"]])
def test_wrong_words_are_refused(capsys, tmp_path, words):
    assert main(["inspect", str(tmp_path), *words]) == 2
    assert f"{words[0]}: " in capsys.readouterr().err
