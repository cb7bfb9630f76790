"""Cutting ranges into more tasks: `minPartitions` and `maxRecordsPerPartition`, as Spark's own source does.

Rule: a function of sizes alone, so that a replay cuts the same. Records per task first, then the number of tasks; small
ranges stay whole; the parts of a range follow each other without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def parts_of(sizes: Sequence[int], *, least_tasks: int | None, most_records: int | None) -> list[int]:
    """Return into how many parts each range (of that many offsets, at least 1) is cut."""
    parts = [1 if most_records is None else -(-size // most_records) for size in sizes]
    if least_tasks is None or sum(parts) >= least_tasks:
        return parts
    pieces = [size / count for size, count in zip(sizes, parts, strict=True)]
    small = [_share(piece, sum(sizes), least_tasks) == 1 for piece in pieces]
    large_total = sum(size for size, whole in zip(sizes, small, strict=True) if not whole)
    wanted = max(least_tasks - sum(count for count, whole in zip(parts, small, strict=True) if whole), 1)
    return [
        count if whole else min(size, count * _share(piece, large_total, wanted))
        for size, count, piece, whole in zip(sizes, parts, pieces, small, strict=True)
    ]


def cut(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Cut [start, end) into `parts` nearly equal ranges; the last ones take what does not divide."""
    if parts == 1:
        return [(start, end)]
    bounds = [start]
    for left in range(parts, 0, -1):
        bounds.append(bounds[-1] + (end - bounds[-1]) // left)
    return list(pairwise(bounds))


def _share(size: float, total: int, tasks: int) -> int:
    return max(int(size / total * tasks + 0.5), 1)
