"""A hash of values that is the same in every process and on every machine.

Rule: equal values of one type hash alike; numbers by their bits (0.0 for -0.0, and NaN is one value), text and bytes by
their bytes, anything else by its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Ints, as_key, contiguous
from keyedwm.runtime.compiled import compiled

Hashes: TypeAlias = NDArray[np.uint64]


def hashed(values: pa.Array) -> Hashes:
    """64 bits for each value; nulls must have been taken out."""
    found = values.type
    if pa.types.is_floating(found):
        numbers = contiguous(pc.cast(as_key(values), pa.float64())).to_numpy()
        return _mixed(numbers.view(np.uint64))
    if pa.types.is_integer(found):
        return _mixed(contiguous(values).to_numpy().astype(np.int64).view(np.uint64))
    if not (pa.types.is_binary(found) or pa.types.is_large_binary(found)):
        values = pc.cast(pc.cast(values, pa.string()), pa.binary())
    array = contiguous(pc.cast(values, pa.large_binary()))
    _, offsets, data = array.buffers()
    begins = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _mixed(_of_bytes(octets, begins))


def hashed_rows(columns: Sequence[pa.Array], rows: int) -> Hashes:
    """64 bits for each row by all of its columns; a null is a value like any other."""
    combined = np.zeros(rows, np.uint64)
    for column in columns:
        hashes = np.zeros(rows, np.uint64)
        hashes[column.is_valid().to_numpy(zero_copy_only=False)] = hashed(column.drop_null())
        combined = _mixed(combined ^ hashes)
    return combined


@compiled
def _mixed(numbers: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    hashes = np.empty(numbers.shape[0], np.uint64)
    for at in range(numbers.shape[0]):
        x = numbers[at] + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[at] = x ^ (x >> np.uint64(31))
    return hashes


@compiled
def _of_bytes(octets: NDArray[np.uint8], begins: Ints) -> Hashes:
    """FNV-1a of 64 bits."""
    hashes = np.empty(begins.shape[0] - 1, np.uint64)
    for at in range(hashes.shape[0]):
        x = np.uint64(0xCBF29CE484222325)
        for place in range(begins[at], begins[at + 1]):
            x = (x ^ np.uint64(octets[place])) * np.uint64(0x100000001B3)
        hashes[at] = x
    return hashes
