"""Writes the event times of rows beside them, as headers (`controlRows=inline`): the next query takes them from there.

Rule: whole columns. Our headers follow the rows' own headers, and the last header of a name counts. So a row that is
passed from topic to topic has the event time that it has now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType, TimestampType

from keyedwm.core.places import header_of, is_event_time
from pyspark_wm_sink.kafka.header_lists import with_headers

_US_PER_MS = 1_000


def event_time_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns whose times are written; one of such a name and another type is the user's own."""
    return tuple(f.name for f in schema.fields if is_event_time(f.name) and isinstance(f.dataType, TimestampType))


def with_event_times(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows with a header for each of the columns, behind those that they have."""
    if not columns or not rows.num_rows:
        return rows
    return with_headers(rows, [header_of(name) for name in columns], [_text(rows.column(name)) for name in columns])


def _text(column: pa.ChunkedArray) -> pa.Array:
    """Return times as text: whole ms, finer ones floored as the source does; null stays null."""
    times = column.combine_chunks()
    us = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
    ms = pa.array(np.asarray(us.fill_null(0)) // _US_PER_MS, mask=np.asarray(us.is_null()))
    return ms.cast(pa.string()).cast(pa.binary())
