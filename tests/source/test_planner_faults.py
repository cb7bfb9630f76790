"""What the planner makes of brokers that are late, wrong or away: nothing is lost or doubled in silence."""

from __future__ import annotations

import logging

import pytest

from keyedwm.core.errors import DataLossError, OptionError, UnavailableError
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.errors import LogTruncatedError, TopicRecreatedError
from keyedwm.kafka.client.values import Committed, TopicPartition
from pyspark_wm_source.driver import recover_state
from pyspark_wm_source.driver.lost_logs import FrozenEndError
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.start_offsets import Topics
from pyspark_wm_source.values.offsets import QueryOffset
from tests.source.scripted import Driver, Log, ScriptedCluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST = {"startingOffsets": "earliest"}


def driver_maker(monkeypatch):
    """Return a maker of planners over scripted logs, by topic ids and options."""

    def make(logs: dict[TopicPartition, Log], ids: dict[str, str] | None = None, **options: str) -> Driver:
        return Driver(monkeypatch, ScriptedCluster(logs, ids or {}), **(EARLIEST | options))

    return make


@pytest.fixture
def driver(monkeypatch):
    return driver_maker(monkeypatch)


def started(driver: Driver, watermark_ms: int = 500) -> None:
    """Read what is there, and make the states durable."""
    while driver.plan():
        driver.run_tasks(watermark_ms)


def test_one_stale_metadata_answer_takes_no_partition_away(driver):
    d = driver({A: Log.of(5), B: Log.of(5)})
    started(d)
    d.cluster.stale = [{"t": (0,)}, {}]
    assert d.plan() is None
    assert d.paused_s > 0


def test_a_partition_that_comes_back_goes_on_where_it_stood(driver, caplog):
    d = driver({A: Log.of(5), B: Log.of(5)}, failOnDataLoss="false")
    started(d, watermark_ms=777)
    log = d.cluster.logs.pop(B)
    assert d.plan()
    assert "t-1 is gone" in caplog.text
    assert list(QueryOffset.from_json(d.offset).channels) == [A]
    d.cluster.logs[B] = Log.of(log.high + 2)
    back = d.plan()
    assert (back.channels[B].start, back.channels[B].next_offset) == (5, 7)
    assert back.channels[B].axes[0].emitted_ms == 777


def test_a_partition_that_stays_away_is_forgotten_after_a_day(driver):
    d = driver({A: Log.of(5), B: Log.of(5)}, failOnDataLoss="false")
    started(d)
    del d.cluster.logs[B]
    without_partition = d.plan()
    assert list(without_partition.retired) == [B]
    d.clock += 86_400_000
    d.cluster.logs[A] = Log.of(6)
    assert not d.plan().retired


def test_the_id_of_a_topic_is_forgotten_with_its_last_partition(driver):
    other = TopicPartition("u", 0)
    d = driver({A: Log.of(5), other: Log.of(5)}, {"t": "id-1", "u": "id-2"}, subscribe="t,u", failOnDataLoss="false")
    started(d)
    del d.cluster.logs[other]
    assert d.plan().topic_ids == {"t": "id-1", "u": "id-2"}
    d.clock += 86_400_000
    d.cluster.logs[A] = Log.of(6)
    assert d.plan().topic_ids == {"t": "id-1"}


def test_a_partition_that_stays_away_fails_the_query(driver):
    d = driver({A: Log.of(5), B: Log.of(5)})
    started(d)
    del d.cluster.logs[B]
    with pytest.raises(DataLossError, match=r"t-1 is gone: the topic was deleted"):
        d.plan()


def test_watermark_settings_that_changed_on_a_checkpoint_are_told_once_with_what_they_change(driver, caplog):
    d = driver({A: Log.of(5)}, watermarkLag="1 second")
    started(d)
    warning = "are not those of batch"
    d.restart()
    d.cluster.logs[A] = Log.of(6)
    assert d.plan()
    assert warning not in caplog.text
    d.run_tasks(600)
    d.options = SourceOptions.parse({"kafka.bootstrap.servers": "x:1", "subscribe": "t", "watermarkLag": "2 seconds"})
    d.restart()
    for count in (7, 8):
        d.cluster.logs[A] = Log.of(count)
        assert d.plan()
        d.run_tasks(count * 100)
    assert caplog.text.count(warning) == 1
    assert "no watermark goes back" in caplog.text


@pytest.mark.parametrize(
    ("options", "name", "left_out"),
    [
        ({"subscribe": "other"}, "subscribe", "t-0, t-1"),
        ({"subscribePattern": "o.*"}, "subscribePattern", "t-0, t-1"),
        ({"assign": '{"t":[0]}'}, "assign", "t-1"),
    ],
)
def test_options_that_leave_out_a_topic_of_the_checkpoint_are_named_and_no_deletion(driver, options, name, left_out):
    d = driver({A: Log.of(5), B: Log.of(5)})
    started(d)
    d.cluster.logs[TopicPartition("other", 0)] = Log.of(1)
    d.options = SourceOptions.parse({"kafka.bootstrap.servers": "x:1", **options})
    d.restart()
    with pytest.raises(OptionError, match=f"checkpoint reads {left_out}, and the option {name} does not select it"):
        d.plan()


def test_a_topic_that_is_left_out_is_no_deletion_where_losses_are_accepted(driver, caplog):
    d = driver({A: Log.of(5), B: Log.of(5)}, failOnDataLoss="false")
    started(d)
    assigned = {"kafka.bootstrap.servers": "x:1", "assign": '{"t":[0]}', "failOnDataLoss": "false"}
    d.options = SourceOptions.parse(assigned)
    d.restart()
    assert d.plan()
    assert "the checkpoint reads t-1, and the option assign does not select it any more: it is ignored" in caplog.text
    assert "deleted" not in caplog.text


@pytest.mark.parametrize(
    ("before", "now", "kind", "why"),
    [
        ("id-1", "id-2", TopicRecreatedError, "its topic id was id-1 and is id-2 now"),
        (
            "id-1",
            "id-1",
            LogTruncatedError,
            "the end offset of t-0 is 3, .* to read is 5: .*truncated",
        ),
        (None, None, DataLossError, "was truncated, or the topic was deleted and recreated"),
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_log_that_ends_early_is_called_recreated_only_by_its_id(driver, before, now, kind, why, frozen):
    """The kept assignment is a second old: its ids are asked again before they count."""
    d = driver({A: Log.of(5)}, {"t": before} if before else {})
    if frozen:
        d.planner.freeze()
        start = d.offset
        d.plan()
    else:
        started(d)
    d.cluster.logs[A] = Log.of(3)
    d.cluster.ids = {"t": now} if now else {}
    with pytest.raises(FrozenEndError if frozen else kind, match=why):
        d.planner.splits(start, d.offset) if frozen else d.planner.next(d.offset, once=False)


def test_available_now_calls_a_deleted_topic_deleted(driver):
    d = driver({A: Log.of(5)}, {"t": "id-1"}, failOnDataLoss="false")
    d.planner.freeze()
    start = d.offset
    d.plan()
    d.cluster.logs.clear()
    with pytest.raises(FrozenEndError, match=r"t-0 is gone: the topic was deleted.*; Trigger.AvailableNow had planned"):
        d.planner.splits(start, d.offset)


def test_a_recreated_topic_is_noticed_though_it_has_more_records(driver):
    d = driver({A: Log.of(5)}, {"t": "id-1"})
    started(d)
    d.cluster.ids["t"], d.cluster.logs[A] = "id-2", Log.of(9)
    with pytest.raises(TopicRecreatedError, match=r"'t' was deleted and recreated: its topic id was id-1 and is id-2"):
        d.plan()


def test_a_recreated_topic_is_read_from_its_beginning_when_losses_are_accepted(driver):
    d = driver({A: Log.of(5)}, {"t": "id-1"}, failOnDataLoss="false")
    started(d, watermark_ms=777)
    d.cluster.ids["t"], d.cluster.logs[A] = "id-2", Log.of(9, first=2)
    again = d.plan()
    assert (again.channels[A].start, again.channels[A].next_offset) == (2, 9)
    assert again.channels[A].axes[0].emitted_ms == 777
    assert again.topic_ids == {"t": "id-2"}
    d.run_tasks(800)
    d.plan()
    assert d.plan() is None


def test_a_topic_that_was_recreated_before_its_first_record_is_noticed_once(driver, caplog):
    d = driver({A: Log.of(0)}, {"t": "id-1"}, failOnDataLoss="false")
    d.plan()
    d.cluster.ids["t"] = "id-2"
    assert d.plan().topic_ids == {"t": "id-2"}
    assert d.plan() is None
    assert caplog.text.count("was deleted and recreated") == 1


def test_a_topic_that_was_deleted_and_recreated_while_it_was_away_begins_anew(driver):
    d = driver({A: Log.of(5), B: Log.of(5)}, {"t": "id-1"}, failOnDataLoss="false")
    started(d)
    del d.cluster.logs[B]
    d.plan()
    d.cluster.ids["t"], d.cluster.logs[B], d.cluster.logs[A] = "id-2", Log.of(9), Log.of(3)
    back = d.plan()
    assert {tp: (c.start, c.next_offset) for tp, c in back.channels.items()} == {A: (0, 3), B: (0, 9)}


def committed_only(driver, **options: str) -> Driver:
    return driver({A: Log.of(5), B: Log.of(5)}, **{"kafka.isolation.level": "read_committed", **options})


def test_an_open_transaction_is_no_idleness(driver):
    d = committed_only(driver, idleTimeout="60 seconds")
    started(d)
    d.cluster.logs[B].high = 8  # three records of a transaction that is open for an hour
    d.clock += 3_600_000
    planned = d.plan()
    assert {tp: c.status for tp, c in planned.channels.items()} == {A: Status.IDLE, B: Status.ACTIVE}
    assert planned.channels[B].next_offset == 5
    d.clock += 3_600_000
    assert d.plan() is None
    d.cluster.logs[B].stable = 8
    assert d.plan().channels[B].read == 3
    d.run_tasks(600)
    d.plan()
    d.clock += 60_000
    assert d.plan().channels[B].status is Status.IDLE


def test_a_transaction_that_opens_wakes_an_idle_channel(driver):
    d = committed_only(driver, idleTimeout="60 seconds")
    started(d)
    d.clock += 60_000
    assert d.plan().channels[B].status is Status.IDLE
    d.cluster.logs[B].high = 6
    assert d.plan().channels[B].status is Status.ACTIVE


def test_who_waits_for_an_open_transaction_is_told(driver):
    d = committed_only(driver)
    started(d)
    d.cluster.logs[B].high = 8
    d.plan()
    assert "t-1 at 1970-01-01T00:00:00.500Z: 3 records of open transactions" in d.planner.reported()["held_by"]["0"]
    d.clock += 3_600_000
    d.plan()
    assert d.planner.reported()["held_by"]["0"].endswith("3 records of open transactions")


def test_states_are_made_durable_by_a_batch_of_their_own(driver):
    """Partition 1 holds the watermark, so nothing else would follow the batch that read partition 0."""
    d = driver({A: Log.of(5), B: Log.of(0)}, idleTimeout="none")
    assert d.plan().channels[A].read == 5
    d.run_tasks(500)
    durable = d.plan()
    assert (durable.channels[A].read, durable.channels[A].axes[0].emitted_ms) == (0, 500)
    assert d.plan() is None


def test_a_caught_up_query_needs_none_of_its_records_again(driver, monkeypatch):
    d = driver({A: Log.of(5), B: Log.of(0)}, idleTimeout="none")
    started(d)
    d.cluster.committed.clear()  # a week has passed: committed offsets and records are gone
    d.cluster.logs[A] = Log(first=5, stable=5, high=5)
    monkeypatch.setattr(recover_state, "fetch", lambda *_args, **_kwargs: pytest.fail("nothing is to be read"))
    d.restart()
    assert d.plan() is None
    d.cluster.logs[A] = Log(first=5, stable=6, high=6)
    assert d.plan().channels[A].axes[0].emitted_ms == 500


def test_a_coordinator_that_is_away_costs_a_recovery_read(driver, monkeypatch, caplog):
    d = driver({A: Log.of(5)})
    d.plan()
    d.cluster.refusal = UnavailableError("the coordinator of group g did not answer")
    read = []
    monkeypatch.setattr(recover_state, "fetch", lambda _c, ranges, *_a, **_k: read.extend(ranges) or iter(()))
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        d.plan()
    assert [(r.channel, r.start, r.end) for r in read] == [(A, 0, 5)]
    assert "the coordinator of group g did not answer" in caplog.text


def test_the_limits_of_a_pending_batch_are_those_it_was_planned_with(driver):
    d = driver({A: Log.of(1_000)}, minPartitions="4")
    before = d.offset
    d.plan()
    ranges = [(r.start, r.end) for split in d.planner.splits(before, d.offset) for r in split.ranges]
    assert len(ranges) == 4
    d.options = type(d.options).parse({"kafka.bootstrap.servers": "x:1", "subscribe": "t", "minPartitions": "7"})
    d.restart()
    assert [(r.start, r.end) for split in d.planner.splits(before, d.offset) for r in split.ranges] == ranges


def test_a_policy_that_follows_the_clock_makes_a_batch_a_second_at_most(driver):
    d = driver({A: Log.of(5)}, watermarkPolicy="timestampAndWallClockLag", wallClockLag="1 second", idleTimeout="none")
    started_at = d.clock
    batches = 0
    while d.clock < started_at + 10_000:
        d.clock += 10
        if d.plan():
            d.run_tasks(0)
            batches += 1
    assert 9 <= batches <= 13


def test_a_group_that_another_application_commits_to_is_refused(monkeypatch):
    cluster = ScriptedCluster({A: Log.of(5)}, committed={"billing": {A: Committed(3, "")}})
    with pytest.raises(OptionError, match=r"option kafka.group.id: group 'billing' has committed offsets of another"):
        Driver(monkeypatch, cluster, **{"kafka.group.id": "billing"})


def test_a_group_that_a_query_of_keyedwm_used_before_is_taken_on(monkeypatch):
    cluster = ScriptedCluster({A: Log.of(5)}, committed={"billing": {A: Committed(3, "keyedwm3:abc")}})
    assert Driver(monkeypatch, cluster, **{"kafka.group.id": "billing"}).plan()


def test_a_pattern_matches_no_internal_topic():
    known = ("__consumer_offsets", "__share_group_state", "__transaction_state", "_schemas", "orders")
    assert Topics(pattern=".*").select(known) == ("_schemas", "orders")
    assert Topics(names=("__consumer_offsets",)).select(known) == ("__consumer_offsets",)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_available_now_writes_its_states_down_and_stops(driver, isolation):
    limits = {"maxOffsetsPerTrigger": "5", "kafka.isolation.level": isolation}
    d = driver({A: Log.of(15), B: Log.of(0)}, idleTimeout="none", **limits)
    d.planner.freeze()
    reads = []
    while (planned := d.plan()) is not None:
        reads.append(sum(channel.read for channel in planned.channels.values()))
        d.run_tasks(500 + len(reads))
        d.cluster.logs[A] = Log.of(99)
        d.clock += 10_000
    assert reads == [5, 5, 5, 0]
    assert QueryOffset.from_json(d.offset).channels[A].axes[0].emitted_ms == 503
