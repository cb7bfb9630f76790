"""The rows of a task as they are written: cast to the table's types, and checked by the rules of its columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from keyedwm.core.errors import InputError
from pyspark_wm_sink.tables.library_errors import one_line
from pyspark_wm_sink.tables.row_rules import RowRules, row_place

_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_ZONE = "spark.sql.session.timeZone"


def as_written(rows: pa.Table, schema: pa.Schema, rules: RowRules, *, has_offsets: bool) -> pa.Table:
    """Return the columns of this schema, cast to it; raises InputError for the first row that breaks a rule."""
    columns = []
    for field in schema:
        try:
            columns.append(_cast(rows.column(field.name), field))
        except pa.ArrowInvalid as error:  # noqa: PERF203 - of a few columns
            index = _first_refused(rows.column(field.name), field)
            raise InputError(
                f"column {field.name} has a value that the table's type {field.type} cannot hold ({one_line(error)}) "
                f"in a row{row_place(rows, index, has_offsets=has_offsets)}: leave such rows out"
            ) from error
    return rules.applied(pa.table(columns, schema=schema), has_offsets=has_offsets)


def _first_refused(column: pa.ChunkedArray, field: pa.Field) -> int:
    """Return the index of the first value that the cast of a whole column rejects."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(column.slice(low, middle - low), field)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    if pa.types.is_date(column.type) and pa.types.is_timestamp(field.type) and field.type.tz is not None:
        midnight = column.cast(pa.timestamp(field.type.unit))
        local = pc.assume_timezone(midnight, _session_zone(field.name), ambiguous="earliest", nonexistent="latest")
        return local.cast(field.type)
    if pa.types.is_string(column.type) and isinstance(field.type, pa.UuidType):
        return _uuids(column)
    return column.cast(field.type)


def _uuids(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Read texts such as 123e4567-e89b-12d3-a456-426614174000; raises ArrowInvalid for a text that is no UUID."""
    wrong = pc.invert(pc.match_substring_regex(texts, _UUID))
    if pc.any(wrong).as_py():
        raise pa.ArrowInvalid(f"{texts.filter(wrong)[0].as_py()!r} is no UUID")
    digits = "".join(texts.drop_null().to_pylist()).replace("-", "")
    packed = np.frombuffer(bytes.fromhex(digits), "V16")
    places = np.cumsum(texts.is_valid().combine_chunks().to_numpy(zero_copy_only=False)) - 1
    unique = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(packed), [None, pa.py_buffer(packed.tobytes())])
    values = unique.take(pa.array(places, mask=texts.is_null().combine_chunks().to_numpy(zero_copy_only=False)))
    return pa.chunked_array([pa.ExtensionArray.from_storage(pa.uuid(), values)])


def _session_zone(column: str) -> str:
    """The zone in which Spark's session reads dates, as its cast does."""
    context = TaskContext.get()
    zone = None if context is None else context.getLocalProperty(_ZONE)
    if zone is None:
        raise InputError(
            f"column {column} is a date, and a timestamp in the table, but the session does not say in which zone its "
            f"day begins: set {_ZONE}, or cast the column"
        )
    return zone
