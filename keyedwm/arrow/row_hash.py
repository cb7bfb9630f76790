"""The content of rows as one number, which neither the order of rows nor their cut into tables changes.

Rule: every row is hashed alone, and the hashes are added up modulo 2**64. Values are hashed by their bits and bytes, so
equal tables of one schema have equal sums in every process. A sum tells accidents apart, not forgeries. A row of one
column that is empty (a text or list of length 0) counts 0: who compares sums compares the number of rows, too.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.runtime.compiled import compiled

Hashes: TypeAlias = NDArray[np.uint64]
MODULUS = 1 << 64
_NULL = np.uint64(0x9AE16A3B2F90404F)
_BYTES = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)


def content_sum(rows: pa.Table) -> int:
    """The sum of the rows' hashes; the columns count in the order in which the table has them."""
    total = 0
    for batch in rows.to_batches():
        joined = np.zeros(batch.num_rows, np.uint64)
        for column in batch.columns:
            joined = _joined(joined, _hashes(column))
        total += int(joined.sum(dtype=np.uint64))
    return total % MODULUS


def _hashes(values: pa.Array) -> Hashes:
    """64 bits for each value; all nulls have the same."""
    hashes = _of_any(values)
    if values.null_count:
        hashes[values.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _of_any(values: pa.Array) -> Hashes:
    """As `_hashes`, with anything for null."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), _NULL)
    if isinstance(values, pa.ExtensionArray) or pa.types.is_dictionary(kind):
        return _hashes(values.dictionary_decode() if pa.types.is_dictionary(kind) else values.storage)
    if pa.types.is_struct(kind):
        joined = np.ones(len(values), np.uint64)
        for child in values.flatten():
            joined = _joined(joined, _hashes(child))
        return joined
    if any(is_list(kind) for is_list in _LISTS):
        return _of_lists(values)
    if any(is_bytes(kind) for is_bytes in _BYTES):
        return _of_texts(values)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    return _of_fixed(values)


def _of_lists(values: pa.Array) -> Hashes:
    if pa.types.is_map(values.type):
        entries = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(entries))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return _in_runs(_hashes(pc.list_flatten(values)), begins)


def _of_texts(values: pa.Array) -> Hashes:
    if not pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary() if not pa.types.is_large_string(values.type) else pa.large_binary())
    _, offsets, data = values.buffers()
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    begins = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return _of_bytes(_octets(data), begins)


def _of_fixed(values: pa.Array) -> Hashes:
    """Values of one width, by their bytes; a null's bytes may be anything."""
    if pa.types.is_floating(values.type):  # a NaN's bits say how it was computed, which differs from run to run
        values = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    octets = values.type.bit_width // 8
    data = _octets(values.buffers()[1])[values.offset * octets : (values.offset + len(values)) * octets]
    if octets in {1, 2, 4, 8}:
        return _mixed(data.view(f"<u{octets}").astype(np.uint64))
    return _of_bytes(data, np.arange(len(values) + 1, dtype=np.int64) * octets)


def _octets(data: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


@compiled
def _mix(x: np.uint64) -> np.uint64:
    """The finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _mixed(numbers: Hashes) -> Hashes:
    hashes = np.empty(numbers.shape[0], np.uint64)
    for at in range(numbers.shape[0]):
        hashes[at] = _mix(numbers[at] + np.uint64(0x9E3779B97F4A7C15))
    return hashes


@compiled
def _joined(before: Hashes, hashes: Hashes) -> Hashes:
    """What came before, and one column more."""
    joined = np.empty(before.shape[0], np.uint64)
    for at in range(min(before.shape[0], hashes.shape[0])):
        joined[at] = _mix(before[at] * np.uint64(0x9E3779B97F4A7C15) + hashes[at])
    return joined


@compiled
def _in_runs(hashes: Hashes, begins: NDArray[np.int64]) -> Hashes:
    """The hashes of each run in their order, and how many there are."""
    joined = np.empty(begins.shape[0] - 1, np.uint64)
    for run in range(joined.shape[0]):
        x = np.uint64(begins[run + 1] - begins[run])
        for at in range(begins[run], min(begins[run + 1], hashes.shape[0])):
            x = _mix(x * np.uint64(0x9E3779B97F4A7C15) + hashes[at])
        joined[run] = x
    return joined


@compiled
def _of_bytes(octets: NDArray[np.uint8], begins: NDArray[np.int64]) -> Hashes:
    """Eight bytes at a time, then the rest, then the length."""
    hashes = np.empty(begins.shape[0] - 1, np.uint64)
    for row in range(hashes.shape[0]):
        place, end = begins[row], min(begins[row + 1], octets.shape[0])
        x = np.uint64(end - place) * np.uint64(0x9E3779B97F4A7C15)
        while place + 8 <= end:
            word = np.uint64(0)
            for at in range(8):
                word |= np.uint64(octets[place + at]) << np.uint64(8 * at)
            x = _mix(x + word)
            place += 8
        word = np.uint64(0)
        for at in range(place, end):
            word = (word << np.uint64(8)) | np.uint64(octets[at])
        hashes[row] = _mix(x + word)
    return hashes
