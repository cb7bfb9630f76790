"""A batch whose committed states and whose records are both gone before the next planning: who follows goes on."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import RegressionError
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import no_records
from keyedwm.kafka.requests.fetch import Fetched
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.batch.seal import seal
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_source.driver.planner import Planner
from pyspark_wm_source.task import fetching
from pyspark_wm_source.task.scan import _closing, _opening
from pyspark_wm_source.values.offsets import QueryOffset
from tests.source.scripted import Driver, Log, ScriptedCluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Followed:
    """A driver whose batches a sink under exactly-once and a window operator follow; tasks are as the test says."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, logs: dict[TopicPartition, Log] | None = None, **options: str
    ) -> None:
        logs = {A: Log.of(5), B: Log.of(5)} if logs is None else logs
        settings = {"startingOffsets": "earliest", "watermarkThrottle": "none", **options}
        self.driver = Driver(monkeypatch, ScriptedCluster(logs), **settings)
        self.record: Record | None = None
        self.inbox = ChannelTracker("aggregate hours", key=0)

    def batch(self, ends_ms: dict[TopicPartition, int]) -> list[ControlRow] | None:
        """Plan a batch and give its control rows to who follows; ends_ms: the watermarks that its tasks reach."""
        before = self.driver.offset
        if self.driver.plan() is None:
            return None
        return self.follow(before, ends_ms)

    def follow(self, before: dict, ends_ms: dict[TopicPartition, int]) -> list[ControlRow]:
        """Give the control rows of the planned batch, after the one that ended at `before`, to who follows."""
        rows = self.rows(before, self.driver.offset, ends_ms)
        report = BatchReport(
            query="q", run="r", batch=self.driver.offset["batch"], attempt="a", rows=1, control=tuple(rows),
            event_tops={},
        )  # fmt: skip
        self.record = seal(self.record, report, SnapshotMode.BARRIER, Guarantee.EXACTLY_ONCE)
        self.inbox.apply(rows)
        return rows

    def rows(self, start: dict, end: dict, ends_ms: dict[TopicPartition, int]) -> list[ControlRow]:
        rows: list[ControlRow] = []
        for split in Planner(self.driver.options).splits(json.loads(json.dumps(start)), json.loads(json.dumps(end))):
            rows += split.control
            for task in split.ranges:
                watermarks = [(0, ends_ms[task.channel])] if task.channel in ends_ms else []
                rows += [*_opening(task, task.start, split.source), *_closing(task, watermarks, split, barriers=True)]
        return rows

    def lose_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A week later: committed states and records are gone, and the planner is a new one."""
        self.driver.cluster.committed.clear()

        def nothing(_cluster, ranges, columns, _isolation):
            for index, part in enumerate(ranges):
                where = TopicPartition(part.topic, part.partition)
                yield Fetched(index, where, no_records(columns, part.end), part.end, done=True)

        monkeypatch.setattr(fetching, "read_ranges", nothing)
        self.driver.restart()


@pytest.fixture
def lossy_query(monkeypatch):
    """Two batches that told 500 and 900; the states and records of the second are gone."""
    followed_query = Followed(monkeypatch)
    assert followed_query.batch({A: 500, B: 500})
    followed_query.driver.run_tasks(500)
    assert followed_query.batch({}) is not None  # the states are in the offset log
    for tp in (A, B):
        followed_query.driver.cluster.logs[tp] = Log.of(9)
    assert followed_query.batch({A: 900, B: 900})
    followed_query.lose_all(monkeypatch)
    return followed_query


def reset_rows(rows: list[ControlRow]) -> list[str]:
    return sorted(str(row.channel) for row in rows if row.kind is ControlKind.RESET)


def test_a_lower_watermark_after_a_loss_is_told_as_one_and_stops_nobody(lossy_query):
    lossy_query.driver.cluster.logs[A] = Log.of(12)
    rows = lossy_query.batch({A: 700})
    assert rows is not None
    assert reset_rows(rows) == ["t-0", "t-1"]
    assert lossy_query.record.channels["t-0"].watermarks == {0: 700}
    assert lossy_query.record.channels["t-1"].watermarks == {0: 500}
    assert (lossy_query.inbox.watermark_ms, lossy_query.record.coalesced) == (900, {0: 500})
    lossy_query.driver.run_tasks(700)
    lossy_query.driver.cluster.logs[A] = Log.of(14)
    assert reset_rows(lossy_query.batch({A: 1_000})) == []
    assert lossy_query.inbox.watermark_ms == 900  # t-1 promises no more than 500 now, and the output never falls


def test_without_the_reset_row_the_sink_would_stop_for_good(lossy_query):
    before, lossy_query.record = lossy_query.record, None
    lossy_query.driver.cluster.logs[A] = Log.of(12)
    rows = [row for row in lossy_query.batch({A: 700}) if row.kind is not ControlKind.RESET]
    report = BatchReport(query="q", run="r", batch=3, attempt="a", rows=1, control=tuple(rows), event_tops={})
    with pytest.raises(RegressionError, match="the watermark of channel t-0, key 0 went from 900 ms"):
        seal(before, report, SnapshotMode.BARRIER, Guarantee.EXACTLY_ONCE)


def test_a_reset_before_the_first_watermark_of_its_batch_frees_the_batches_after_it():
    def sealed(last, batch, *rows):
        barrier = ControlRow(kind=ControlKind.BARRIER, channel="t-0", offset=batch, snapshot=batch, channels=1)
        report = BatchReport(
            query="q", run="r", batch=batch, attempt="a", rows=0, control=(*rows, barrier), event_tops={}
        )
        return seal(last, report, SnapshotMode.BARRIER, Guarantee.EXACTLY_ONCE)

    def watermark(batch, time_ms):
        return ControlRow(kind=ControlKind.WATERMARK, channel="t-0", offset=batch, key=0, watermark_ms=time_ms)

    first_record = sealed(None, 0, watermark(0, 1_000))
    silent = sealed(first_record, 1, ControlRow(kind=ControlKind.RESET, channel="t-0", offset=0))
    assert silent.channels["t-0"].watermarks == {}
    assert sealed(silent, 2, watermark(2, 900)).channels["t-0"].watermarks == {0: 900}


def test_channels_without_news_are_reset_too_and_once(lossy_query):
    rows = lossy_query.batch({})
    assert rows is not None
    assert reset_rows(rows) == ["t-0", "t-1"]
    assert lossy_query.batch({}) is None
    assert lossy_query.driver.planner.reported()["resets"] == {"t": {"0": 1, "1": 1}}


def test_a_batch_that_begins_anew_is_replayed_from_the_log_alone(lossy_query):
    start = lossy_query.driver.offset
    lossy_query.driver.cluster.logs[A] = Log.of(12)
    rows = lossy_query.batch({A: 700})
    assert lossy_query.rows(start, lossy_query.driver.offset, {A: 700}) == rows
    assert {tp: c.resets for tp, c in QueryOffset.from_json(lossy_query.driver.offset).channels.items()} == {A: 1, B: 1}


def test_a_batch_that_is_planned_again_counts_the_loss_once(lossy_query):
    start = lossy_query.driver.offset
    for _ in range(2):
        lossy_query.driver.offset = start
        lossy_query.driver.restart()
        assert lossy_query.driver.plan().channels[A].resets == 1


def test_the_state_that_a_copy_has_left_after_a_loss_is_not_taken_by_the_original(monkeypatch, caplog):
    followed_query = Followed(monkeypatch)
    assert followed_query.batch({A: 500, B: 500})
    followed_query.driver.run_tasks(500)
    assert followed_query.batch({}) is not None  # the states are in the offset log
    for tp in (A, B):
        followed_query.driver.cluster.logs[tp] = Log.of(9)
    assert followed_query.batch({A: 900, B: 900})
    followed_query.driver.run_tasks(900)
    copied = followed_query.driver.offset
    followed_query.driver.cluster.logs[A] = Log.of(12)
    assert followed_query.batch({A: 1_000})
    followed_query.driver.run_tasks(1_000)
    own_offset = followed_query.driver.offset

    followed_query.lose_all(monkeypatch)  # what the copy needs of the batch before its first one is gone
    followed_query.driver.offset = copied
    assert followed_query.driver.plan() is not None
    followed_query.driver.run_tasks(700)

    followed_query.driver.offset = own_offset
    followed_query.driver.restart()
    followed_query.driver.cluster.logs[A] = Log.of(14)
    rows = followed_query.batch({A: 950})
    assert rows is not None  # 950 follows 1000: the state of the copy, 700, would have told so without a reset
    assert reset_rows(rows) == ["t-0"]
    assert followed_query.record.channels["t-0"].watermarks == {0: 950}
    assert "another query, on a copy of this checkpoint, commits to consumer group" in caplog.text
    assert "give the copy a checkpoint of its own" in caplog.text


def test_a_state_below_what_the_channel_had_before_the_batch_is_a_copys_and_is_not_taken(
    lossy_query, monkeypatch, caplog
):
    lossy_query.driver.cluster.logs[A] = Log.of(12)
    assert lossy_query.batch({A: 700})
    lossy_query.driver.run_tasks(700)
    lossy_query.driver.cluster.logs[A] = Log.of(14)
    assert lossy_query.batch({A: 1_000})
    lossy_query.driver.run_tasks(600)
    lossy_query.driver.cluster.logs[A] = Log.of(16)
    assert reset_rows(lossy_query.batch({A: 900})) == ["t-0"]
    assert "another query, on a copy of this checkpoint, commits to consumer group" in caplog.text


def test_a_channel_that_is_away_when_its_state_is_lost_is_reset_when_it_comes_back(monkeypatch):
    followed_query = Followed(monkeypatch, failOnDataLoss="false")
    assert followed_query.batch({A: 500, B: 500})
    followed_query.lose_all(monkeypatch)
    log = followed_query.driver.cluster.logs.pop(B)
    assert reset_rows(followed_query.batch({})) == ["t-0"]
    followed_query.driver.cluster.logs[B] = Log.of(log.high + 1)
    assert reset_rows(followed_query.batch({B: 300})) == ["t-1"]
