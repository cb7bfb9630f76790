"""Lost and damaged records of a topic with barriers: failOnDataLoss decides about them, as it does without barriers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from keyedwm.core.errors import KeyedwmError
from keyedwm.core.inline import VERSION, UpstreamBarrier, encode_cut
from keyedwm.kafka.client.errors import CorruptRecordError, OffsetOutOfRangeError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import ColumnSelection, ControlRecord, no_records
from keyedwm.kafka.requests.fetch import Fetched, OffsetRange
from pyspark_wm_source.task import fetching
from tests.source.scripted import Driver, Log, ScriptedCluster

A = TopicPartition("t", 0)
BARRIER = 989
DAMAGED, BEHIND_DAMAGE = 970, 980


class BarrierLog:
    """Stands for `read_ranges`: a log with one barrier, a deleted beginning or a damaged batch."""

    def __init__(self, log: Log, *, is_damaged: bool) -> None:
        self.log = log
        self.is_damaged = is_damaged

    def __call__(
        self, _cluster: Any, ranges: Sequence[OffsetRange], columns: ColumnSelection, _isolation: Any
    ) -> Iterator[Fetched]:
        for index, part in enumerate(ranges):
            if part.start < self.log.first and part.start < part.end:
                raise OffsetOutOfRangeError.of(A, part.start, self.log.first, self.log.high)
            if self.is_damaged and part.start < BEHIND_DAMAGE and part.end > DAMAGED:
                offset = max(part.start, DAMAGED)
                error = CorruptRecordError.of(A, offset, "has a wrong checksum")
                error.next_offset = BEHIND_DAMAGE
                raise error
            barrier = encode_cut(UpstreamBarrier(query="q", snapshot=1, channels={}))
            barriers = (ControlRecord(BARRIER, VERSION, barrier),) if part.start <= BARRIER < part.end else ()
            records = replace(no_records(columns, part.end), control_records=barriers)
            yield Fetched(index, A, records, part.end, done=True)


def lossy(monkeypatch: pytest.MonkeyPatch, *, first: int, is_damaged: bool, **options: str) -> Driver:
    """Return a driver at offset 0 of a log with 1,000 offsets that begins at `first` by now."""
    log = Log.of(1_000)
    monkeypatch.setattr(fetching, "read_ranges", BarrierLog(log, is_damaged=is_damaged))
    d = Driver(monkeypatch, ScriptedCluster({A: log}), startingOffsets="earliest", propagate="true", **options)
    log.first = first
    return d


LOSSES = [(500, False), (980, False), (0, True), (500, True)]
LIMITS = [{}, {"maxOffsetsPerTrigger": "100"}]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("first", "is_damaged"), LOSSES)
def test_accepted_losses_before_a_barrier_do_not_end_the_query(monkeypatch, first, is_damaged, limit):
    d = lossy(monkeypatch, first=first, is_damaged=is_damaged, failOnDataLoss="false", **limit)
    assert d.plan().channels[A].next_offset == BARRIER + 1


@pytest.mark.parametrize(("first", "is_damaged"), LOSSES)
def test_losses_before_a_barrier_that_are_not_accepted_are_an_error(monkeypatch, first, is_damaged):
    d = lossy(monkeypatch, first=first, is_damaged=is_damaged, maxOffsetsPerTrigger="100")
    kind: type[KeyedwmError] = OffsetOutOfRangeError if first else CorruptRecordError
    with pytest.raises(kind, match=r"t-0"):
        d.plan()


def test_a_span_that_a_stale_log_end_hid_is_looked_through_again(monkeypatch):
    d = lossy(monkeypatch, first=0, is_damaged=False, failOnDataLoss="false")
    right = fetching.read_ranges
    stale = [OffsetOutOfRangeError.of(A, 936, 0, 940)]

    def stale_once(*arguments: Any) -> Iterator[Fetched]:
        if stale:
            raise stale.pop()
        yield from right(*arguments)

    monkeypatch.setattr(fetching, "read_ranges", stale_once)
    d.plan()
    d.cluster.logs[A].stable = d.cluster.logs[A].high = 1_001
    assert d.plan().channels[A].next_offset == BARRIER + 1
