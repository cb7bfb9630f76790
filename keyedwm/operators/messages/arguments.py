"""Validation of plans, messages, times, ranges and values, before anything is read or stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.config.validation import MS, number
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REASON
from keyedwm.core.text import short_repr, span_text, words_of
from keyedwm.operators.aggregates.aggregate_function import column_type
from keyedwm.operators.frames.plan import RowGapWindow
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.plan_checks import FARTHEST_MS, check_length

# A place on the axis (event time in ms, or offset), or an event time and the offset within it.
Edge: TypeAlias = "int | tuple[int, int]"

_BITS = 64


def checked_range(start: object, end: object) -> tuple[int, int]:
    """Return both edges as plain numbers; raise OptionError if one is no number, or the second is before the first."""
    low, high = _place("start", start), _place("end", end)
    if low > high:
        raise _reversed_edges(start, end)
    return low, high


def checked_edges(start: object, end: object) -> tuple[Edge, Edge]:
    """Return both edges in plain numbers; each may be a time and an offset. See `checked_range`."""
    low, high = _edge("start", start), _edge("end", end)
    first, behind = (edge if isinstance(edge, tuple) else (edge,) for edge in (low, high))
    shared = min(len(first), len(behind))
    if first[:shared] > behind[:shared]:
        raise _reversed_edges(start, end)
    return low, high


def checked_values(by: Sequence[str], join_keys: object, key: object) -> dict[str, Any]:
    """Return the values that columns must have: `join_keys` for any columns, `key` for key columns."""
    mappings = []
    for argument, value in (("join_keys", join_keys), ("key", key)):
        if value is not None and not isinstance(value, Mapping):
            raise OptionError(
                f"{argument} is {short_repr(value)}: columns and their values are expected, such as {{'key': 'a'}}"
            )
        mappings.append(dict(value or {}))
    for name, value in mappings[1].items():
        if name not in by:
            raise OptionError(f"{name!r} is no by column, they are {', '.join(by) or 'none'}")
        if name in mappings[0] and mappings[0][name] != value:
            raise OptionError(
                f"{name!r} is asked for {short_repr(value)} in key and for {short_repr(mappings[0][name])} in "
                "join_keys: give one"
            )
    return {**mappings[0], **mappings[1]}


def typed_value(name: str, kind: pa.DataType, value: object) -> pa.Scalar:
    """Return a value in a column's type; raise OptionError if it does not fit."""
    try:
        scalar = pa.scalar(value, kind)
        if not pa.types.is_integer(kind) or scalar.as_py() == value:  # Arrow cuts fractions off
            return scalar
        problem = None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = error
    raise OptionError(
        f"{name!r} is asked for {short_repr(value)}: a value of its type, {kind}, is expected"
    ) from problem


def _edge(name: str, value: object) -> Edge:
    if isinstance(value, tuple):
        if len(value) != 2:
            raise OptionError(f"{name} is {short_repr(value)}: a number of ms is expected, or (ms, offset)")
        return _place(name, value[0]), _place(f"the offset of {name}", value[1])
    return _place(name, value)


def _place(name: str, value: object) -> int:
    place = number(name, value, MS)
    if not -(2 ** (_BITS - 1)) <= place < 2 ** (_BITS - 1):
        raise OptionError(f"{name} is {place}: a number of {_BITS} bits is expected")
    return place


def _reversed_edges(start: object, end: object) -> OptionError:
    return OptionError(
        f"start is {short_repr(start)}, and end, {short_repr(end)}, lies before it: give the earlier one first"
    )


_HIGHEST_OFFSET = 2**62


def validate_messages(schema: pa.Schema, rows: pa.Table, offset: str) -> pa.Table:
    """Return the columns of a schema; raise InputError if one does not fit. offset: the column with the offset."""
    if not isinstance(rows, (pa.Table, pa.RecordBatch)):
        raise InputError(f"messages are a table of Arrow, not a {type(rows).__name__}: give a pyarrow.Table")
    names = rows.schema.names
    for name in schema.names:
        if names.count(name) != 1:
            how_many = "no column" if name not in names else "more than one column"
            raise InputError(f"the messages have {how_many} {name!r}, they have {', '.join(names)}")
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


def _kind(kind: pa.DataType) -> str:
    """Return the kind of a type: a cast to another type of the same kind keeps a value or fails."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytes"
    if pa.types.is_timestamp(kind):
        return "time"
    return "date" if pa.types.is_date(kind) else "nested" if pa.types.is_nested(kind) else str(kind)


def whole_ms(name: str, value: object) -> int:
    """Return a time as a plain number, also a time of NumPy; raise InputError if it is no number."""
    try:
        time_ms = number(name, value, MS)
    except OptionError as error:
        raise InputError(error.message) from error
    if abs(time_ms) >= 2**63:
        raise InputError(f"{name} is {value!r}: a number of 64 bits is expected")
    return time_ms


def validate_times(name: str, at: Ints) -> None:
    """Raise InputError if event times are beyond what results can hold."""
    if len(at) and max(-int(at.min()), int(at.max())) > FARTHEST_MS:
        raise InputError(
            f"event times in {name!r} lie between {at.min()} and {at.max()} ms, farther from 1970 than "
            f"{FARTHEST_MS} ms; is its unit right?"
        )


def check_gap(window: object) -> None:
    """Raise OptionError for sessions with a gap of each row: stored messages need one common gap."""
    if isinstance(window, RowGapWindow):
        raise OptionError(
            f"session(gap_column={window.gap_column!r}): sessions that keep their messages have one gap: give "
            "session(gap), or leave the store out"
        )


def check_record(schema: pa.Schema, record: tuple[str, str, str]) -> None:
    """Raise OptionError for columns that cannot identify a message; record: topic, partition and offset."""
    topic = column_type(schema, record[0])
    if not (pa.types.is_string(topic) or pa.types.is_large_string(topic)):
        raise OptionError(f"the column {record[0]!r} is of type {topic}: a topic is a text")
    for name in record[1:]:
        kind = column_type(schema, name)
        if not pa.types.is_integer(kind) or (name == record[2] and not pa.types.is_int64(kind)):
            raise OptionError(
                f"the column {name!r} is of type {kind}: a partition is a whole number and an offset an int64"
            )
    if REASON in {name.lower() for name in schema.names}:
        raise OptionError(
            f"a message's column cannot be called {REASON!r}: rejected messages have a column of that name"
        )


def check_retention(retention: Retention, size: int, *, is_rows: bool, called: str = "window") -> None:
    """Raise OptionError for a retention below the size of windows, or below the gap of sessions. called: for errors."""
    if is_rows and retention.time_ms is not None:
        raise OptionError(
            "windows of rows are kept by number, not by time: give max_windows, max_messages or max_bytes"
        )
    if retention.time_ms is not None and retention.time_ms < size:
        raise OptionError(
            f"the retention of {span_text(retention.time_ms)} is shorter than the {called} of {span_text(size)}; give "
            "at least that"
        )


def check_early(*, by_event: bool, is_rows: bool) -> None:
    """Raise OptionError for impossible early panes. by_event: their interval is event time."""
    if by_event and is_rows:
        raise OptionError("windows of rows have no event time: early panes come by the clock or after so many rows")


def check_late(every_ms: int | None, rows: int | None, *, by_event: bool, is_rows: bool) -> None:
    """Raise OptionError for impossible late panes. by_event: their interval is event time."""
    if every_ms is not None and every_ms < 1:
        raise OptionError(f"late panes every {every_ms} ms: the interval must be 1 ms or more")
    check_length("interval between late panes", every_ms or 0)
    if by_event and every_ms is None:
        raise OptionError("late panes by event time need an interval: give late_every")
    if by_event and is_rows:
        raise OptionError("windows of rows have no event time, and their messages never come late: leave late_by out")
    if rows is not None and (rows < 1 or every_ms is not None):
        also = " and every so often" if every_ms is not None else ""
        raise OptionError(f"late panes after {rows} messages{also}: 1 or more is expected, or an interval in its place")
