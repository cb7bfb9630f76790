"""The bucket of a key, and bucket ids that Spark places on one shuffle partition each.

Rule: a key's bucket depends only on its values and on the number of buckets, never on the process, the machine or the
batch. The lowest id is always 0, so that bucket 0 finds its state whatever the number of buckets is. The bucket of a
joined row stands in `join/exchange_side.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.hashing import bucket_hashes
from keyedwm.core.errors import OptionError

MOST_BUCKETS = 100_000
_SPARK_SEED = 42
_MASK = 0xFFFFFFFF
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def bucket_ids(count: int) -> list[int]:
    """Return `count` bucket ids, each of which Spark's hash partitioning puts on a different one of `count` partitions.

    Raises OptionError for more buckets than a query can have.
    """
    if count > MOST_BUCKETS:
        raise OptionError(
            f"option buckets: {count} is wrong; {MOST_BUCKETS} is the most, some for each core are enough"
        )
    ids_by_partition: dict[int, int] = {}
    candidate = 0
    while len(ids_by_partition) < count:
        ids_by_partition.setdefault(spark_partition(candidate, count), candidate)
        candidate += 1
    return sorted(ids_by_partition.values())


def spark_partition(value: int, partitions: int) -> int:
    """Return the shuffle partition of a row whose only grouping column is the int `value` (Murmur3, seed 42)."""
    mixed = _rotated(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotated(_SPARK_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4  # the length of an int in bytes
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return (h - (1 << 32) if h >> 31 else h) % partitions


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & _MASK


def bucket_of(columns: Sequence[pa.ChunkedArray], rows: int, count: int) -> NDArray[np.int64]:
    """Return the number of the bucket, 0 to `count` - 1, of each row by its key columns."""
    if count == 1 or not columns:
        return np.zeros(rows, np.int64)
    combined = np.zeros(rows, np.uint64)
    for column in columns:
        combined = (combined ^ bucket_hashes(column)) * _MIX
        combined ^= combined >> np.uint64(32)
    return (combined % np.uint64(count)).astype(np.int64)
