"""Event times of another zone: local times that were written without their zone and are read as UTC.

Rule: numbers only. A zone is told by what nearly all records of a partition have in common: their event times are the
same whole number of half hours away from the records' timestamps, less a short way to Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from keyedwm.cli.advise.losses import HOUR_MS, MINUTE_MS, Numbers
from keyedwm.core.text import listed

_STEP_MS = HOUR_MS // 2
_FURTHEST_MS = 14 * HOUR_MS  # the zones that there are
_LONGEST_WAY_MS, _CLOCKS_MS = 5 * MINUTE_MS, MINUTE_MS
_NEARLY_ALL = 0.9
_FEWEST = 10


def zone_of(event_ms: Numbers, timestamp_ms: Numbers) -> int | None:
    """Return how far event times are ahead (behind: below 0) as those of a zone would be, None if there is no sign."""
    known = timestamp_ms >= 0
    ahead = event_ms[known] - timestamp_ms[known]
    if len(ahead) < _FEWEST:
        return None
    offset = -(-(ahead - _CLOCKS_MS) // _STEP_MS) * _STEP_MS  # the next one that a record can have come from
    near = (offset - ahead <= _LONGEST_WAY_MS) & (np.abs(offset) <= _FURTHEST_MS)
    values, counts = np.unique(offset[near], return_counts=True)
    if not len(values) or counts.max() < _NEARLY_ALL * len(ahead):
        return None
    found = int(values[counts.argmax()])
    return found or None


def zones_of(event_ms: Numbers, timestamp_ms: Numbers, partition: Numbers) -> dict[int, int]:
    """Return the sign of a zone, in ms, of each partition that has one. partition: sorted."""
    if not len(partition):
        return {}
    numbers, first = np.unique(partition, return_index=True)
    each = zip(numbers.tolist(), np.split(event_ms, first[1:]), np.split(timestamp_ms, first[1:]), strict=True)
    found = {number: zone_of(events, timestamps) for number, events, timestamps in each}
    return {number: offset for number, offset in found.items() if offset is not None}


def zone_sentences(zones: Mapping[int, int]) -> Iterator[str]:
    """Say which partitions look so, offset by offset."""
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
