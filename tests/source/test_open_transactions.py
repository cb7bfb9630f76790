"""A log whose records below the query's position belong to an open transaction: the query waits, and nothing is lost.

Kafka answers a last stable offset below the log start if records of an open transaction were deleted.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.core.errors import DataLossError
from pyspark_wm_source.batch_reader import BatchReader
from pyspark_wm_source.driver.lost_logs import FrozenEndError
from pyspark_wm_source.options.source_options import SourceOptions
from tests.source.scripted import Driver, Log, ScriptedCluster
from tests.source.test_planner_faults import A, B, driver_maker, started

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def driver(monkeypatch):
    return driver_maker(monkeypatch)


def cut(d: Driver, start: dict) -> list[tuple[int, int]]:
    return sorted((part.start, part.end) for split in d.planner.splits(start, d.offset) for part in split.ranges)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_last_stable_offset_below_the_log_start_is_waited_for(driver, caplog, fails):
    d = driver({A: Log(first=12, stable=1, high=34)}, failOnDataLoss=fails, **COMMITTED)
    assert d.plan().channels[A].next_offset == 12
    d.cluster.logs[A].stable = 34
    assert d.plan().channels[A].next_offset == 34
    assert "offset 12" not in caplog.text


def test_a_query_that_read_records_of_an_open_transaction_before_waits_for_its_end(driver):
    """Until its last start the query read uncommitted records."""
    d = driver({A: Log.of(5)}, **COMMITTED)
    started(d)
    d.cluster.logs[A] = Log(stable=2, high=8)
    assert d.plan() is None
    d.cluster.logs[A].stable = 8
    assert d.plan().channels[A].next_offset == 8


def test_a_log_that_ends_below_the_position_is_a_loss_although_a_transaction_is_open(driver):
    d = driver({A: Log.of(5)}, **COMMITTED)
    started(d)
    d.cluster.logs[A] = Log(stable=2, high=4)
    with pytest.raises(DataLossError, match="the end offset of t-0 is 2, but the next offset to read is 5"):
        d.plan()


def test_a_recreated_topic_is_read_to_its_last_stable_offset_and_not_to_the_earlier_position(driver):
    d = driver({A: Log.of(5)}, {"t": "id-1"}, failOnDataLoss="false", **COMMITTED)
    started(d)
    d.cluster.ids["t"], d.cluster.logs[A] = "id-2", Log(stable=2, high=9)
    again = d.plan().channels[A]
    assert (again.start, again.next_offset) == (0, 2)


def test_a_truncated_log_is_read_to_its_last_stable_offset_and_not_to_the_earlier_position(driver):
    d = driver({A: Log(stable=10, high=10, epoch=1)}, failOnDataLoss="false", **COMMITTED)
    started(d)
    d.cluster.logs[A] = Log(stable=6, high=12, epoch=2, epoch_ends={1: 4})
    again = d.plan().channels[A]
    assert (again.start, again.next_offset) == (4, 6)


def test_a_smallest_batch_counts_no_records_below_the_position(driver):
    """minOffsetsPerTrigger: A waits for an open transaction, and B has enough records."""
    d = driver({A: Log.of(50), B: Log.of(5)}, minOffsetsPerTrigger="10", maxTriggerDelay="1 hour", **COMMITTED)
    started(d)
    d.cluster.logs.update({A: Log(stable=2, high=60), B: Log.of(17)})
    assert d.plan().channels[B].next_offset == 17


def test_available_now_reads_the_other_partitions(driver):
    d = driver({A: Log(first=12, stable=1, high=34), B: Log.of(5)}, **COMMITTED)
    d.planner.freeze()
    start = d.offset
    d.plan()
    assert cut(d, start) == [(0, 5)]


def test_available_now_stops_if_the_log_ends_below_the_frozen_end(driver):
    d = driver({A: Log.of(8), B: Log.of(5)}, **COMMITTED)
    d.planner.freeze()
    start = d.offset
    d.plan()
    d.cluster.logs[A] = Log(stable=1, high=6)
    with pytest.raises(FrozenEndError):
        cut(d, start)


def test_a_bounded_read_to_a_last_stable_offset_below_the_log_start_reads_nothing(monkeypatch):
    cluster = ScriptedCluster({A: Log(first=12, stable=1, high=34), B: Log.of(5)})
    monkeypatch.setattr("pyspark_wm_source.batch_reader.shared", lambda _: cluster)
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **COMMITTED})
    splits = BatchReader(options, pa.schema([])).partitions()
    assert sum(part.end - part.start for split in splits for part in split.ranges) == 5
