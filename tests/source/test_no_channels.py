"""Channels that come and go: a source may have none at all, and one that comes back after a day begins anew."""

from __future__ import annotations

import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.batch.seal import seal
from pyspark_wm_sink.kafka.control_records import _upstream_barrier
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.source.scripted import Log
from tests.source.test_lost_states import Followed, reset_rows

A, B = TopicPartition("t", 0), TopicPartition("u", 0)
DAY_MS = 86_400_000


@pytest.fixture
def followed(monkeypatch):
    def make(**logs: Log) -> Followed:
        places = {TopicPartition(topic, 0): log for topic, log in logs.items()}
        return Followed(monkeypatch, places, subscribePattern="[tu]", failOnDataLoss="false")

    return make


def test_a_source_that_starts_without_a_topic_is_a_whole_snapshot_and_reads_what_comes(followed):
    query = followed()
    (idle, none) = query.batch({})
    assert (idle.kind, none.kind, none.channels, none.channel) == (ControlKind.IDLE, ControlKind.BARRIER, 0, None)
    assert query.record.snapshot == 0
    assert query.batch({}) is None
    query.driver.restart()
    query.driver.cluster.logs[A] = Log.of(5)
    assert query.batch({A: 500})
    assert (query.record.channels["t-0"].snapshot, query.inbox.watermark_ms) == (1, 500)


def test_a_source_that_loses_its_last_topic_goes_on_with_the_next_one(followed):
    query = followed(t=Log.of(5))
    assert query.batch({A: 500})
    query.driver.run_tasks(500)
    log = query.driver.cluster.logs.pop(A)
    last_rows = query.batch({})
    assert [row.channels for row in last_rows if row.kind is ControlKind.BARRIER] == [0]
    assert (query.record.channels, query.record.snapshot) == ({}, 1)
    assert (query.inbox.idle, query.batch({})) == (True, None)
    query.driver.restart()
    query.driver.cluster.logs[A] = Log.of(log.high + 1)
    assert query.batch({A: 900})
    assert (query.record.channels["t-0"].snapshot, query.inbox.watermark_ms) == (2, 900)


def test_a_topic_that_comes_after_an_empty_time_is_never_late_by_what_is_below_its_own_watermark(followed):
    query = followed(t=Log.of(5))
    assert query.batch({A: 500})
    query.driver.run_tasks(500)
    del query.driver.cluster.logs[A]
    assert query.batch({})
    query.driver.cluster.logs[B] = Log.of(3)
    assert query.batch({B: 300})
    # Rule 5: the output never goes back, and the new channel holds it where it is.
    assert (query.inbox.watermark_ms, query.inbox.idle) == (500, False)
    query.driver.run_tasks(300)
    query.driver.cluster.logs[B] = Log.of(4)
    assert query.batch({B: 800})
    assert query.inbox.watermark_ms == 800


def test_barriers_that_were_dropped_are_still_missed(followed):
    query = followed()
    with pytest.raises(InputError, match="none of the barrier rows of the first snapshot arrived"):
        seal(None, report(ControlRow(kind=ControlKind.IDLE, source="s")), SnapshotMode.BARRIER, Guarantee.EXACTLY_ONCE)
    query.batch({})
    query.driver.cluster.logs[A] = Log.of(5)
    rows = query.rows(query.driver.offset, query.driver.plan().to_json(), {A: 500})
    skipped = [row if row.kind is not ControlKind.BARRIER else later(row) for row in rows]
    with pytest.raises(InputError, match="snapshot 2 of channels t-0 follows snapshot 0 of the last batch"):
        seal(query.record, report(*skipped), SnapshotMode.BARRIER, Guarantee.EXACTLY_ONCE)


def test_an_empty_snapshot_out_of_turn_names_its_source():
    first = sealed(None, [none(4, "A")])
    with pytest.raises(InputError, match="snapshot 6 of source A, which has no channel, follows snapshot 4"):
        sealed(first, [none(6, "A")])


def test_a_source_without_channels_holds_nobody_and_promises_nothing_for_the_other():
    box = ChannelTracker("aggregate hours", key=0)
    box.apply([*rows(0, "A", a=100), *rows(0, "B", b=5_000)])
    flush = ControlRow(kind=ControlKind.WATERMARK, key=0, watermark_ms=5_000, source="B")
    idle = ControlRow(kind=ControlKind.IDLE, source="B")
    box = ChannelTracker.restore("aggregate hours", 0, box.state())
    changes = box.apply([flush, idle, none(1, "B"), *rows(1, "A", a=200)])
    assert (changes.batch_watermark_ms, changes.watermark_ms) == (100, 200)
    assert box.apply(rows(2, "A", a=300)).watermark_ms == 300
    assert box.apply(rows(2, "B", b=250)).watermark_ms == 300  # behind: it holds
    assert box.apply(rows(3, "A", a=900)).watermark_ms == 300
    assert box.apply(rows(3, "B", b=700)).watermark_ms == 700


def test_united_sources_coalesce_each_for_itself_also_in_a_batch_of_one():
    def coalesced(ms, source):
        return ControlRow(kind=ControlKind.WATERMARK, key=0, watermark_ms=ms, source=source)

    record = sealed(None, [coalesced(5_000, "A"), *rows(0, "A", a=5_000), coalesced(100, "B"), *rows(0, "B", b=100)])
    record = sealed(record, [coalesced(200, "B"), *rows(1, "B", b=200)])
    assert record.coalesced == {0: 5_000}


def test_a_barrier_in_the_topic_holds_what_a_source_without_a_batch_promised():
    first = [*rows(0, "A", a=5_000), *rows(0, "B", b=100)]
    second = rows(1, "A", a=6_000)
    record = sealed(sealed(None, first), second)
    assert _upstream_barrier("q", 1, report(*second), record).promise() == ({0: 100}, False)
    rows_of_next = [none(1, "B"), *rows(2, "A", a=7_000)]
    assert _upstream_barrier("q", 2, report(*rows_of_next), sealed(record, rows_of_next)).promise() == (
        {0: 7_000},
        False,
    )
    last_row = [none(3, "A")]
    assert _upstream_barrier("q", 3, report(*last_row), sealed(sealed(record, rows_of_next), last_row)).promise() == (
        {},
        True,
    )


def test_the_record_forgets_the_channels_that_are_gone_and_no_other():
    record = sealed(None, [*rows(0, "A", a=1, b=1), *rows(0, "B", c=1)])
    for number in range(1, 50):
        record = sealed(record, rows(number, "A", **{f"day{number}": number}))
    assert sorted(record.channels) == ["c-0", "day49-0"]
    assert Record.from_json(record.to_json()) == record
    later = sealed(record, [*rows(50, "A", day49=60), *rows(1, "B", c=2)])
    assert later.channels["c-0"].watermarks == {0: 2}


def test_a_partition_that_comes_back_after_a_day_begins_anew_and_stops_nobody(followed):
    query = followed(t=Log.of(5), u=Log.of(5))
    query.batch({A: 1_000, B: 1_000})
    query.driver.run_tasks(1_000)
    del query.driver.cluster.logs[A]
    assert query.batch({})
    query.driver.clock += DAY_MS
    query.driver.cluster.logs[B] = Log.of(6)
    assert query.batch({B: 2_000})
    query.driver.run_tasks(2_000)
    query.driver.cluster.logs[A] = Log.of(3)
    before, start = query.record, query.driver.offset
    back = query.batch({A: 400})
    assert reset_rows(back) == ["t-0"]
    assert query.rows(start, query.driver.offset, {A: 400}) == back
    assert query.record.channels["t-0"].watermarks == {0: 400}
    # A record of a version that forgot no channel.
    old_record = sealed(
        None, [mark("t-0", 1_000), ControlRow(kind=ControlKind.BARRIER, channel="t-0", snapshot=0, channels=1)]
    )
    old = Record.from_json(before.to_json())
    seal(
        Record(**{**fields(old), "channels": {**old.channels, "t-0": old_record.channels["t-0"]}}),
        report(*back), SnapshotMode.BARRIER, Guarantee.EXACTLY_ONCE,
    )  # fmt: skip


def test_a_partition_that_comes_back_within_a_day_goes_on_and_is_not_reset(followed):
    query = followed(t=Log.of(5), u=Log.of(5))
    query.batch({A: 1_000, B: 1_000})
    query.driver.run_tasks(1_000)
    log = query.driver.cluster.logs.pop(A)
    assert query.batch({})
    query.driver.cluster.logs[A] = Log.of(log.high + 1)
    assert reset_rows(query.batch({A: 1_100})) == []


def fields(record: Record) -> dict:
    return {name: getattr(record, name) for name in Record.__dataclass_fields__}


def later(row: ControlRow) -> ControlRow:
    return ControlRow(
        kind=row.kind, channel=row.channel, offset=row.offset, snapshot=row.snapshot + 1, channels=row.channels,
        source=row.source,
    )  # fmt: skip


def mark(channel: str, ms: int, source: str | None = None, offset: int = 0) -> ControlRow:
    return ControlRow(kind=ControlKind.WATERMARK, channel=channel, offset=offset, key=0, watermark_ms=ms, source=source)


def rows(snapshot: int, source: str, **watermarks: int) -> list[ControlRow]:
    """Watermark and barrier of a source's topics of one partition each."""
    control_rows = []
    for topic, ms in watermarks.items():
        control_rows.append(mark(f"{topic}-0", ms, source, snapshot))
        control_rows.append(
            ControlRow(
                kind=ControlKind.BARRIER, channel=f"{topic}-0", offset=snapshot, snapshot=snapshot,
                channels=len(watermarks), source=source,
            )
        )  # fmt: skip
    return control_rows


def none(snapshot: int, source: str) -> ControlRow:
    return ControlRow(kind=ControlKind.BARRIER, snapshot=snapshot, channels=0, source=source)


def report(*control: ControlRow) -> BatchReport:
    return BatchReport(query="q", run="r", batch=0, attempt="a", rows=1, control=control, event_tops={})


def sealed(last: Record | None, control: list[ControlRow]) -> Record:
    return seal(last, report(*control), SnapshotMode.BARRIER, Guarantee.EXACTLY_ONCE)
