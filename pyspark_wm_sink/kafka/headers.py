"""Headers that the sink adds to records, behind the rows' own ones: event times, and reasons of rejected rows.

Rule: whole columns. The last header of a name counts, so the sink's headers override the row's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType, TimestampType

from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.core.places import header_of, is_event_time
from keyedwm.core.rows import HEADERS

_US_PER_MS = 1_000


def with_headers(rows: pa.Table, names: Sequence[str], values: Sequence[pa.Array]) -> pa.Table:
    """Return the rows with a header of each name behind their own headers. values: one binary column for each name."""
    count, more = rows.num_rows, len(names)
    # Row by row: the first name's header, the second one's, and so on.
    order = pa.array(np.arange(count * more).reshape(more, count).T.ravel())
    pairs = [pa.array(names).take(pa.array(np.tile(np.arange(more), count))), pa.concat_arrays(values).take(order)]
    added = pa.StructArray.from_arrays(pairs, fields=list(HEADERS_TYPE.value_type))
    if HEADERS not in rows.column_names:
        return rows.append_column(HEADERS, _lists(np.full(count, more), added))
    at = rows.column_names.index(HEADERS)
    return rows.set_column(at, HEADERS, _behind(rows.column(at).cast(HEADERS_TYPE).combine_chunks(), added, more))


def _behind(headers: pa.Array, added: pa.Array, more: int) -> pa.Array:
    """Return each row's headers with `more` of the added ones behind them."""
    own = np.asarray(headers.value_lengths().fill_null(0)).astype(np.int64)
    flat = headers.flatten()
    of_row = np.repeat(np.arange(len(own)), own)
    # A stable sort by row puts each row's own headers before the added headers.
    rows = np.concatenate([of_row, np.repeat(np.arange(len(own)), more)])
    order = np.argsort(rows, kind="stable")
    return _lists(own + more, pa.concat_arrays([flat, added]).take(pa.array(order)))


def _lists(lengths: np.ndarray, pairs: pa.Array) -> pa.Array:
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS_TYPE)


def event_time_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns whose times are written; a column with such a name and another type is the user's own."""
    return tuple(f.name for f in schema.fields if is_event_time(f.name) and isinstance(f.dataType, TimestampType))


def with_event_times(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows with a header for each of the columns, behind their own headers.

    So a row that is passed from topic to topic keeps its present event time (`controlRows=inline`).
    """
    if not columns or not rows.num_rows:
        return rows
    return with_headers(rows, [header_of(name) for name in columns], [_text(rows.column(name)) for name in columns])


def _text(column: pa.ChunkedArray) -> pa.Array:
    """Return times as text: whole ms, finer ones floored as the source does; null stays null."""
    times = column.combine_chunks()
    us = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
    ms = pa.array(np.asarray(us.fill_null(0)) // _US_PER_MS, mask=np.asarray(us.is_null()))
    return ms.cast(pa.string()).cast(pa.binary())
