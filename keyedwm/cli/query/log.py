"""The newest planned batch of a checkpoint: its sources of keyedwm, and whether Spark has committed it.

Rule: it only reads. The time of a commit is the time of its file; Spark writes no time into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from keyedwm.core.errors import FormatError
from keyedwm.savepoint_files import Files
from pyspark_wm_source.values.checkpoint import newest, sources_of
from pyspark_wm_source.values.offsets import QueryOffset

OFFSETS, COMMITS = "offsets", "commits"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBatch:
    """A batch as Spark numbers it; sources: by their number. committed: the newest committed batch, and when (ms)."""

    number: int
    sources: Mapping[int, QueryOffset]
    committed: int | None
    committed_ms: int | None

    @property
    def is_committed(self) -> bool:
        """Whether this batch is the last committed one."""
        return self.committed is not None and self.committed >= self.number


def is_checkpoint(files: Files) -> bool:
    """Whether a query of Spark was started with this checkpoint; its first file is `metadata`."""
    return bool({"offsets", "metadata"} & set(files.names() or ()))


def newest_planned(files: Files) -> PlannedBatch | None:
    """Read the newest planned batch; None if there is none yet. Raises FormatError, UnavailableError."""
    number = newest(files.names(OFFSETS) or ())
    if number is None:
        return None
    # Read second, so that a batch that is committed between the two reads counts as committed.
    committed = newest(files.names(COMMITS) or ())
    return PlannedBatch(
        number=number,
        sources=_sources(files, number),
        committed=committed,
        committed_ms=None if committed is None else files.written_ms(f"{COMMITS}/{committed}"),
    )


def planned_numbers(files: Files) -> list[int]:
    """Return the batches that the log of offsets still has, in order."""
    return sorted(int(name) for name in files.names(OFFSETS) or () if name.isascii() and name.isdecimal())


def planned_before(files: Files, number: int) -> Mapping[int, QueryOffset] | None:
    """Return the sources of a batch before the newest; None if Spark has deleted it. Raises FormatError."""
    try:
        return _sources_written(files.for_spark, number, files.written_ms(f"{OFFSETS}/{number}"))
    except FileNotFoundError:
        return None


def unmoved_since(files: Files, batch: PlannedBatch, source: int, key: int) -> QueryOffset:
    """Return the oldest batch in the log since which the watermark of a key has not moved.

    The log keeps only some batches (spark.sql.streaming.minBatchesToRetain), so the watermark may be older.
    """
    oldest = batch.sources[source]
    watermark_ms = oldest.watermark_ms(key)
    numbers = [number for number in planned_numbers(files) if number < batch.number]
    first, last = 0, len(numbers)
    while first < last:  # a watermark never goes back, so the batches with this one are the last ones
        middle = (first + last) // 2
        older = _older(files, numbers[middle], source)
        if older is not None and older.channels and older.watermark_ms(key) == watermark_ms:
            oldest, last = older, middle
        else:
            first = middle + 1
    return oldest


def _older(files: Files, number: int, source: int) -> QueryOffset | None:
    try:
        return (planned_before(files, number) or {}).get(source)
    except FormatError:
        return None


@lru_cache(maxsize=128)
def _sources_written(place: str, number: int, written_ms: int | None) -> Mapping[int, QueryOffset]:
    """Read a file of the log, with a cache: a view that is refreshed needs the same files again."""
    if written_ms is None:
        raise FileNotFoundError(f"{place}/{OFFSETS}/{number}")
    return _sources(Files(place), number)


def _sources(files: Files, number: int) -> Mapping[int, QueryOffset]:
    name = f"{OFFSETS}/{number}"
    text = files.read(name)
    if text is None:
        raise FormatError(f"{files.place}/{name} has gone while it was read: look again")
    pairs = sources_of(text, f"{files.place}/{name}")
    return {source: planned for source, planned in pairs if planned is not None}
