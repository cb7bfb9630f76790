"""Validate the messages of a call before any of them is taken."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.config.validation import MS, number
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.text import words_of
from keyedwm.operators.plan_checks import FARTHEST_MS

_HIGHEST_OFFSET = 2**62


def validate_messages(schema: pa.Schema, rows: pa.Table, offset: str) -> pa.Table:
    """Return the columns of a schema; raise InputError if one does not fit. offset: the column with the offset."""
    if not isinstance(rows, (pa.Table, pa.RecordBatch)):
        raise InputError(f"messages are a table of Arrow, not a {type(rows).__name__}: give a pyarrow.Table")
    names = rows.schema.names
    for name in schema.names:
        if names.count(name) != 1:
            found = "no column" if name not in names else "more than one column"
            raise InputError(f"the messages have {found} {name!r}, they have {', '.join(names)}")
    cast = pa.Table.from_arrays([_cast(field, rows.column(field.name)) for field in schema], schema=schema)
    at = ints(contiguous(cast[offset].drop_null()))
    if len(at) and (at.min() < 0 or at.max() > _HIGHEST_OFFSET):
        raise InputError(
            f"the offsets in {offset!r} lie between {at.min()} and {at.max()}, they must be from 0 to 2^62"
        )
    return cast


def _cast(field: pa.Field, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if _kind(column.type) != _kind(field.type) and not pa.types.is_null(column.type):
        raise InputError(
            f"the messages' column {field.name!r} is of type {column.type}, the plan has {field.type}: cast it before"
        )
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InputError(
            f"the messages' column {field.name!r} is of type {column.type}, the plan has {field.type}: "
            f"{words_of(error)}"
        ) from error


def _kind(found: pa.DataType) -> str:
    """The kind of a type: values become another type of the same kind unchanged, or not at all."""
    if pa.types.is_dictionary(found):
        return _kind(found.value_type)
    if pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found):
        return "number"
    if pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return "text"
    if pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_fixed_size_binary(found):
        return "bytes"
    if pa.types.is_timestamp(found):
        return "time"
    return "date" if pa.types.is_date(found) else "nested" if pa.types.is_nested(found) else str(found)


def whole_ms(what: str, value: object) -> int:
    """Return a time as a plain number, also one of NumPy; raise InputError if it is none."""
    try:
        time_ms = number(what, value, MS)
    except OptionError as error:
        raise InputError(error.message) from error
    if abs(time_ms) >= 2**63:
        raise InputError(f"{what} is {value!r}: a number of 64 bits is expected")
    return time_ms


def validate_times(name: str, at: Ints) -> None:
    """Raise InputError if event times are beyond what results can hold."""
    if len(at) and max(-int(at.min()), int(at.max())) > FARTHEST_MS:
        raise InputError(
            f"event times in {name!r} lie between {at.min()} and {at.max()} ms, farther from 1970 than "
            f"{FARTHEST_MS} ms; is its unit right?"
        )
