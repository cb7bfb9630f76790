"""Where a record's event time is, and in which unit: the options `eventTime` and `eventTimeUnit` as values.

Rule: values only. `timestamp` is the record's own, `json:PATH` lies in the value, `key:PATH` in the key, `header:NAME`
in a header (the last one of that name). WRITTEN is what `propagate=true` reads by default: the header that the sink has
written, and the record's timestamp where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from keyedwm.core.json_path import json_path
from keyedwm.core.written_time import header_of


class Place(Enum):
    """The part of the record that holds the event time."""

    TIMESTAMP = "timestamp"
    VALUE = "json"
    KEY = "key"
    HEADER = "header"
    WRITTEN = "written"


class OnBadTime(Enum):
    """The fate of a record whose event time cannot be read (`onBadEventTime`); each is counted."""

    NULL = "null"  # the row has no event time
    FAIL = "fail"  # the query ends
    REJECT = "reject"  # the record is no event: it is given back as it came, with the reason


class Unit(Enum):
    """How the event time is written: a number of these since the epoch, or ISO 8601 text."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"
    ISO = "iso"


@dataclass(frozen=True, slots=True)
class EventTime:
    """One axis's event time; `path`: steps into a JSON text (a name or an array index), or the header's name."""

    place: Place = Place.TIMESTAMP
    path: tuple[str | int, ...] = ()
    unit: Unit = Unit.MILLISECONDS

    @staticmethod
    def written(column: str) -> EventTime:
        """The header that the sink writes of a column of event times with `controlRows=inline`."""
        return EventTime(Place.WRITTEN, (header_of(column),))

    @property
    def text(self) -> str:
        """As the option names it."""
        if self.place is Place.TIMESTAMP:
            return self.place.value
        if self.place is Place.WRITTEN:
            return f"header:{self.path[0]}, else timestamp"
        return f"{self.place.value}:{self.path[0] if self.place is Place.HEADER else json_path(self.path)}"
