"""Sources of a query by their topics; sources that read the same are one group.

Rule: Spark creates a separate source for each use of a frame, so a topic with three uses has three sources in the log.
They plan separately, so their batches may end at different offsets; the records and the watermark options are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from keyedwm.core.text import listed
from pyspark_wm_source.values.offsets import QueryOffset

_MOST_TOPICS = 3


def alike(sources: Mapping[int, QueryOffset]) -> list[tuple[int, ...]]:
    """Group the numbers of sources that read the same partitions with the same watermark options, in order."""
    groups: dict[object, list[int]] = {}
    for number, planned in sorted(sources.items()):
        same = tuple(sorted(planned.channels)), planned.settings, planned.idle_timeout
        groups.setdefault(same if planned.channels else number, []).append(number)
    return [tuple(numbers) for numbers in groups.values()]


def slowest_of(numbers: Sequence[int], watermarks_ms: Mapping[int, Iterable[int | None]]) -> int:
    """Return the source that represents a group: the one without a watermark, or with the lowest."""
    return min(numbers, key=lambda number: [(ms is not None, ms or 0) for ms in watermarks_ms[number]])


def title_of(numbers: Sequence[int], topics: Iterable[str], slowest: int | None = None) -> str:
    """Return a title for a group of sources, with numbers and topics. slowest: the source that represents the group."""
    topics = sorted(set(topics))
    of = f" ({listed(topics, _MOST_TOPICS)})" if topics else ""
    if len(numbers) == 1:
        return f"source {numbers[0]}{of}"
    *first, last = map(str, numbers)
    which = "" if slowest is None else f" read the same; the slowest, source {slowest}, is shown"
    return f"sources {', '.join(first)} and {last}{of}{which}"
