"""MurmurHash3 (x64, 128 bits) of whole columns, fed as Apache DataSketches feeds it: its sketches store these hashes.

Rule: a value's hash is the one that the library's `update` computes. An integer is hashed as 8 bytes, a float as the 8
bytes of a double (-0.0 as 0.0, every NaN alike). A text is hashed as UTF-8, bytes as they are. Empty texts and bytes
have no hash. The seed (9001) is the library's and Spark's. Source: datasketches.apache.org, and A. Appleby's
MurmurHash3 (public domain).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Column, Flags, Ints, as_key, contiguous
from keyedwm.arrow.hashing import Hashes, Octets, octets_of
from keyedwm.runtime.compiled import compiled

SEED = 9001
SEED_HASH = 0x93CC  # the low 16 bits of the seed's hash: theta sketches with equal ones can be merged
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)


def takes(kind: pa.DataType) -> bool:
    """Return whether DataSketches has a hash for values of this type."""
    types = pa.types
    is_number = (types.is_integer(kind) and not types.is_uint64(kind)) or types.is_floating(kind)
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return is_number or is_text or types.is_binary(kind) or types.is_large_binary(kind)


def murmured(values: pa.Array) -> tuple[Flags, Hashes, Hashes]:
    """Mark the values that have a hash (neither null nor empty), and return both halves of these hashes."""
    values = contiguous(values)
    takes_part = values.is_valid()
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not is_number:
        takes_part = pc.and_(takes_part, pc.fill_null(pc.greater(pc.binary_length(values), 0), False))  # noqa: FBT003
    some = values.filter(takes_part)
    first, second = _of_words(_as_64_bits(some)) if is_number else _of_octets(*octets_of(as_key(some)))
    return takes_part.to_numpy(zero_copy_only=False), first, second


def _as_64_bits(numbers: Column) -> NDArray[np.uint64]:
    if pa.types.is_floating(numbers.type):
        return as_key(numbers.cast(pa.float64())).to_numpy().view(np.uint64)
    return numbers.cast(pa.int64()).to_numpy().view(np.uint64)


@compiled
def _rotated(x: np.uint64, by: int) -> np.uint64:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@compiled
def _finished(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@compiled
def _ended(h1: np.uint64, h2: np.uint64, size: int) -> tuple[np.uint64, np.uint64]:
    h1 ^= np.uint64(size)
    h2 ^= np.uint64(size)
    h1 += h2
    h2 += h1
    h1, h2 = _finished(h1), _finished(h2)
    h1 += h2
    return h1, h2 + h1


@compiled
def _of_words(numbers: NDArray[np.uint64]) -> tuple[Hashes, Hashes]:
    """The hashes of 64-bit numbers, as 8 bytes each, the lowest byte first."""
    first, second = np.empty(numbers.shape[0], np.uint64), np.empty(numbers.shape[0], np.uint64)
    for at in range(numbers.shape[0]):
        h1 = np.uint64(SEED) ^ (_rotated(numbers[at] * _C1, 31) * _C2)
        first[at], second[at] = _ended(h1, np.uint64(SEED), 8)
    return first, second


@compiled
def _word(octets: Octets, begin: int, end: int) -> np.uint64:
    word = np.uint64(0)
    for at in range(min(8, end - begin)):
        word |= np.uint64(octets[begin + at]) << np.uint64(8 * at)
    return word


@compiled
def _of_octets(octets: Octets, begins: Ints) -> tuple[Hashes, Hashes]:
    """The hashes of byte strings: sixteen bytes at a time, then the rest."""
    rows = begins.shape[0] - 1
    first, second = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
    for row in range(rows):
        place, end = begins[row], min(begins[row + 1], octets.shape[0])
        size = end - place
        h1 = h2 = np.uint64(SEED)
        while place + 16 <= end:
            h1 ^= _rotated(_word(octets, place, end) * _C1, 31) * _C2
            h1 = (_rotated(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
            h2 ^= _rotated(_word(octets, place + 8, end) * _C2, 33) * _C1
            h2 = (_rotated(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
            place += 16
        if place + 8 < end:
            h2 ^= _rotated(_word(octets, place + 8, end) * _C2, 33) * _C1
        if place < end:
            h1 ^= _rotated(_word(octets, place, end) * _C1, 31) * _C2
        first[row], second[row] = _ended(h1, h2, size)
    return first, second
