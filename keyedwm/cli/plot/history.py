"""A query's past as columns, by batch: the watermark of each partition, the coalesced one, rows and durations.

Rule: values only; page and picture show the same. All columns of a history have an entry for each of its batches; None
means unknown or absent. Times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

from keyedwm.core.errors import FormatError

Column = tuple[int | None, ...]
BUCKET = "#"  # in the name of an operator's channel, and in no topic's name


class Unit(Enum):
    """The unit of a column of bars."""

    ROWS = "rows"
    OFFSETS = "offsets"
    MS = "ms"


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """A partition, or another channel: its watermark and whether it was idle."""

    name: str
    watermarks_ms: Column
    idle: tuple[bool, ...]

    @property
    def last_ms(self) -> int | None:
        """Its newest watermark."""
        return next((ms for ms in reversed(self.watermarks_ms) if ms is not None), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """A figure of each batch."""

    title: str
    unit: Unit
    values: Column


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """One source of a query, or one query of a table, and one of its watermark keys. at_ms: the time of each batch.

    lowest_ms, highest_ms: over all partitions, including those without a track. highest_ms never goes back: if the
    tracks are partitions, it is the one watermark for all that Spark would have. left_out: partitions without a track.
    """

    name: str
    batches: tuple[int, ...]
    at_ms: tuple[int, ...]
    tracks: tuple[Track, ...]
    coalesced_ms: Column
    lowest_ms: Column
    highest_ms: Column
    bars: tuple[Bars, ...]
    left_out: int = 0

    def __post_init__(self) -> None:
        columns: list[Sequence] = [self.at_ms, self.coalesced_ms, self.lowest_ms, self.highest_ms]
        columns += [column for one in self.tracks for column in (one.watermarks_ms, one.idle)]
        columns += [one.values for one in self.bars]
        if any(len(column) != len(self.batches) for column in columns):
            raise FormatError(f"{self.name}: columns of another length than its {len(self.batches)} batches")

    @property
    def has_spark_watermark(self) -> bool:
        """Whether one watermark for all is known: buckets of an operator have only the coalesced watermark."""
        return not any(BUCKET in one.name for one in self.tracks)

    def idle_tracks(self) -> list[Track]:
        """Return the partitions that were idle at some time."""
        return [one for one in self.tracks if any(one.idle)]

    def slowest(self, most: int) -> History:
        """Keep tracks for `most` partitions: those with the lowest newest watermark, in the order of names.

        Partitions that never had a watermark are the slowest.
        """
        ranked = sorted(self.tracks, key=lambda one: (one.last_ms is not None, one.last_ms or 0))[:most]
        names = {one.name for one in ranked}
        tracks = tuple(one for one in self.tracks if one.name in names)
        return replace(self, tracks=tracks, left_out=self.left_out + len(self.tracks) - len(tracks))


@dataclass(frozen=True, kw_only=True, slots=True)
class Histories:
    """All content of the drawing. about: the meaning of the batches' times, and of the figures' times."""

    title: str
    about: str
    each: tuple[History, ...]

    def slowest(self, most: int) -> Histories:
        """Keep tracks for `most` partitions of each history."""
        return replace(self, each=tuple(one.slowest(most) for one in self.each))

    def summary(self) -> str:
        """Return a line about the content."""
        return "; ".join(_summary(one) for one in self.each)


def _summary(one: History) -> str:
    more = f" and the band of {one.left_out} more" if one.left_out else ""
    count = len(one.batches)
    return f"{one.name}, {count} batch{'' if count == 1 else 'es'}, {len(one.tracks)} partitions{more}"


def bounds_of(tracks: Sequence[Track], count: int) -> tuple[Column, Column]:
    """Return for `count` batches the lowest watermark of the partitions, and the highest so far of any partition."""
    rows = [[one.watermarks_ms[row] for one in tracks] for row in range(count)]
    known = [[ms for ms in row if ms is not None] for row in rows]
    lowest = tuple(min(row, default=None) for row in known)
    return lowest, tuple(accumulate((max(row, default=None) for row in known), _higher))


def _higher(one: int | None, other: int | None) -> int | None:
    return max((ms for ms in (one, other) if ms is not None), default=None)


def spans(flags: Sequence[bool], at_ms: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the spans in which flags are set: up to the first batch without a flag, or the last batch."""
    begin = None
    for flag, time_ms in zip(flags, at_ms, strict=True):
        if flag and begin is None:
            begin = time_ms
        elif not flag and begin is not None:
            yield begin, time_ms
            begin = None
    if begin is not None:
        yield begin, at_ms[-1]
