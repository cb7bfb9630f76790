"""Checks shared by plans over kept messages: columns that tell messages apart, and a retention that fits."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import REASON
from keyedwm.core.text import span_text
from keyedwm.operators.aggregates.aggregate_function import column_type
from keyedwm.operators.frames.plan import RowGapWindow
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.plan_checks import check_length


def check_gap(window: object) -> None:
    """Refuse sessions with a gap of each row: messages wait for a gap that all of them have."""
    if isinstance(window, RowGapWindow):
        raise OptionError(
            f"session(gap_column={window.gap_column!r}): sessions that keep their messages have one gap: give "
            "session(gap), or leave the store out"
        )


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
    if REASON in {name.lower() for name in schema.names}:
        raise OptionError(
            f"a message's column cannot be called {REASON!r}: rejected messages have a column of that name"
        )


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


def check_early(*, by_event: bool, is_rows: bool) -> None:
    """Refuse early panes that cannot be. by_event: their interval is one of event time."""
    if by_event and is_rows:
        raise OptionError("windows of rows have no event time: early panes come by the clock or after so many rows")


def check_late(every_ms: int | None, rows: int | None, *, by_event: bool, is_rows: bool) -> None:
    """Refuse late panes that cannot be. by_event: the interval is one of event time."""
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
