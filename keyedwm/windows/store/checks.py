"""What plans over kept messages refuse alike: columns that tell no messages apart, a retention that does not fit."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.options import span_text
from keyedwm.core.rows import REASON
from keyedwm.windows.aggregates.aggregate_function import column_type
from keyedwm.windows.store.retention import Retention


def check_record(schema: pa.Schema, record: tuple[str, str, str]) -> None:
    """Refuse columns that cannot tell messages apart; record: topic, partition and offset."""
    topic = column_type(schema, record[0])
    if not (pa.types.is_string(topic) or pa.types.is_large_string(topic)):
        raise OptionError(f"the column {record[0]!r} is of type {topic}: a topic is a text")
    for name in record[1:]:
        found = column_type(schema, name)
        if not pa.types.is_integer(found) or (name == record[2] and not pa.types.is_int64(found)):
            raise OptionError(
                f"the column {name!r} is of type {found}: a partition is a whole number and an offset an int64"
            )
    if REASON in schema.names:
        raise OptionError(f"a message's column cannot be called {REASON!r}: messages that are given back have it")


def check_retention(retention: Retention, size: int, *, is_rows: bool, called: str = "window") -> None:
    """Refuse a retention that does not fit windows of this size, or gap of sessions, as it is called."""
    if is_rows and retention.time_ms is not None:
        raise OptionError(
            "windows of rows are kept by number, not by time: give max_windows, max_messages or max_bytes"
        )
    if retention.time_ms is not None and retention.time_ms < size:
        raise OptionError(
            f"the retention of {span_text(retention.time_ms)} is shorter than the {called} of {span_text(size)}; give "
            "at least that"
        )
