"""Columns: int64 without nulls as a numpy array, anything else as one contiguous Arrow array; texts in valid UTF-8.

Rule: only the code that created a column may change it. Spark's strings can contain any bytes, since its cast of binary
to string checks nothing. Invalid UTF-8 becomes U+FFFD, as Java shows it; valid texts are not copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def text_of(values: pa.Array) -> pa.Array:
    """Return bytes as texts; invalid UTF-8 becomes U+FFFD."""
    kind = pa.large_string() if pa.types.is_large_binary(values.type) else pa.string()
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        coded = values.dictionary_encode()
        texts = [one.decode("utf-8", "replace") for one in coded.dictionary.to_pylist()]
        return pa.array(texts, kind).take(coded.indices)


def valid_texts(rows: pa.Table) -> pa.Table:
    """Return the rows with valid texts in every column, also within structs, lists and maps."""
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if not _is_valid(column):
            rows = rows.set_column(place, field, pa.chunked_array(map(valid_text, column.chunks), field.type))
    return rows


def valid_text(values: pa.Array) -> pa.Array:
    """Return the values with valid texts, also within structs, lists and maps."""
    if _is_valid(values):
        return values
    kind = values.type
    if pa.types.is_dictionary(kind):
        return valid_text(values.dictionary_decode()).dictionary_encode().cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text_of(values.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary()))
    missing = values.is_null()
    if pa.types.is_struct(kind):
        children = [valid_text(values.field(place)) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        values = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    borders, flat = pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), valid_text(pc.list_flatten(values))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(borders, flat.field(0), flat.field(1), type=kind, mask=missing)
    return pa.ListArray.from_arrays(borders, flat, type=kind, mask=missing)


def _is_valid(values: pa.Array | pa.ChunkedArray) -> bool:
    if not _has_text(values.type):
        return True
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(place).type) for place in range(kind.num_fields))
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
_UNITS = {"s": 1000, "ms": 1, "us": 1000, "ns": 1_000_000}
_EXACT_DIGITS = 15  # a double is exact for these digits and for 10**15: their quotient is rounded once
Column: TypeAlias = Any  # Ints | pa.Array: both have a length, and pyarrow carries no types


def values_at(column: Column, places: Ints) -> Column:
    """Return the values at these row positions."""
    return column[places] if isinstance(column, np.ndarray) else column.take(pa.array(places))


def concat(columns: Sequence[Column]) -> Column:
    """Concatenate columns of the same type."""
    if len(columns) == 1:
        return columns[0]
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return pa.concat_arrays(columns)


def to_arrow(column: Column) -> pa.Array:
    """Return the column as an Arrow array."""
    return pa.array(column) if isinstance(column, np.ndarray) else column


def contiguous(chunked: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return one Arrow array without dictionary encoding."""
    array = chunked
    if isinstance(chunked, pa.ChunkedArray):
        array = chunked.chunk(0) if chunked.num_chunks == 1 else pa.concat_arrays(chunked.chunks or [_none(chunked)])
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def number(name: str) -> pa.Field:
    """Return the field of a column that is a numpy array: int64, never null."""
    return pa.field(name, pa.int64(), nullable=False)


def from_arrow(field: pa.Field, chunked: pa.ChunkedArray) -> Column:
    """Return the column of an Arrow array (the inverse of `to_arrow`)."""
    array = contiguous(chunked)
    return ints(array) if _is_number(field) else array


def _is_number(field: pa.Field) -> bool:
    return pa.types.is_int64(field.type) and not field.nullable


def ints(array: pa.Array) -> Ints:
    """Return an int64 array without nulls as numpy, without a copy."""
    return array.to_numpy(zero_copy_only=True)


def sorted_distinct(numbers: NDArray) -> NDArray:
    """Return each number once, ascending. `np.unique` hashes first and needs 10 to 60 times the time."""
    ordered = np.sort(numbers, axis=None)
    return ordered[np.append(np.ones(min(1, len(ordered)), bool), ordered[1:] != ordered[:-1])]


def millis(times: pa.Array) -> Ints:
    """Return event times (int64 ms, or timestamps of any unit) as milliseconds, rounded down."""
    if pa.types.is_int64(times.type):
        return ints(times)
    ticks = ints(times.cast(pa.timestamp(times.type.unit)).view(pa.int64()))
    unit = times.type.unit
    if unit == "s":
        return ticks * _UNITS[unit]
    return ticks if unit == "ms" else ticks // _UNITS[unit]


def as_key(values: pa.Array) -> pa.Array:
    """Return the values with equal bytes for equal ones, as Spark groups: -0.0 becomes 0.0, and every NaN the same NaN.

    Invalid texts become valid, also texts in states of earlier versions.
    """
    if not pa.types.is_floating(values.type):
        return valid_text(values)
    plain = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(plain), pa.scalar(math.nan, values.type), plain)


def as_floats(values: pa.Array) -> pa.Array:
    """Return numbers as the nearest floats, as Spark does: integers beyond 2**53, and decimals, are rounded."""
    kind = values.type
    if not pa.types.is_decimal(kind):
        return values.cast(pa.float64(), safe=False)
    if not pa.types.is_decimal128(kind) or kind.precision > _EXACT_DIGITS or kind.scale < 0 or not len(values):
        return values.cast(pa.string()).cast(pa.float64())  # Arrow's own cast can be wrong in the last digit
    low_halves = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values)) : 2]
    missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(low_halves / 10.0**kind.scale, mask=missing)


def empty(field: pa.Field) -> Column:
    """Return a column without values."""
    return np.empty(0, np.int64) if _is_number(field) else pa.array([], field.type)


def _none(chunked: pa.ChunkedArray) -> pa.Array:
    return pa.array([], chunked.type)
