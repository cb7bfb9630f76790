"""`keyedwm watch` names who holds the watermark, since when, and the one cause of each."""

from __future__ import annotations

import pytest

from keyedwm.cli.query import source as source_module
from keyedwm.core.axis import Counts
from keyedwm.core.watermark import Status
from pyspark_wm_source.values.holding import Cause
from tests.cli.planted import T_MS, A, B, C, Planted, draw_text, only_cause
from tests.source.scripted import Log


def test_a_silent_partition_holds_since_its_last_record(planted):
    assert only_cause(planted.source()) == (B, Cause.NO_RECORD_SINCE)
    planted.driver.clock += 7_200_000
    text = draw_text(planted.picture())
    assert "held by t-1: no record, since 2023-11-14 22:13:20 (2 h ago)" in text


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


def test_an_open_transaction_that_grows_holds_since_the_watermark_moved(monkeypatch, tmp_path):
    committed = {"kafka.isolation.level": "read_committed"}
    planted = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5)}, **committed)
    planted.plan()
    planted.driver.run_tasks({A: T_MS + 50_000, B: T_MS + 20_000})
    planted.plan()  # writes the states down
    for more in (1, 2):
        planted.cluster.logs.update({A: Log.of(10 + more), B: Log(0, 5, 5 + more)})
        planted.driver.clock += 60_000
        planted.plan()
        planted.driver.run_tasks({A: T_MS + 60_000})
    (holder,) = planted.source().watermarks[0].held_by
    assert (holder.cause, holder.since_ms) == (Cause.OPEN_TRANSACTION, T_MS)


@pytest.mark.parametrize(("late", "cause"), [(4, Cause.LATE), (1, Cause.BACKLOG)])
def test_a_partition_whose_records_are_mostly_late_holds_for_that_and_not_for_its_backlog(planted, late, cause):
    planted.plan()  # writes the states down
    planted.cluster.logs[B] = Log.of(9)
    planted.plan()
    planted.driver.run_tasks({B: T_MS + 20_000}, Counts(late=3 + late))
    planted.driver.clock += 60_000
    planted.cluster.logs[B] = Log.of(19)
    (holder,) = planted.source().watermarks[0].held_by
    assert (holder.channel, holder.cause) == (B, cause)
    assert holder.since_ms == (T_MS if cause is Cause.LATE else None)


def test_unreadable_event_times_and_a_partition_without_any_record_hold(monkeypatch, tmp_path):
    it = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5), C: Log.of(0)}, idleTimeout="none")
    it.plan()
    it.driver.run_tasks({A: T_MS, B: None}, Counts(bad=4))
    source = it.source()
    causes = {holder.channel: holder.cause for holder in source.watermarks[0].held_by}
    assert causes == {B: Cause.UNREADABLE, C: Cause.NO_RECORD_EVER}
    assert source.watermarks[0].watermark_ms is None
    text = draw_text(it.picture())
    assert "watermark: none" in text
    assert "held by t-1: unreadable event times" in text
    assert "held by t-2: no record ever" in text


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
    planted.driver.clock += 60_000
    planted.cluster.logs[B] = Log.of(19)  # more of them come: no backlog that is read moves this watermark
    (holder,) = planted.source().watermarks[0].held_by
    assert (holder.cause, holder.since_ms) == (Cause.UNREADABLE, T_MS)  # when it moved, and not when the last one came
    planted.plan()
    planted.driver.run_tasks({B: T_MS + 20_000}, Counts(late=3, bad=14))
    (holder,) = planted.source().watermarks[0].held_by
    assert (holder.cause, holder.since_ms) == (Cause.UNREADABLE, T_MS)
    planted.cluster.logs[A] = Log.of(11)
    planted.plan()
    planted.driver.run_tasks({A: T_MS + 70_000}, Counts(late=3))
    assert only_cause(planted.source()) == (B, Cause.UNREADABLE)
    planted.cluster.logs[B] = Log.of(20)
    planted.plan()
    planted.driver.run_tasks({B: T_MS + 21_000}, Counts(late=3, bad=14))
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
    assert "unmoved for 70 s" in draw_text(planted.picture())
    (planted.directory / "offsets" / "1").unlink()  # as Spark deletes old ones
    assert unmoved_since_ms() == moved_ms + 10_000


def test_a_partition_that_is_gone_and_a_broker_that_is_away_are_told(planted):
    away = planted.reader().picture_without_broker(T_MS, "localhost:1 did not answer")
    # Without the group, the states are those before the batch: nobody has a watermark.
    assert {holder.cause for holder in away.sources[0].watermarks[0].held_by} == {Cause.BROKER_AWAY}
    assert "the broker does not answer: localhost:1 did not answer" in draw_text(away)
    assert {one.log_end for one in away.sources[0].partitions} == {None}
    # When the last record came is not when the broker went, and that there is none is not known.
    assert {holder.since_ms for holder in away.sources[0].watermarks[0].held_by} == {None}
    rows = [line.split() for line in draw_text(away, width=160).splitlines() if line.startswith("t-")]
    assert [row[-3] for row in rows] == ["?", "?"]
    del planted.cluster.logs[B]
    assert only_cause(planted.source()) == (B, Cause.PARTITION_GONE)


def test_a_task_that_was_quicker_than_the_look_is_no_open_transaction(planted):
    planted.cluster.logs[B] = Log.of(4)  # the end as it was asked for, before 5 was reached
    assert only_cause(planted.source()) == (B, Cause.NO_RECORD_SINCE)
    assert planted.source().partitions[0].backlog == 0
