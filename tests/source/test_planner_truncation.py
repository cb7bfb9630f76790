"""Logs that were truncated: planning notices it by the epochs of leaders, whatever the end offset is."""

from __future__ import annotations

import pytest

from keyedwm.kafka.client.errors import LogTruncatedError
from tests.source.scripted import Log
from tests.source.test_planner_faults import A, B, driver_maker, started


@pytest.fixture
def driver(monkeypatch):
    return driver_maker(monkeypatch)


def led(end: int, epoch: int, ends: dict[int, int | None] | None = None) -> Log:
    return Log(0, end, end, epoch, ends or {})


def test_a_log_that_lost_records_between_batches_is_noticed_though_it_is_longer_again(driver):
    """An unclean election: epoch 3 ends at 4 in the new leader's log, and 5 was read."""
    d = driver({A: led(5, 3), B: led(5, 3)})
    started(d)
    d.cluster.logs[A] = led(9, 4, {3: 4})
    for _ in range(2):  # a restart finds it, too
        with pytest.raises(
            LogTruncatedError, match=r"the log of t-0 was truncated to the end offset 4, but the next offset .* is 5"
        ):
            d.plan()
        d.restart()


def test_what_a_truncated_log_holds_instead_is_read_when_losses_are_accepted(driver, caplog):
    d = driver({A: led(5, 3)}, failOnDataLoss="false")
    started(d)
    d.cluster.logs[A] = led(9, 4, {3: 4})
    planned = d.plan()
    assert (planned.channels[A].start, planned.channels[A].next_offset, planned.channels[A].leader_epoch) == (4, 9, 4)
    assert caplog.text.count("was truncated to the end offset 4") == 1
    d.run_tasks(600)
    d.plan()
    assert d.plan() is None
    assert caplog.text.count("was truncated") == 1


def test_a_change_of_leaders_that_lost_nothing_is_asked_about_once(driver):
    d = driver({A: led(5, 3)})
    started(d)
    for ends in ({3: 5}, {3: None}):  # None: the leader knows no epochs
        d.cluster.logs[A] = led(5, 4, ends)
        d.cluster.requests.clear()
        assert d.plan() is None
        assert d.plan() is None
        assert d.cluster.requests.count("epoch_ends") == 1
        d.restart()
    d.cluster.logs[A] = led(6, 4, {3: 5})
    assert d.plan().channels[A].leader_epoch == 4


@pytest.mark.parametrize("first", [0, 5])  # 5: nothing that was read is left in the log
def test_a_false_answer_about_an_epoch_is_no_truncation_while_the_log_holds_what_was_read(driver, caplog, first):
    """As of Event Hubs Premium, and of servers that answer 0 about every epoch."""
    d = driver({A: led(5, 3)})
    started(d)
    d.cluster.logs[A] = Log(first, 5, 5, 4, {3: 5}, false_ends={3: 0})
    assert d.plan() is None
    assert "leader epoch 3 of t-0 ends at 0, but" in caplog.text
    d.cluster.logs[A] = Log(first, 9, 9, 4, {3: 5}, false_ends={3: 0})
    planned = d.plan().channels[A]
    assert (planned.start, planned.next_offset, planned.leader_epoch) == (5, 9, 4)
    assert caplog.text.count("leader epoch 3 of t-0") == 1
    assert d.cluster.requests.count("lost_records") == 1


@pytest.mark.parametrize("epoch", [None, 4])
def test_without_an_epoch_of_the_last_planning_nothing_is_asked(driver, epoch):
    """As in an offset of version 3, or of brokers that tell no epochs."""
    d = driver({A: led(5, None)})
    started(d)
    d.cluster.logs[A] = led(9, epoch)
    assert d.plan().channels[A].leader_epoch == epoch
    assert "epoch_ends" not in d.cluster.requests


def test_a_truncation_that_available_now_has_frozen_is_gone_back_once(driver):
    d = driver({A: led(5, 3)}, failOnDataLoss="false", maxOffsetsPerTrigger="2")
    while d.plan():
        d.run_tasks(500)
    d.cluster.logs[A] = led(9, 4, {3: 4})
    d.restart()
    d.planner.freeze()
    starts = []
    while (planned := d.plan()) is not None:
        starts.append(planned.channels[A].start)
        d.run_tasks(600 + len(starts))
    assert starts == [4, 6, 8, 9]


def test_a_deposed_leader_that_answers_once_more_makes_no_truncation(driver):
    d = driver({A: led(5, 4)})
    started(d)
    d.cluster.logs[A] = led(6, 3)
    assert d.plan().channels[A].leader_epoch == 4
    d.run_tasks(600)
    d.cluster.logs[A] = led(7, 4, {3: 5})
    assert d.plan().channels[A].leader_epoch == 4


def test_a_log_end_without_an_epoch_does_not_forget_the_known_one(driver):
    d = driver({A: led(5, 4)})
    started(d)
    d.cluster.logs[A] = led(6, None)
    assert d.plan().channels[A].leader_epoch == 4


def test_a_log_that_was_truncated_while_its_partition_was_away_is_noticed(driver, caplog):
    """Epoch 3 ends at 4 in the new leader's log, 5 was read, and the log is longer again."""
    d = driver({A: led(5, 3), B: led(5, 3)}, failOnDataLoss="false")
    started(d)
    del d.cluster.logs[B]
    assert d.plan().retired[B].leader_epoch == 3
    d.restart()
    d.cluster.logs[B] = led(9, 4, {3: 4})
    back = d.plan()
    assert "t-1 was truncated to the end offset 4" in caplog.text
    assert (back.channels[B].start, back.channels[B].next_offset, back.channels[B].leader_epoch) == (4, 9, 4)


def test_a_partition_that_comes_back_with_an_older_leader_keeps_the_known_epoch(driver):
    d = driver({A: led(5, 3), B: led(5, 3)}, failOnDataLoss="false")
    started(d)
    del d.cluster.logs[B]
    assert d.plan()
    d.cluster.logs[B] = led(6, None)
    assert d.plan().channels[B].leader_epoch == 3
