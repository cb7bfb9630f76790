"""The headers in which a sink with `controlRows=inline` writes the event times of its rows, for `propagate=true`.

Rule: a header is named after the column, `keyedwm.event_time` or `keyedwm.event_time_AXIS`; its value is the event
time in ms since the epoch, as decimal text, null for a row that has none. It is not the record's timestamp, because
brokers delete records by that.
"""

from __future__ import annotations

from keyedwm.core.rows import EVENT_TIME

_PREFIX = "keyedwm."


def header_of(column: str) -> str:
    """Return the header of a column of event times."""
    return _PREFIX + column


def column_of(header: str) -> str:
    """Return the column of event times that a header is of."""
    return header.removeprefix(_PREFIX)


def is_event_time(column: str) -> bool:
    """Whether a column is named as the source names event times: `event_time`, or `event_time_AXIS`."""
    return column == EVENT_TIME or column.startswith(f"{EVENT_TIME}_")
