"""64-bit hashes of keys and of rows' content, and the hashes that choose the buckets of keys.

Rule: a hash depends on values alone, never on the process, the machine or how rows are cut into tables.

- `hashed`, `hashed_rows`: equal keys have equal hashes, also 0.0 and -0.0, and all NaNs. Shards and indexes of the
  state and approximate counts use these hashes.
- `content_sum`: the same rows, bit by bit, have the same sum in any order. The sum identifies a batch that is written
  again. It detects accidents, not forgeries. A row that has only texts and lists of length 0 adds 0 to the sum. So
  compare the number of rows, too.
- `bucket_hashes`: `operators.buckets` chooses buckets by these hashes of keys.

States and ledgers since 0.2.0 contain these hashes, so no hash ever changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Ints, as_key, contiguous
from keyedwm.runtime.compiled import compiled

Hashes: TypeAlias = NDArray[np.uint64]
Octets: TypeAlias = NDArray[np.uint8]
MODULUS = 1 << 64
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NULL_CONTENT, _NULL_KEY = np.uint64(0x9AE16A3B2F90404F), np.uint64(0x9E3779B97F4A7C15)
_BYTES = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)


def hashed(values: pa.Array) -> Hashes:
    """Return each value's hash: of the bits of a number, else of the bytes or the text. values: without nulls."""
    values = as_key(contiguous(values)) if pa.types.is_floating(values.type) else contiguous(values)
    kind = values.type
    if pa.types.is_floating(kind):
        return _mixed(values.cast(pa.float64()).to_numpy().view(np.uint64))
    if pa.types.is_integer(kind):
        return _mixed(values.to_numpy().astype(np.int64).view(np.uint64))
    if not any(is_bytes(kind) for is_bytes in _BYTES):
        values = values.cast(pa.string())
    return _mixed(_by_byte(*octets_of(values)))


def hashed_rows(columns: Sequence[pa.Array], rows: int) -> Hashes:
    """Return one hash of all columns for each row; a null counts as a value."""
    combined = np.zeros(rows, np.uint64)
    for column in columns:
        hashes = np.zeros(rows, np.uint64)
        hashes[column.is_valid().to_numpy(zero_copy_only=False)] = hashed(column.drop_null())
        combined = _mixed(combined ^ hashes)
    return combined


def bucket_hashes(column: pa.ChunkedArray) -> Hashes:
    """Return the hash that chooses the bucket of each value, which may be null: the hash that pandas computes."""
    from pandas.util import hash_array  # the import takes 0.2 s; a planner that hashes nothing skips it

    values = as_key(contiguous(column))
    if pa.types.is_integer(values.type) or pa.types.is_temporal(values.type) or pa.types.is_boolean(values.type):
        hashes = hash_array(_integers(values))
    else:
        if pa.types.is_decimal(values.type):
            values = values.cast(pa.string())
        coded = pc.dictionary_encode(values)
        distinct = coded.dictionary.to_numpy(zero_copy_only=False)
        of_distinct = np.append(hash_array(distinct, categorize=False), _NULL_KEY)
        hashes = of_distinct[pc.fill_null(coded.indices, len(distinct)).to_numpy(zero_copy_only=False)]
    if values.null_count:
        hashes = np.where(values.is_valid().to_numpy(zero_copy_only=False), hashes, _NULL_KEY)
    return hashes


def _integers(values: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def content_sum(rows: pa.Table) -> int:
    """Return the sum of the rows' hashes modulo 2**64; the columns count in the order in which the table has them."""
    total = 0
    for batch in rows.to_batches():
        joined = np.zeros(batch.num_rows, np.uint64)
        for column in batch.columns:
            joined = _joined(joined, _contents(column))
        total += int(joined.sum(dtype=np.uint64))
    return total % MODULUS


def _contents(values: pa.Array) -> Hashes:
    """The hash of each value's content; all nulls have the same hash."""
    hashes = _of_any(values)
    if values.null_count:
        hashes[values.is_null().to_numpy(zero_copy_only=False)] = _NULL_CONTENT
    return hashes


def _of_any(values: pa.Array) -> Hashes:
    """The hash of each value's content; a null's hash may be any number."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), _NULL_CONTENT)
    if isinstance(values, pa.ExtensionArray) or pa.types.is_dictionary(kind):
        return _contents(values.dictionary_decode() if pa.types.is_dictionary(kind) else values.storage)
    if pa.types.is_struct(kind):
        joined = np.ones(len(values), np.uint64)
        for child in values.flatten():
            joined = _joined(joined, _contents(child))
        return joined
    if any(is_list(kind) for is_list in _LISTS):
        return _of_lists(values)
    if any(is_bytes(kind) for is_bytes in _BYTES):
        return _by_word(*octets_of(values))
    return _of_fixed(values.cast(pa.uint8()) if pa.types.is_boolean(kind) else values)


def _of_lists(values: pa.Array) -> Hashes:
    if pa.types.is_map(values.type):
        entries = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(entries))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return _in_runs(_contents(pc.list_flatten(values)), begins)


def _of_fixed(values: pa.Array) -> Hashes:
    """The hashes of values of a fixed width, by their bytes; a null's bytes may be any."""
    if pa.types.is_floating(values.type):  # a NaN's bits depend on how it was computed, which differs between runs
        values = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    octets = values.type.bit_width // 8
    data = _octets(values.buffers()[1])[values.offset * octets : (values.offset + len(values)) * octets]
    if octets in {1, 2, 4, 8}:
        return _mixed(data.view(f"<u{octets}").astype(np.uint64))
    return _by_word(data, np.arange(len(values) + 1, dtype=np.int64) * octets)


def octets_of(values: pa.Array) -> tuple[Octets, Ints]:
    """Return the bytes of texts or binary values, and the begin of each value, plus the end of the last."""
    is_large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    _, offsets, data = values.buffers()
    begins = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    return _octets(data), begins[values.offset : values.offset + len(values) + 1].astype(np.int64)


def _octets(data: pa.Buffer | None) -> Octets:
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
        hashes[at] = _mix(numbers[at] + _STEP)
    return hashes


@compiled
def _joined(before: Hashes, hashes: Hashes) -> Hashes:
    """Combine the rows' hashes so far with the hashes of the next column."""
    joined = np.empty(before.shape[0], np.uint64)
    for at in range(min(before.shape[0], hashes.shape[0])):
        joined[at] = _mix(before[at] * _STEP + hashes[at])
    return joined


@compiled
def _in_runs(hashes: Hashes, begins: Ints) -> Hashes:
    """Combine the hashes of each run, in their order, and their number."""
    joined = np.empty(begins.shape[0] - 1, np.uint64)
    for run in range(joined.shape[0]):
        x = np.uint64(begins[run + 1] - begins[run])
        for at in range(begins[run], min(begins[run + 1], hashes.shape[0])):
            x = _mix(x * _STEP + hashes[at])
        joined[run] = x
    return joined


@compiled
def _by_word(octets: Octets, begins: Ints) -> Hashes:
    """Hash the length, then eight bytes at a time, then the rest."""
    hashes = np.empty(begins.shape[0] - 1, np.uint64)
    for row in range(hashes.shape[0]):
        place, end = begins[row], min(begins[row + 1], octets.shape[0])
        x = np.uint64(end - place) * _STEP
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


@compiled
def _by_byte(octets: Octets, begins: Ints) -> Hashes:
    """The 64-bit FNV-1a hash of each value's bytes."""
    hashes = np.empty(begins.shape[0] - 1, np.uint64)
    for at in range(hashes.shape[0]):
        x = np.uint64(0xCBF29CE484222325)
        for place in range(begins[at], begins[at + 1]):
            x = (x ^ np.uint64(octets[place])) * np.uint64(0x100000001B3)
        hashes[at] = x
    return hashes
