"""`keyedwm watch` shows where a query stands, who holds its watermark and why, from what the query itself wrote."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from keyedwm.cli import watch
from keyedwm.cli.main import main
from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query import source as source_module
from keyedwm.cli.query.picture import Holder, PartitionPicture, Picture, SourcePicture, WatermarkPicture, as_json
from keyedwm.cli.query.reader import QueryReader
from keyedwm.cli.watch.live import show_live
from keyedwm.cli.watch.table import layout
from keyedwm.core.counts import Counts
from keyedwm.core.errors import UnavailableError
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.transactions import Transaction
from keyedwm.testing.local import free_ports
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.kafka.ledger import Entry, Ledger
from pyspark_wm_source.values.holding import Cause
from tests.source.scripted import Driver, Log, ScriptedCluster
from tests.tools import Record as Produced
from tests.tools import cluster_at, produce

A, B, C = (TopicPartition("t", number) for number in range(3))
T_MS = 1_700_000_000_000


class Planted:
    """A checkpoint whose offset log the planner has written, over a cluster that answers as the test says."""

    def __init__(self, monkeypatch, directory: Path, logs: dict[TopicPartition, Log], **given: str) -> None:
        self.cluster = ScriptedCluster(logs)
        self.cluster.close = lambda: None
        self.driver = Driver(monkeypatch, self.cluster, startingOffsets="earliest", **given)
        self.driver.clock = T_MS
        self.directory = directory
        monkeypatch.setattr(source_module, "record_times", lambda _cluster, _offsets: {})

    def plan(self, *, committed: bool = True) -> None:
        """Plan a batch and write it down as Spark does."""
        planned = self.driver.plan()
        assert planned is not None
        for log in ("offsets", "commits"):
            (self.directory / log).mkdir(exist_ok=True)
        text = f"v1\n{{}}\n{json.dumps(self.driver.offset)}\n"
        (self.directory / "offsets" / str(planned.batch)).write_text(text)
        if committed:
            (self.directory / "commits" / str(planned.batch)).write_text("v1\n{}")

    def reader(self) -> QueryReader:
        return QueryReader(self.directory, self.cluster, self.driver.options)

    def picture(self) -> Picture:
        return self.reader().picture(self.driver.clock)

    def source(self) -> SourcePicture:
        return self.picture().sources[0]


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """A query of two partitions: 10 offsets of A read up to its watermark of 50 s, 5 of B up to 20 s."""
    it = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5)}, idleTimeout="none")
    it.plan()
    it.driver.run_tasks({A: T_MS + 50_000, B: T_MS + 20_000}, Counts(late=3))
    return it


def shown(picture: Picture, *, width: int = 80, height: int | None = None, before: Picture | None = None) -> str:
    out = PlainConsole(file=io.StringIO(), width=width, markup=False)
    out.print(layout(picture, before, width=width, height=height))
    return out.file.getvalue()


def only_cause(source: SourcePicture) -> tuple[TopicPartition, Cause]:
    (watermark,) = source.watermarks
    (holder,) = watermark.held_by
    return holder.channel, holder.cause


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
    assert "1 partitions show their watermarks and counts as of the start of this batch" in shown(picture)
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


def test_a_silent_partition_holds_since_its_last_record(planted):
    assert only_cause(planted.source()) == (B, Cause.NO_RECORD_SINCE)
    planted.driver.clock += 7_200_000
    said = shown(planted.picture())
    assert "held by t-1: no record, since 2023-11-14 22:13:20 (2 h ago)" in said


def test_a_backlog_holds_and_is_told_in_time(planted, monkeypatch):
    planted.cluster.logs[B] = Log(0, 9, 9, newest_ms=T_MS + 80_000)
    monkeypatch.setattr(source_module, "record_times", lambda _cluster, offsets: dict.fromkeys(offsets, T_MS + 5_000))
    source = planted.source()
    assert only_cause(source) == (B, Cause.BACKLOG)
    assert source.watermarks[0].held_by[0].since_ms is None
    b = source.partitions[0]
    assert (b.backlog, b.behind_ms, b.last_record_ms) == (4, 75_000, T_MS + 80_000)


def test_an_open_transaction_holds(planted):
    planted.cluster.logs[B] = Log(0, 5, 8)
    assert only_cause(planted.source()) == (B, Cause.OPEN_TRANSACTION)
    assert planted.source().partitions[0].backlog == 3


def test_unreadable_event_times_and_a_partition_without_any_record_hold(monkeypatch, tmp_path):
    it = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5), C: Log.of(0)}, idleTimeout="none")
    it.plan()
    it.driver.run_tasks({A: T_MS, B: None}, Counts(bad=4))
    source = it.source()
    causes = {holder.channel: holder.cause for holder in source.watermarks[0].held_by}
    assert causes == {B: Cause.UNREADABLE, C: Cause.NO_RECORD_EVER}
    assert source.watermarks[0].watermark_ms is None
    said = shown(it.picture())
    assert "watermark: none" in said
    assert "held by t-1: unreadable event times" in said
    assert "held by t-2: no record ever" in said


def test_an_idle_timeout_holds_until_it_is_reached_and_then_nobody(monkeypatch, tmp_path):
    it = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5)}, idleTimeout="10 seconds")
    it.plan()
    it.driver.run_tasks({A: T_MS + 50_000, B: T_MS + 20_000})
    it.driver.clock += 9_999
    assert only_cause(it.source()) == (B, Cause.IDLE_TIMEOUT)
    it.driver.clock += 1
    assert only_cause(it.source()) == (B, Cause.NO_RECORD_SINCE)  # the query, were it there, would have told idle
    it.cluster.logs[A] = Log.of(11)
    it.plan()
    it.driver.run_tasks(T_MS + 60_000)
    source = it.source()
    assert only_cause(source) == (A, Cause.IDLE_TIMEOUT)
    b = source.partitions[-1]
    assert (b.channel, b.status, b.idle_since_ms) == (B, Status.IDLE, T_MS)
    assert source.watermarks[0].watermark_ms == T_MS + 60_000


def test_a_partition_whose_event_times_become_unreadable_holds_for_that(planted):
    planted.plan()  # writes the states down
    planted.cluster.logs[B] = Log.of(9)
    planted.plan()
    planted.driver.run_tasks({B: T_MS + 20_000}, Counts(late=3, bad=4))
    assert only_cause(planted.source()) == (B, Cause.UNREADABLE)
    planted.plan()
    planted.cluster.logs[A] = Log.of(11)
    planted.plan()
    planted.driver.run_tasks({A: T_MS + 70_000}, Counts(late=3))
    assert only_cause(planted.source()) == (B, Cause.UNREADABLE)
    planted.cluster.logs[B] = Log.of(10)
    planted.plan()
    planted.driver.run_tasks({B: T_MS + 21_000}, Counts(late=3, bad=4))
    assert only_cause(planted.source()) == (B, Cause.NO_RECORD_SINCE)


def test_the_watermark_is_unmoved_since_the_oldest_batch_that_has_it(planted):
    def unmoved_since_ms() -> int:
        return planted.source().watermarks[0].unmoved_since_ms

    assert unmoved_since_ms() == T_MS
    moved_ms = 0
    for number in range(1, 9):
        planted.driver.clock += 10_000
        planted.cluster.logs[A] = Log.of(10 + number)
        planted.plan()
        planted.driver.run_tasks({A: T_MS + 60_000 + number})
        moved_ms = moved_ms or planted.driver.clock
    assert (planted.picture().planned_batch, unmoved_since_ms()) == (8, moved_ms)
    assert "unmoved for 70 s" in shown(planted.picture())
    (planted.directory / "offsets" / "1").unlink()  # as Spark deletes old ones
    assert unmoved_since_ms() == moved_ms + 10_000


def test_a_partition_that_is_gone_and_a_broker_that_is_away_are_told(planted):
    away = planted.reader().picture_without_broker(T_MS, "localhost:1 did not answer")
    # Without the group, the states are those before the batch: nobody has a watermark.
    assert {holder.cause for holder in away.sources[0].watermarks[0].held_by} == {Cause.BROKER_AWAY}
    assert "the broker does not answer: localhost:1 did not answer" in shown(away)
    assert {one.log_end for one in away.sources[0].partitions} == {None}
    del planted.cluster.logs[B]
    assert only_cause(planted.source()) == (B, Cause.PARTITION_GONE)


def test_without_a_broker_the_checkpoint_alone_is_shown(planted, capsys):
    planted.plan()
    assert main(["watch", str(planted.directory), "--once"]) == 0
    said = capsys.readouterr().out
    assert "held by t-1: log ends not asked for" in said
    assert "backlog not known" in said
    assert "2023-11-14 22:13:40" in said


def test_a_group_that_may_not_be_read_leaves_the_states_before_the_batch(planted):
    planted.cluster.refusal = UnavailableError("the coordinator did not answer")
    source = planted.source()
    assert source.coordinator == "the coordinator did not answer"
    assert [one.is_current for one in source.partitions] == [False, False]
    assert "the consumer group cannot be read: the coordinator did not answer" in shown(planted.picture())


def test_the_document_and_the_table_tell_the_same(planted, monkeypatch, capsys):
    planted.cluster.logs[B] = Log.of(9)
    monkeypatch.setattr(watch.Cluster, "connect", lambda _config, _timeout_ms: planted.cluster)
    monkeypatch.setattr(watch, "_now_ms", lambda: T_MS + 60_000)
    words = ["watch", str(planted.directory), "--bootstrap", "x:1", "--once"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(as_json(planted.reader().picture(T_MS + 60_000))))
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    (source,) = told["sources"]
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
    assert "the sink's ledger: batch 7, decided" in shown(planted.picture())


@pytest.fixture
def thousand(monkeypatch, tmp_path):
    """A query of 1,000 partitions of a topic with a long name; partition 617 is the slowest."""
    places = [TopicPartition("a-topic-with-quite-a-long-name", number) for number in range(1_000)]
    it = Planted(monkeypatch, tmp_path, {tp: Log.of(10) for tp in places})
    it.plan()
    it.driver.run_tasks({tp: T_MS + 1_000 * ((tp.partition - 617) % 1_000) for tp in places})
    return it


def test_a_terminal_of_80_by_24_shows_the_slowest_of_1000_partitions_and_counts_the_rest(thousand):
    before = thousand.picture()
    thousand.driver.clock += 2_000
    lines = shown(thousand.picture(), height=24, before=before).splitlines()
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    head = next(number for number, line in enumerate(lines) if line.startswith("partition"))
    rows = [line.split() for line in lines[head + 1 : -1]]
    assert [row[0].rpartition("-")[2] for row in rows] == [str(617 + number) for number in range(len(rows))]
    assert lines[head].split() == ["partition", "backlog", "behind", "rows/s", "watermark", "idle", "late", "bad"]
    assert lines[-1].startswith(f"{1_000 - len(rows)} more partitions")
    assert all(row[3] == "0" and row[4:6] == ["2023-11-14", f"22:13:{20 + n}"] for n, row in enumerate(rows))


def test_a_wide_terminal_shows_positions_and_every_partition_without_a_height(thousand):
    lines = shown(thousand.picture(), width=200).splitlines()
    assert sum("a-topic-with-quite-a-long-name-" in line for line in lines) == 1_002 - 1  # and the line of the holder
    assert any(line.split()[:4] == ["a-topic-with-quite-a-long-name-617", "10", "10", "0"] for line in lines)


def test_rows_a_second_are_those_between_two_pictures(planted):
    before = planted.picture()
    planted.cluster.logs[A] = Log.of(110)
    planted.driver.clock += 5_000
    planted.plan()
    planted.driver.run_tasks({A: T_MS + 70_000})
    a = next(line for line in shown(planted.picture(), before=before).splitlines() if line.startswith("t-0"))
    assert a.split()[:4] == ["t-0", "0", "0", "20"]


def test_the_live_view_shows_new_pictures_until_q(planted, monkeypatch):
    master, slave = os.openpty()
    taken = []
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)

        def look() -> Picture:
            planted.driver.clock += 1_000
            taken.append(planted.picture())
            os.write(master, b"xq" if len(taken) == 2 else b"x")
            return taken[-1]

        out = PlainConsole(file=io.StringIO(), width=80, height=24, force_terminal=True)
        show_live(out, planted.picture(), look, 0.05)
    os.close(master)
    assert len(taken) == 2
    assert "22:13:22" in out.file.getvalue()


def test_a_task_that_was_quicker_than_the_look_is_no_open_transaction(planted):
    planted.cluster.logs[B] = Log.of(4)  # the end as it was asked for, before 5 was reached
    assert only_cause(planted.source()) == (B, Cause.NO_RECORD_SINCE)
    assert planted.source().partitions[0].backlog == 0


def test_a_broker_that_goes_away_later_is_shown_and_ends_nothing(planted, monkeypatch):
    def gone(*_a, **_k):
        raise UnavailableError("no broker answers")

    monkeypatch.setattr(planted.cluster, "partitions", gone)
    monkeypatch.setattr(planted.cluster, "asked", [])
    picture = watch._look(planted.reader())
    assert picture.trouble == "no broker answers"
    assert "fetch_offsets" not in planted.cluster.asked  # it would be waited for, too


FOREIGN = 'v1\n{}\n{"t":{"0":5}}\n'


@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        ({}, [], "is no checkpoint: the checkpointLocation of a query is expected"),
        ({"metadata": "{}"}, [], "has planned no batch yet"),
        ({"offsets/0": FOREIGN}, [], "is the checkpoint of a query without a source of keyedwm"),
        ({"offsets/0": FOREIGN}, ["--bootstrap", "x:1"], "is the checkpoint of a query without a source of keyedwm"),
        ({}, ["--bootstrap", " "], "--bootstrap is empty: host:port of a broker is expected"),
        ({}, ["--option", "kafka.client.id=x"], "--option needs --bootstrap"),
        ({}, ["--option", "subscribe=x"], "--option subscribe: kafka.* options, stateSecret and idleTimeout are"),
        ({}, ["--option", "stateSecret=abc"], "would stand in the list of processes"),
        ({}, ["--every", "0"], "--every: 0 is wrong, seconds above 0 are expected"),
    ],
)
def test_what_cannot_be_watched_is_one_sentence(tmp_path, capsys, files, words, said):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert main(["watch", str(tmp_path), "--once", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x", "--json"], "--json needs --once"),
        (["x"], "the output is no terminal"),
        (["s3a://b/x", "--once"], "is not a local directory"),
        (["", "--once"], "CHECKPOINT is empty"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(capsys, words, said):
    assert main(["watch", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_one_sentence(planted, capsys):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    words = ["--bootstrap", address, "--option", "kafka.default.api.timeout.ms=300", "--once"]
    assert main(["watch", str(planted.directory), *words]) == 2
    told = capsys.readouterr().err
    assert address in told
    assert told.count("\n") == 1


def test_a_real_broker_gives_the_backlog_in_records_and_in_time(kafka, topic_of, open_stream, tmp_path):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Produced(0, T_MS), Produced(1, T_MS + 1_000), Produced(1, T_MS + 2_000)])
    stream = open_stream(topic, {"startingOffsets": "earliest"})
    stream.drain()
    produce(kafka.bootstrap, topic, [Produced(0, T_MS + 10_000 + 500 * n) for n in range(5)])
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(stream.log[-1])}\n")
    picture = QueryReader(tmp_path, cluster_at(kafka.bootstrap)).picture(T_MS)
    (source,) = picture.sources
    p0, p1 = (TopicPartition(topic, number) for number in range(2))
    assert only_cause(source) == (p0, Cause.BACKLOG)
    told = {
        one.channel: (one.position, one.log_end, one.backlog, one.behind_ms, one.last_record_ms)
        for one in source.partitions
    }
    assert told == {p0: (1, 6, 5, 2_000, T_MS + 12_000), p1: (2, 2, 0, 0, T_MS + 2_000)}


def test_the_page_shows_what_the_view_shows():
    """The example of docs/watch.md, from the picture that it tells of."""
    now_ms = 1_795_692_000_000

    def partition(
        number: int, position: int, backlog: int, behind_s: int, watermark_s: int, **more
    ) -> PartitionPicture:
        facts = {
            "log_end": position + backlog, "status": Status.ACTIVE, "last_record_ms": None, "last_news_ms": now_ms,
            "idle_since_ms": None, "late": 0, "unreadable": 0, "future": 0, "control": 0, "resets": 0,
            "is_current": True,
        }  # fmt: skip
        return PartitionPicture(
            channel=TopicPartition("visits", number), position=position, backlog=backlog, behind_ms=1_000 * behind_s,
            watermarks_ms={0: now_ms - 1_000 * watermark_s}, **facts | more,
        )  # fmt: skip

    def picture(seconds: int) -> Picture:
        idle = {"status": Status.IDLE, "idle_since_ms": now_ms - 8_320_000}
        partitions = (
            partition(2, 870 * seconds, 5210, 405, 439, late=12),
            partition(0, 95 * seconds, 0, 0, 16),
            partition(1, 102 * seconds, 0, 0, 15),
            partition(3, 0, 0, 0, 8_327, **idle),
        )
        held = Holder(
            channel=partitions[0].channel, watermark_ms=now_ms - 439_000, cause=Cause.BACKLOG, since_ms=None
        )  # fmt: skip
        source = SourcePicture(
            source=0, group="g", batch=118, planned_ms=now_ms - 2_000, partitions=partitions, coordinator=None,
            watermarks=(
                WatermarkPicture(
                    key=0, watermark_ms=now_ms - 439_000, unmoved_since_ms=now_ms - 40_000, held_by=(held,)
                ),
            ),
        )  # fmt: skip
        return Picture(
            checkpoint="/data/visits.checkpoint", taken_ms=now_ms - 1_000 * (2 - seconds), planned_batch=118,
            committed_batch=117, committed_ms=now_ms - 3_000, publication=None, trouble=None, sources=(source,),
        )  # fmt: skip

    said = [line.rstrip() for line in shown(picture(2), before=picture(0)).splitlines()]
    page = (Path(__file__).parents[2] / "docs" / "watch.md").read_text()
    assert said == page.partition("```text\n")[2].partition("\n```")[0].splitlines()
