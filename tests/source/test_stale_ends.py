"""A new leader answers with an older log end for a moment (KAFKA-7703): no record is lost or doubled."""

from __future__ import annotations

import pytest

from keyedwm.core.errors import DataLossError
from pyspark_wm_source.driver.lost_logs import FrozenEndError
from tests.source.scripted import Driver, Log
from tests.source.test_planner_faults import A, B, driver_maker, started

ALWAYS = 1_000  # more answers than anybody asks for


@pytest.fixture
def driver(monkeypatch):
    return driver_maker(monkeypatch)


def frozen(driver, **options: str) -> tuple[Driver, dict]:
    """Plan the first batch of Trigger.AvailableNow; return the offset before it, too."""
    d = driver({A: Log.of(100), B: Log.of(100)}, **options)
    d.planner.freeze()
    start = d.offset
    d.plan()
    return d, start


def cut(d: Driver, start: dict) -> list[tuple[int, int]]:
    return sorted((part.start, part.end) for split in d.planner.splits(start, d.offset) for part in split.ranges)


def test_the_last_answer_about_a_log_end_counts_as_the_first_does(driver):
    d = driver({A: Log.of(100)})
    started(d)
    d.cluster.logs[A] = Log.of(105)
    d.cluster.stale_ends = [{A: 90}] * ALWAYS
    with pytest.raises(DataLossError, match=r"the end offset of t-0 is 90, but the next offset to read is 100"):
        d.plan()
    answers = ALWAYS - len(d.cluster.stale_ends)
    d.restart()
    d.cluster.stale_ends = [{A: 90}] * (answers - 1)
    assert d.plan().channels[A].next_offset == 105


def test_one_stale_log_end_of_a_partition_that_comes_back_is_no_loss_and_doubles_nothing(driver, caplog):
    d = driver({A: Log.of(5), B: Log.of(5)}, failOnDataLoss="false")
    started(d)
    del d.cluster.logs[B]
    d.plan()
    d.cluster.logs[B] = Log.of(7)
    d.cluster.stale_ends = [{B: 3}, {B: 3}]
    back = d.plan().channels[B]
    assert (back.start, back.next_offset) == (5, 7)
    assert "truncated" not in caplog.text


@pytest.mark.parametrize("fails", ["true", "false"])
def test_one_stale_log_end_stops_no_run_of_available_now(driver, fails):
    d, start = frozen(driver, failOnDataLoss=fails)
    d.cluster.stale_ends = [{A: 90}]
    assert cut(d, start) == [(0, 100), (0, 100)]


@pytest.mark.parametrize("answer", [{"t": (0,)}, {}])
def test_one_stale_metadata_answer_stops_no_run_of_available_now(driver, answer):
    d, start = frozen(driver)
    d.cluster.stale = [answer]
    assert cut(d, start) == [(0, 100), (0, 100)]


def test_a_log_end_that_stays_behind_stops_available_now(driver):
    d, start = frozen(driver, failOnDataLoss="false")
    d.cluster.stale_ends = [{A: 90}] * ALWAYS
    with pytest.raises(FrozenEndError, match=r"the end offset of t-0 is 90.*; Trigger.AvailableNow had planned"):
        cut(d, start)
