"""The records of a sample that each lag would have cost, and the silences of its partitions.

Rule: whole columns, numbers only. A record is late if its event time is below the watermark just before it. That
watermark is the highest event time so far less the lag: the highest of all records (Spark's one watermark), of the
record's partition, or of its key. The record is dropped if its window ended at or before that watermark. So records are
in the order of arrival.

Local times without a zone are read as UTC. Nearly all records of a partition then show the zone: their event times are
the same whole number of half hours away from the records' timestamps, less a short way to Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyedwm.core.text import listed

Numbers = NDArray[np.int64]

NEVER = int(np.iinfo(np.int64).min)  # stands for "no event time yet", and is below all event times
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
LAGS_MS = (
    0, SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS,
)  # fmt: skip
# From the source's own default up: a shorter timeout would only call slow producers idle.
TIMEOUTS_MS = (MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS)


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """The records under one kind of watermark. rows: how many are counted.

    ahead_ms, closed_ms: sorted; how far the highest event time was above a record's own time, and above its window's
    end. Only counted records with an earlier event time are included, as others are never late.
    """

    rows: int
    ahead_ms: Numbers
    closed_ms: Numbers

    @classmethod
    def of(cls, event_ms: Numbers, before_ms: Numbers, selection: NDArray[np.bool_], window_ms: int) -> Losses:
        """before_ms: the highest event time before each record, NEVER if there is none."""
        known = selection & (before_ms != NEVER)
        event, before = event_ms[known], before_ms[known]
        end = event - event % window_ms + window_ms
        return cls(int(np.count_nonzero(selection)), np.sort(before - event), np.sort(before - end))

    def late(self, lag_ms: int) -> int:
        """The number of records that are late with this lag."""
        return len(self.ahead_ms) - int(np.searchsorted(self.ahead_ms, lag_ms, "right"))

    def dropped_count(self, lag_ms: int) -> int:
        """The number of records whose window has ended before they arrive, with this lag."""
        return len(self.closed_ms) - int(np.searchsorted(self.closed_ms, lag_ms, "left"))

    def least_lag_ms(self, late: int) -> int:
        """Return the smallest lag in whole seconds that leaves at most `late` late records."""
        least = int(self.ahead_ms[-1 - late]) if late < len(self.ahead_ms) else 0
        return -(-max(least, 0) // SECOND_MS) * SECOND_MS


def highest_before(values: Numbers, group: Numbers) -> Numbers:
    """Return the highest value of the same group before each row, NEVER for the first of its group."""
    return _running(values, group, inclusive=False)


def highest_so_far(values: Numbers, group: Numbers) -> Numbers:
    """Return the highest value of the same group up to and with each row."""
    return _running(values, group, inclusive=True)


def _running(values: Numbers, group: Numbers, *, inclusive: bool) -> Numbers:
    if not len(values):
        return values
    order = np.argsort(group, kind="stable")
    # Ranks replace the values: together with the group's number they fit easily in 64 bits.
    distinct, rank = np.unique(values[order], return_inverse=True)
    first = np.r_[True, np.diff(group[order]) != 0]
    base = (np.cumsum(first) - 1) * len(distinct)
    top = distinct[np.maximum.accumulate(rank + base) - base]
    if not inclusive:
        top = np.where(first, NEVER, np.r_[NEVER, top[:-1]])
    result = np.empty_like(top)
    result[order] = top
    return result


def arrivals(timestamp_ms: Numbers, partition: Numbers, now_ms: int) -> Numbers:
    """Return when each record of the partitions (rows in order of offset) arrived, never falling within a partition.

    A timestamp that is missing or later than now is no arrival: its record counts as arrived with the record before.
    """
    usable = np.where((timestamp_ms >= 0) & (timestamp_ms <= now_ms), timestamp_ms, 0)
    return highest_so_far(usable, partition)


def silences(arrival_ms: Numbers, partition: Numbers, begin_ms: int) -> Numbers:
    """Return for each record how long its partition was silent before it, at first since the sample's begin."""
    before = highest_before(arrival_ms, partition)
    return np.maximum(arrival_ms - np.where(before == NEVER, begin_ms, before), 0)


class Flow(NamedTuple):
    """Records in the order of arrival, with the facts that decide which of them idleness makes late.

    of_all_ms, own_ms: the highest event time before each record, of all partitions and of its own partition.
    """

    event_ms: Numbers
    partition: Numbers
    silence_ms: Numbers
    of_all_ms: Numbers
    own_ms: Numbers


def late_with_idleness(flow: Flow, lag_ms: int, timeout_ms: int) -> NDArray[np.bool_]:
    """Mark the records that can be late if a partition is idle after `timeout_ms`.

    While a partition is idle, the others may raise the watermark up to the highest event time of all, less the lag. The
    watermark never goes back. This watermark counts for the next records of the partition.
    """
    returned = highest_so_far(np.where(flow.silence_ms > timeout_ms, flow.of_all_ms, NEVER), flow.partition)
    top = np.maximum(flow.own_ms, returned)
    return (top != NEVER) & (flow.event_ms < np.where(top == NEVER, 0, top - lag_ms))


_STEP_MS = HOUR_MS // 2
_FURTHEST_MS = 14 * HOUR_MS  # the zones that there are
_LONGEST_WAY_MS, _CLOCKS_MS = 5 * MINUTE_MS, MINUTE_MS
_NEARLY_ALL = 0.9
_FEWEST = 10


def zone_of(event_ms: Numbers, timestamp_ms: Numbers) -> int | None:
    """Return how far event times are ahead (behind: below 0), as local times of a zone would be.

    None without a sign of a zone.
    """
    known = timestamp_ms >= 0
    ahead = event_ms[known] - timestamp_ms[known]
    if len(ahead) < _FEWEST:
        return None
    offset = -(-(ahead - _CLOCKS_MS) // _STEP_MS) * _STEP_MS  # the next one that a record can have come from
    near = (offset - ahead <= _LONGEST_WAY_MS) & (np.abs(offset) <= _FURTHEST_MS)
    values, counts = np.unique(offset[near], return_counts=True)
    if not len(values) or counts.max() < _NEARLY_ALL * len(ahead):
        return None
    offset_ms = int(values[counts.argmax()])
    return offset_ms or None


def zones_of(event_ms: Numbers, timestamp_ms: Numbers, partition: Numbers) -> dict[int, int]:
    """Return the likely zone's offset in ms of each partition that shows one. partition: sorted."""
    if not len(partition):
        return {}
    numbers, first = np.unique(partition, return_index=True)
    each = zip(numbers.tolist(), np.split(event_ms, first[1:]), np.split(timestamp_ms, first[1:]), strict=True)
    offsets = {number: zone_of(events, timestamps) for number, events, timestamps in each}
    return {number: offset for number, offset in offsets.items() if offset is not None}


def zone_sentences(zones: Mapping[int, int]) -> Iterator[str]:
    """Return a sentence for each offset with the partitions that show it."""
    for offset_ms in sorted(set(zones.values())):
        names = listed([number for number, one in sorted(zones.items()) if one == offset_ms])
        side = "ahead of" if offset_ms > 0 else "behind"
        hours, minutes = divmod(abs(offset_ms) // MINUTE_MS, 60)
        zone = f"UTC{'+' if offset_ms > 0 else '-'}{hours:02}:{minutes:02}"
        late = "" if offset_ms > 0 else ", or those of a feed that comes so late"
        yield (
            f"event times of partition {names} are {hours}:{minutes:02} hours {side} the records' timestamps, as local "
            f"times of {zone} are that are read as UTC{late}: write them with their zone, or in UTC"
        )
