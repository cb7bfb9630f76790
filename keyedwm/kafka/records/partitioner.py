"""The partition that a record goes to, as the Java producer decides it.

Rule: only a key's bytes decide, by murmur2 and modulo, so readers find a key where any Java producer puts it. Records
without a key stay on one partition for a run of records, then go to the next partition. The caller chooses where runs
begin.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.kafka.records.record_columns import column_bytes
from keyedwm.runtime.compiled import compiled

STICKY_RUN = 1_000


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """Kafka's 32-bit murmur2 of each key's bytes (binary or string); 0 for null."""
    octets = column_bytes(keys, len(keys))
    out = np.zeros(len(keys), np.uint32)
    _hash_all(octets.starts, octets.lengths, octets.data, out)
    return out


def partition_of(keys: pa.Array | None, rows: int, partitions: int, sticky_from: int) -> NDArray[np.int32]:
    """Return the partition of each row: `toPositive(murmur2(key)) % partitions`, or sticky if the key is null.

    sticky_from: the number of earlier records without a key, or the first run's partition times STICKY_RUN.
    """
    hashed = (
        None if keys is None else ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    )
    if keys is not None and hashed is not None and not keys.null_count:
        return hashed
    bare = np.ones(rows, np.bool_) if keys is None else keys.is_null().to_numpy(zero_copy_only=False)
    sticky = ((sticky_from + np.cumsum(bare) - 1) // STICKY_RUN % partitions).astype(np.int32)
    return sticky if hashed is None else np.where(bare, sticky, hashed)


@compiled
def _hash_all(starts, lengths, data, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        if lengths[i] >= 0:
            out[i] = _hash(data, starts[i], lengths[i])


@compiled
def _hash(data, start, length):  # type: ignore[no-untyped-def]
    """Murmur2 as in org.apache.kafka.common.utils.Utils, all in 32 bits."""
    m, mask = np.uint64(0x5BD1E995), np.uint64(0xFFFFFFFF)
    h = np.uint64(0x9747B28C) ^ np.uint64(length)
    quads = length // 4
    for w in range(quads):
        at = start + 4 * w
        k = (
            np.uint64(data[at])
            | np.uint64(data[at + 1]) << np.uint64(8)
            | np.uint64(data[at + 2]) << np.uint64(16)
            | np.uint64(data[at + 3]) << np.uint64(24)
        )
        k = (k * m) & mask
        k = ((k ^ (k >> np.uint64(24))) * m) & mask
        h = ((h * m) & mask) ^ k
    rest, at = length - 4 * quads, start + 4 * quads
    if rest == 3:
        h ^= np.uint64(data[at + 2]) << np.uint64(16)
    if rest >= 2:
        h ^= np.uint64(data[at + 1]) << np.uint64(8)
    if rest >= 1:
        h = ((h ^ np.uint64(data[at])) * m) & mask
    h = ((h ^ (h >> np.uint64(13))) * m) & mask
    return np.uint32(h ^ (h >> np.uint64(15)))
