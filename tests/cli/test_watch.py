"""`keyedwm watch` shows where a query stands, from what the query itself wrote, and refuses in one sentence."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from keyedwm import savepoint_files
from keyedwm.cli import watch
from keyedwm.cli.main import main
from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query.picture import as_json
from keyedwm.cli.query.reader import QueryReader, no_batch_reason, planned_of
from keyedwm.cli.query.tables import Reach
from keyedwm.cli.query.target import target_of
from keyedwm.cli.watch.arguments import given_of
from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.transactions import Transaction
from keyedwm.last_error import leave_error
from keyedwm.savepoint_files import Files
from keyedwm.testing.local import free_ports
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.kafka.ledger import Entry, Ledger
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.holding import Cause
from pyspark_wm_source.values.offsets import IdleTimeout
from tests.cli.planted import T_MS, A, B, Planted, draw_text, only_cause
from tests.sink.delta_sink import how, stage_rows
from tests.source.scripted import Log
from tests.support.object_store import object_store
from tests.tools import Record as Produced
from tests.tools import cluster_at, produce


def test_a_picture_shows_the_states_that_the_tasks_left_and_not_those_before_the_batch(planted):
    picture = planted.picture()
    (source,) = picture.sources
    assert [(one.channel, one.position, one.log_end, one.backlog) for one in source.partitions] == [
        (B, 5, 5, 0),
        (A, 10, 10, 0),
    ]
    assert [one.watermarks_ms for one in source.partitions] == [{0: T_MS + 20_000}, {0: T_MS + 50_000}]
    assert {(one.late, one.is_current, one.status) for one in source.partitions} == {(3, True, Status.ACTIVE)}
    assert source.watermarks[0].watermark_ms == T_MS + 20_000
    assert (picture.planned_batch, picture.committed_batch) == (0, 0)
    assert (source.planned_ms, source.group) == (T_MS, planted.driver.offset["group"])


def test_the_watermark_is_the_one_that_the_planner_tells_next(planted):
    before = planted.source().watermarks[0].watermark_ms
    planted.plan()
    assert planted.source().watermarks[0].watermark_ms == before
    assert planted.driver.offset["coalesced"]["emitted"] == [[0, before]]


def test_a_batch_that_runs_has_the_states_before_it(planted):
    planted.cluster.logs[B] = Log.of(30)
    planted.plan(committed=False)
    picture = planted.picture()
    (source,) = picture.sources
    (b,) = (one for one in source.partitions if one.channel == B)
    assert (b.position, b.backlog, b.watermarks_ms, b.is_current) == (5, 25, {0: T_MS + 20_000}, False)
    assert (picture.planned_batch, picture.committed_batch) == (1, 0)
    assert "1 partitions show their watermarks and counts as of the start of this batch" in draw_text(picture)
    planted.driver.run_tasks({B: T_MS + 40_000})
    (b,) = (one for one in planted.source().partitions if one.channel == B)
    assert (b.position, b.backlog, b.watermarks_ms, b.is_current) == (30, 0, {0: T_MS + 40_000}, True)


def test_a_state_of_another_query_is_not_shown(planted):
    group = planted.driver.offset["group"]
    planted.driver.offset = {**planted.driver.offset, "state_key": "11" * 32}
    planted.driver.run_tasks(T_MS + 90_000)
    assert planted.cluster.committed[group]
    assert [(one.position, one.watermarks_ms, one.is_current) for one in planted.source().partitions] == [
        (10, {}, False),
        (5, {}, False),
    ]


def test_without_a_broker_the_checkpoint_alone_is_shown(planted, capsys):
    planted.plan()
    assert main(["watch", str(planted.directory), "--once"]) == 0
    text = capsys.readouterr().out
    assert "held by t-1: log ends not asked for" in text
    assert "backlog not known" in text
    assert "2023-11-14 22:13:40" in text


def test_a_group_that_may_not_be_read_leaves_the_states_before_the_batch(planted):
    planted.cluster.refusal = UnavailableError("the coordinator did not answer")
    source = planted.source()
    assert source.coordinator == "the coordinator did not answer"
    assert [one.is_current for one in source.partitions] == [False, False]
    assert "the consumer group cannot be read: the coordinator did not answer" in draw_text(planted.picture())


def test_the_document_and_the_table_tell_the_same(planted, monkeypatch, capsys):
    planted.cluster.logs[B] = Log.of(9)
    monkeypatch.setattr(watch.Cluster, "connect", lambda _config, _timeout_ms: planted.cluster)
    monkeypatch.setattr(watch, "_now_ms", lambda: T_MS + 60_000)
    arguments = ["watch", str(planted.directory), "--bootstrap", "x:1", "--once"]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(json.dumps(as_json(planted.reader().picture(T_MS + 60_000))))
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    (source,) = document["sources"]
    rows = [line.split() for line in lines[-len(source["partitions"]) :]]
    names = ("channel", "position", "log_end", "backlog")
    assert [row[:4] for row in rows] == [[str(one[name]) for name in names] for one in source["partitions"]]
    assert [row[-2:] for row in rows] == [[str(one["late"]), str(one["unreadable"])] for one in source["partitions"]]
    (watermark,) = source["watermarks"]
    assert watermark["watermark_ms"] == T_MS + 20_000
    assert watermark["held_by"] == [
        {"channel": "t-1", "watermark_ms": T_MS + 20_000, "cause": "backlog", "since_ms": None}
    ]
    assert any("watermark: 2023-11-14T22:13:40.000Z, 40 s behind the clock" in line for line in lines)
    assert any("held by t-1: backlog" in line for line in lines)


def test_a_query_that_plans_no_batch_while_records_wait_is_said_to_have_stopped(planted):
    planted.cluster.logs[B] = Log.of(9)
    picture = planted.picture()
    committed = replace(picture, committed_batch=picture.planned_batch, committed_ms=picture.taken_ms - 60_000)
    assert "no batch for 60 s, and records wait: the query stopped or its trigger waits" in draw_text(committed)
    for other in (
        picture,
        replace(committed, committed_ms=picture.taken_ms - 59_000),
        replace(committed, planned_batch=picture.planned_batch + 1),
        replace(committed, sources=()),
    ):
        assert "no batch for" not in draw_text(other)


def test_the_ledger_in_the_checkpoint_tells_the_last_publication(planted):
    record = Record(
        query="q", run="r", batch=7, attempt="a", snapshot=6, rows=1, ignored=0, channels={}, coalesced={}
    )  # fmt: skip
    ledger = Ledger(planted.directory / "keyedwm")
    with ledger.locked():
        ledger.decide(Entry(batch=7, record=record, transactions=(Transaction("t", 1, 0),)))
    one = planted.picture().publication
    assert one is not None
    assert (one.batch, one.snapshot, one.is_published) == (7, 6, False)
    assert "ledger: decided batch 7 with snapshot 6, 1 rows, 0 ago" in draw_text(planted.picture())


def test_a_broker_that_goes_away_later_is_shown_and_ends_nothing(planted, monkeypatch):
    def fail(*_a, **_k):
        raise UnavailableError("no broker answers")

    monkeypatch.setattr(planted.cluster, "partitions", fail)
    monkeypatch.setattr(planted.cluster, "requests", [])
    picture = watch._look(planted.reader())
    assert picture.trouble == "no broker answers"
    assert "fetch_offsets" not in planted.cluster.requests  # it would be waited for, too


def test_the_idle_timeout_is_that_of_the_query_unless_another_is_asked_for(monkeypatch, tmp_path):
    it = Planted(monkeypatch, tmp_path, {A: Log.of(1)}, idleTimeout="10 seconds")
    it.plan()
    it.driver.run_tasks({A: T_MS})
    it.driver.clock += 9_000

    def cause(idle_timeout: IdleTimeout | None) -> Cause:
        other = SourceOptions.parse({"subscribe": "t", "kafka.bootstrap.servers": "x:1", "idleTimeout": "1 second"})
        return only_cause(QueryReader(it.files, it.cluster, other, idle_timeout).picture(it.driver.clock).sources[0])[1]

    assert cause(None) is Cause.IDLE_TIMEOUT
    assert cause(IdleTimeout(8_000)) is cause(IdleTimeout(None)) is Cause.NO_RECORD_SINCE
    it.driver.offset.pop("idle_timeout_ms")  # as an earlier version writes it: the option's value
    it.write()
    assert cause(None) is Cause.NO_RECORD_SINCE


def test_a_table_tells_the_last_batch_of_this_query(planted, tmp_path):
    to = replace(how(tmp_path / "table", SnapshotMode.BATCH), is_shared=True)
    for batch, query in ((0, "mine"), (0, "another")):
        publish(to, [stage_rows(to, [1, 2], batch, query)], batch=batch)
    (planted.directory / "metadata").write_text('{"id":"mine"}')
    target = target_of(planted.files, str(tmp_path / "table"), Reach())
    assert target is not None
    one = target.newest()
    assert one is not None
    assert (one.kind, one.batch, one.rows, one.version, one.is_published) == ("Delta table", 0, 2, 1, True)
    for place, sentence in ((tmp_path / "none", "does not exist"), (planted.directory, "is neither a Delta table nor")):
        with pytest.raises(InputError, match=sentence):
            target_of(planted.files, str(place), Reach())


def test_a_table_that_goes_away_later_is_shown_and_ends_nothing(planted, monkeypatch, tmp_path):
    place = tmp_path / "table"
    to = how(place, SnapshotMode.BATCH)
    for batch in (0, 1):
        publish(to, [stage_rows(to, [1, 2], batch, "mine")], batch=batch)
    (planted.directory / "metadata").write_text('{"id":"mine"}')
    target = target_of(planted.files, str(place), Reach())
    reader = replace(planted.reader(), target=target)
    picture = reader.picture(T_MS)
    assert (picture.publication is None, picture.target_trouble) == (False, None)

    def fail(*_a, **_k):
        raise FileNotFoundError("00000000000000000000.json not found")

    with monkeypatch.context() as patch:  # files of the log went after it was opened
        patch.setattr(DeltaTable, "history", fail)
        picture = watch._look(reader)
    assert (picture.publication, picture.trouble) == (None, None)
    assert picture.target_trouble is not None
    assert "could not be read: 00000000000000000000.json not found" in picture.target_trouble
    place.rename(tmp_path / "elsewhere")
    picture = watch._look(reader)
    assert (picture.publication, picture.trouble) == (None, None)
    assert f"the target cannot be read: there is no Delta table {place} any more" in draw_text(picture, width=300)


def test_a_damaged_ledger_is_named_and_the_rest_of_the_query_is_shown(planted, tmp_path):
    place = tmp_path / "ledger"
    place.mkdir()
    (place / "000000000004.decided.json").write_text("{")
    reader = replace(planted.reader(), target=target_of(planted.files, str(place), Reach()))
    picture = reader.picture(T_MS)
    assert (picture.planned_batch, picture.publication) == (0, None)
    assert picture.target_trouble is not None
    assert "000000000004.decided.json is damaged" in picture.target_trouble


def test_a_file_in_place_of_a_checkpoint_is_not_waited_for(tmp_path):
    place = tmp_path / "checkpoint"
    assert no_batch_reason(Files(str(place))) == f"{place} does not exist"
    place.write_text("")
    assert no_batch_reason(Files(str(place))) is None
    with pytest.raises(InputError, match="checkpoint is no checkpoint: the checkpointLocation of a query is expected"):
        planned_of(Files(str(place)))


def test_a_broker_that_hangs_is_waited_for_no_longer_than_one_that_is_gone(monkeypatch):
    options = given_of(parsed("checkpoint", "--bootstrap", "x:1"))
    configs = []

    def connect(config, _limit_ms):
        configs.append(config)
        raise UnavailableError("no broker answers")

    monkeypatch.setattr(watch.Cluster, "connect", connect)
    connection = watch._connected(options, ["t"])
    with pytest.raises(UnavailableError):
        connection.__enter__()
    assert (configs[0].request_timeout_ms, configs[0].api_timeout_ms) == (5_000, 5_000)


def test_a_terminal_that_cannot_be_drawn_on_is_one_sentence(planted, monkeypatch, capsys):
    monkeypatch.setattr(watch.PlainConsole, "open", lambda: PlainConsole(force_terminal=True))
    monkeypatch.setenv("TERM", "dumb")
    assert main(["watch", str(planted.directory)]) == 2
    assert "this terminal cannot be drawn on (TERM=dumb): give --once" in capsys.readouterr().err


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    return parser.parse_args(arguments)


def test_a_checkpoint_in_an_object_store_is_watched_and_drawn(planted, monkeypatch, tmp_path, capsys):
    with object_store() as store:
        for name, value in store.variables.items():
            monkeypatch.setenv(name, value)
        place = f"s3a://{store.bucket}/checkpoint"
        for log in ("offsets", "commits"):
            for path in (planted.directory / log).iterdir():
                Files(f"{place}/{log}").write(path.name, path.read_text())
        leave_error(Files(place), "an error")
        assert main(["watch", place, "--once", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["checkpoint"], document["planned_batch"], document["committed_batch"]) == (place, 0, 0)
        assert (document["last_error"]["batch"], document["last_error"]["text"]) == (1, "an error")
        assert main(["plot", place, "-o", str(tmp_path / "out.html")]) == 0
        assert main(["inspect", place]) == 0
        assert main(["watch", f"{place}/none", "--once"]) == 2
        assert "does not exist: the checkpointLocation" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["watch"], ["watch", "--json"], ["inspect"]])
def test_an_output_that_is_full_is_one_sentence_and_one_that_is_closed_none(planted, arguments, monkeypatch, capsys):
    command, *more = arguments
    once = ["--once"] if command == "watch" else []
    with Path("/dev/full").open("w") as full, monkeypatch.context() as of:
        of.setattr(sys, "stdout", full)
        assert main([command, str(planted.directory), *once, *more]) == 2
    assert re.fullmatch(r"keyedwm: the output cannot be written \(.*No space left.*\): .+\n", capsys.readouterr().err)
    left, right = os.pipe()
    os.close(left)
    with os.fdopen(right, "w") as closed, monkeypatch.context() as of:
        of.setattr(sys, "stdout", closed)
        try:
            code = main([command, str(planted.directory), *once, *more])
        except SystemExit as end:  # rich ends so
            code = end.code
    assert (code, capsys.readouterr().err) == (1, "")


@pytest.mark.parametrize("command", [["watch", "--once"], ["plot"]])
def test_a_store_that_refuses_in_words_of_arrow_is_one_sentence(command, monkeypatch, capsys):
    class Refusing:
        def get_file_info(self, _at):
            raise pa.ArrowException("Failed to get token\nfrom the machine")

    monkeypatch.setattr(savepoint_files, "open_address", lambda _address, _who: (Refusing(), "c/cp"))
    assert main([command[0], "abfss://c@a.example/cp", *command[1:]]) == 2
    text = "keyedwm: abfss://c@a.example/cp cannot be read or written: Failed to get token from the machine (KWM-3001)"
    assert capsys.readouterr().err.startswith(text)


FOREIGN = 'v1\n{}\n{"t":{"0":5}}\n'


@pytest.mark.parametrize(
    ("files", "arguments", "sentence"),
    [
        ({}, [], "is no checkpoint: the checkpointLocation of a query is expected"),
        ({"metadata": "{}"}, [], "has planned no batch yet"),
        ({"offsets/0": ""}, [], "offsets/0 is damaged: a version, the settings of the batch and a line for each"),
        ({"offsets/0": 'v1\n{}\n{"batch": 1, "chan'}, [], "offsets/0 is damaged: the line of source 0"),
        ({"offsets/0": FOREIGN}, [], "is the checkpoint of a query without a keyedwm source"),
        ({"offsets/0": FOREIGN}, ["--bootstrap", "x:1"], "is the checkpoint of a query without a keyedwm source"),
        ({"notes.txt": "x"}, [], "is no checkpoint: the checkpointLocation of a query is expected"),
        ({}, ["--bootstrap", " "], "--bootstrap is empty: host:port of a broker is expected"),
        ({}, ["--option", "kafka.client.id=x"], "--option needs --bootstrap"),
        ({}, ["--option", "subscribe=x"], "--option subscribe: kafka.* options, stateSecret and idleTimeout are"),
        ({}, ["--option", "stateSecret=abc"], "would stand in the list of processes"),
        ({}, ["--every", "0"], "--every: 0 is wrong, seconds above 0 are expected"),
    ],
)
def test_what_cannot_be_watched_is_one_sentence(tmp_path, capsys, files, arguments, sentence):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert main(["watch", str(tmp_path), "--once", *arguments]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["x", "--json"], "--json needs --once"),
        ([], "CHECKPOINT, or --topic NAME in its place, is expected"),
        (["x", "--topic", "t"], "CHECKPOINT, or --topic NAME in its place, is expected"),
        (["--topic", "t"], "--topic needs --bootstrap"),
        (["--topic", "a b", "--bootstrap", "x:1"], "--topic"),
        (["--topic", "t", "--bootstrap", "x:1", "--state"], "--state and --target are of a query"),
        (["x", "--storage", "a=b"], "--storage needs --target"),
        (["x", "--target", " "], "--target is empty"),
        (["x", "--target", "s3://k:s@b/x"], "--target: the address holds a login"),
        (["x"], "the output is no terminal"),
        (["s4a://b/x", "--once"], "s4a://b/x cannot be reached"),
        (["", "--once"], "CHECKPOINT is empty"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(capsys, arguments, sentence):
    assert main(["watch", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_one_sentence(planted, capsys):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = ["--bootstrap", address, "--option", "kafka.default.api.timeout.ms=300", "--once"]
    assert main(["watch", str(planted.directory), *arguments]) == 2
    message = capsys.readouterr().err
    assert address in message
    assert message.count("\n") == 1


def test_a_real_broker_gives_the_backlog_in_records_and_in_time(kafka, topic_of, open_stream, tmp_path):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Produced(0, T_MS), Produced(1, T_MS + 1_000), Produced(1, T_MS + 2_000)])
    stream = open_stream(topic, {"startingOffsets": "earliest"})
    stream.drain()
    produce(kafka.bootstrap, topic, [Produced(0, T_MS + 10_000 + 500 * n) for n in range(5)])
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(stream.log[-1])}\n")
    picture = QueryReader(Files(str(tmp_path)), cluster_at(kafka.bootstrap)).picture(T_MS)
    (source,) = picture.sources
    p0, p1 = (TopicPartition(topic, number) for number in range(2))
    assert only_cause(source) == (p0, Cause.BACKLOG)
    progress = {
        one.channel: (one.position, one.log_end, one.backlog, one.behind_ms, one.last_record_ms)
        for one in source.partitions
    }
    assert progress == {p0: (1, 6, 5, 2_000, T_MS + 12_000), p1: (2, 2, 0, 0, T_MS + 2_000)}
