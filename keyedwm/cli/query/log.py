"""The newest planned batch of a checkpoint: its sources of keyedwm, and whether Spark has committed it.

Rule: it only reads. The time of a commit is that of its file; Spark writes none into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from keyedwm.core.errors import FormatError
from pyspark_wm_source.values.checkpoint import newest, sources_of
from pyspark_wm_source.values.offsets import QueryOffset


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBatch:
    """A batch as Spark numbers it; sources: by their number. committed: the newest committed batch, and when (ms)."""

    number: int
    sources: Mapping[int, QueryOffset]
    committed: int | None
    committed_ms: int | None

    @property
    def is_committed(self) -> bool:
        """Whether it is this batch that was committed last."""
        return self.committed is not None and self.committed >= self.number


def is_checkpoint(directory: Path) -> bool:
    """Whether a query of Spark was started with this checkpoint; its first file is `metadata`."""
    return (directory / "offsets").is_dir() or (directory / "metadata").is_file()


def newest_planned(directory: Path) -> PlannedBatch | None:
    """Read the newest planned batch; None if there is none yet. Raises FormatError."""
    number = newest(_names(directory / "offsets"))
    if number is None:
        return None
    # Second: a batch that is committed between the two looks is not taken for one that is not.
    committed = newest(_names(directory / "commits"))
    return PlannedBatch(
        number=number,
        sources=_sources(directory / "offsets" / str(number)),
        committed=committed,
        committed_ms=None if committed is None else _written_ms(directory / "commits" / str(committed)),
    )


def unmoved_since(directory: Path, batch: PlannedBatch, source: int, key: int) -> QueryOffset:
    """Return the oldest batch in the log with the same watermark of a key: since then it has not moved.

    The log keeps some batches only (spark.sql.streaming.minBatchesToRetain), so it may be older than that.
    """
    log, found = directory / "offsets", batch.sources[source]
    watermark_ms = found.watermark_ms(key)
    numbers = sorted(int(name) for name in _names(log) if name.isascii() and name.isdecimal())
    numbers = [number for number in numbers if number < batch.number]
    first, last = 0, len(numbers)
    while first < last:  # a watermark never goes back, so the batches with this one are the last ones
        middle = (first + last) // 2
        older = _older(log / str(numbers[middle]), source)
        if older is not None and older.channels and older.watermark_ms(key) == watermark_ms:
            found, last = older, middle
        else:
            first = middle + 1
    return found


def _older(path: Path, source: int) -> QueryOffset | None:
    """Read a batch before the newest one; None where Spark has deleted it by now."""
    try:
        return _sources_written(path, path.stat().st_mtime_ns).get(source)
    except (FileNotFoundError, FormatError):
        return None


@lru_cache(maxsize=32)
def _sources_written(path: Path, _written_ns: int) -> Mapping[int, QueryOffset]:
    """Read a file of the log once: a view that is refreshed asks for the same ones again."""
    return _sources(path)


def _sources(path: Path) -> Mapping[int, QueryOffset]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read as an offset log of Spark: {error}") from error
    return {source: planned for source, planned in sources_of(text) if planned is not None}


def _names(log: Path) -> list[str]:
    return [path.name for path in log.iterdir()] if log.is_dir() else []


def _written_ms(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:  # Spark deletes old ones
        return None
