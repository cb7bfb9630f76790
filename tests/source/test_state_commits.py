"""States that cannot be committed or read again cost time, never a task or a query."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.encoding import KEY_BYTES
from keyedwm.core.errors import InputError, KeyedwmError, UnavailableError
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownTopicError,
)
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import ColumnSelection, Records, no_records
from keyedwm.kafka.requests.fetch import Fetched
from pyspark_wm_source.driver.recover_state import Recovery, StateLoader
from pyspark_wm_source.options.source_options import Limits, SourceOptions
from pyspark_wm_source.task import fetching, scan
from pyspark_wm_source.task.scan import _commit_states
from pyspark_wm_source.values.offsets import Channel, QueryOffset
from pyspark_wm_source.values.ranges import ChannelRange, RangeResult, Split
from tests.source.scripted import Driver, Log, ScriptedCluster

A = TopicPartition("t", 0)
OPTIONS = SourceOptions.parse({"kafka.bootstrap.servers": "x:1", "subscribe": "t", "onBadEventTime": "fail"})
HASTY = replace(OPTIONS, limits=Limits(recovery_slice_s=0.0))
STATE = {0: AxisState((500,), 500)}
RANGE = ChannelRange(channel=A, start=10, end=20, counts=Counts(), axes=STATE)


@pytest.fixture(autouse=True)
def forget_outages(monkeypatch):
    """A process remembers which group's coordinator did not answer."""
    monkeypatch.setattr(scan, "_outages", {})


@pytest.mark.parametrize("refusal", [UnavailableError("no coordinator"), InputError("no such group")])
def test_a_commit_that_fails_fails_no_task(refusal, caplog):
    cluster = ScriptedCluster({A: Log.of(20)}, refusal=refusal)
    split = Split(
        ranges=(RANGE,), control=(), stamps={}, batch=3, channels=1, source="s", group="g", state_key="00" * 32,
        now_ms=0,
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        _commit_states(split, cluster, [(RANGE, RangeResult(next_offset=20, counts=Counts(), axes=STATE))], OPTIONS)
    assert (
        f"group g: the states of 1 partitions were not committed, they are read again: {refusal.message}" in caplog.text
    )


def rows(start: int, end: int) -> Records:
    offsets = np.arange(start, end)
    empty = no_records(ColumnSelection(), end)
    kind = np.zeros(end - start, np.int32)
    return replace(empty, count=end - start, offset=offsets, timestamp_ms=offsets * 100, timestamp_type=kind)


@pytest.fixture
def log(monkeypatch):
    """What `read_ranges` meets at an offset: an error, once; else rows whose event time is a hundredfold of it."""
    trouble: dict[int, KeyedwmError] = {}

    def read_ranges(_cluster, ranges, columns, _isolation):
        for index, part in enumerate(ranges):
            if part.start in trouble:
                raise trouble.pop(part.start)
            if part.start >= part.end:
                yield Fetched(index, A, no_records(columns, part.end), part.end, done=True)
                continue
            for offset in range(part.start, part.end):
                yield Fetched(index, A, rows(offset, offset + 1), offset + 1, offset + 1 == part.end)

    monkeypatch.setattr(fetching, "read_ranges", read_ranges)
    return trouble


def planned() -> QueryOffset:
    channel = Channel(next_offset=20, read=10, status=Status.ACTIVE, since_ms=0, counts=Counts(), axes=STATE)
    return QueryOffset(
        batch=3, group="g", state_key="00" * 32, now_ms=0, coalesced=CommonState(), channels={A: channel}
    )


def out_of_range(earliest: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError.of(A, 10, earliest, 99)


MISSING_RECORDS = {
    "some of it": (out_of_range(15), 1_900),
    "all of it": (out_of_range(99), 500),
    "the topic": (UnknownTopicError.of("t"), 500),
    "the topic, recreated": (TopicRecreatedError.of("t", "id-1", "id-2"), 500),
    "a damaged batch": (CorruptRecordError.of(A, 10, "is damaged", 12), 1_900),
}


@pytest.mark.parametrize("case", MISSING_RECORDS)
def test_a_recovery_read_passes_over_what_is_gone_whatever_fail_on_data_loss_says(case, log, caplog):
    log[10], watermark_ms = MISSING_RECORDS[case]
    assert OPTIONS.fail_on_data_loss
    recovery = Recovery(ScriptedCluster({}), [RANGE], OPTIONS, planned())
    assert recovery.advance(None)
    result = recovery.results()[A]
    assert (result.axes[0].emitted_ms, result.lossy) == (watermark_ms, True)
    assert "recovery read: " in caplog.text


def test_a_recovery_read_that_meets_every_offset_has_lost_nothing(log):
    assert not log
    recovery = Recovery(ScriptedCluster({}), [RANGE], OPTIONS, planned())
    assert recovery.advance(None)
    assert not recovery.results()[A].lossy


def test_offsets_without_a_record_may_have_been_compacted_since(monkeypatch):
    def read_ranges(_cluster, ranges, _columns, _isolation):
        yield Fetched(0, A, rows(10, 15), 15, done=False)
        yield Fetched(0, A, replace(rows(16, 20), next_offset=20), 20, done=True)

    monkeypatch.setattr(fetching, "read_ranges", read_ranges)
    recovery = Recovery(ScriptedCluster({}), [RANGE], OPTIONS, planned())
    assert recovery.advance(None)
    assert recovery.results()[A].lossy


def test_a_recovery_read_works_in_slices_and_says_what_is_left(log, monkeypatch, caplog):
    assert not log
    cluster, loader = ScriptedCluster({A: Log.of(20)}), StateLoader(HASTY)
    progress = []
    with caplog.at_level(logging.DEBUG, "keyedwm.source"):
        while (states := loader.load_states(cluster, planned(), at_once=False)) is None:
            progress.append(loader.recovery_progress())
    assert states[A].axes[0].emitted_ms == 1_900
    assert progress[0] == {"channels": 1, "offsets_left": 9}
    assert [one["offsets_left"] for one in progress] == [*range(9, 0, -1), 0]
    assert loader.recovered == 1
    assert loader.load_states(cluster, planned(), at_once=True) is states


def test_a_recovery_read_that_may_not_be_put_off_is_finished_at_once(log, monkeypatch):
    assert not log
    states = StateLoader(HASTY).load_states(ScriptedCluster({A: Log.of(20)}), planned(), at_once=True)
    assert states is not None
    assert states[A].axes[0].emitted_ms == 1_900


SECRET = {"stateSecret": "a secret of sixteen bytes or more"}


def committed_by(options: SourceOptions, end: QueryOffset) -> ScriptedCluster:
    """A cluster that holds what the tasks of a batch left with these options."""
    cluster = ScriptedCluster({A: Log.of(20)})
    split = Split(
        ranges=(RANGE,), control=(), stamps={}, batch=end.batch, channels=1, group=end.group,
        state_key=end.state_key, now_ms=0, source="s",
    )  # fmt: skip
    result = RangeResult(next_offset=20, counts=Counts(), axes={0: AxisState((900,), 900)})
    _commit_states(split, cluster, [(RANGE, result)], options)
    return cluster


def with_secret(**secret: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": "x:1", "subscribe": "t", **secret})


@pytest.mark.parametrize(
    ("writer_options", "read", "believed"),
    [({}, {}, True), (SECRET, SECRET, True), ({}, SECRET, False), (SECRET, {}, False),
     (SECRET, {"stateSecret": "another secret of sixteen bytes"}, False)],
    ids=["no secret", "one secret", "forged out of the progress", "read without", "another secret"],
)  # fmt: skip
def test_with_a_secret_who_saw_the_progress_cannot_forge_a_state(writer_options, read, believed, log):
    end = replace(planned(), settings=with_secret().settings)
    loader = StateLoader(with_secret(**read))
    (state,) = loader.load_states(committed_by(with_secret(**writer_options), end), end, at_once=True).values()
    assert (state.axes[0].emitted_ms == 900, loader.recovered) == (believed, 0 if believed else 1)


def test_the_secret_of_states_stands_in_no_offset_and_no_repr(monkeypatch):
    driver = Driver(monkeypatch, ScriptedCluster({A: Log.of(20)}), **SECRET)
    offset = driver.plan()
    texts = [repr(driver.options), json.dumps(driver.offset), repr(driver.planner.splits(driver.offset, driver.offset))]
    key = driver.options.state_key(offset.state_key)
    assert len(key) == KEY_BYTES
    for text in texts:
        assert SECRET["stateSecret"] not in text
        assert key.hex() not in text
    assert offset.state_key not in texts[2]
