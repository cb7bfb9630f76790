"""Where a record's event time is, and in which unit: the options `eventTime` and `eventTimeUnit` as values.

Rule: values only. `timestamp` is the record's own, `json:PATH` lies in the value, `key:PATH` in the key, `header:NAME`
in a header (the last one of that name). WRITTEN is what `propagate=true` reads by default: the header that the sink has
written, and the record's timestamp where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from keyedwm.core.json_path import WANTED, json_path, json_steps
from keyedwm.core.options import wrong
from keyedwm.core.written_time import header_of


class Place(Enum):
    """Which part of the record holds the event time."""

    TIMESTAMP = "timestamp"
    VALUE = "json"
    KEY = "key"
    HEADER = "header"
    WRITTEN = "written"


class Unit(Enum):
    """How the event time is written: a number of these since the epoch, or ISO 8601 text."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"
    ISO = "iso"


# What users call the units elsewhere, and our names.
UNIT_WORDS: Mapping[str, str] = MappingProxyType({
    "second": "s", "seconds": "s", "sec": "s", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
    "micros": "us", "microsecond": "us", "microseconds": "us", "nanos": "ns", "nanosecond": "ns", "nanoseconds": "ns",
    "iso8601": "iso", "iso-8601": "iso", "timestamp": "iso", "string": "iso",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class EventTime:
    """One axis's event time; `path`: steps into a JSON text (a name or an array index), or the header's name."""

    place: Place = Place.TIMESTAMP
    path: tuple[str | int, ...] = ()
    unit: Unit = Unit.MILLISECONDS

    @staticmethod
    def parse(text: str, unit: Unit) -> EventTime:
        """Read `timestamp`, `json:$.a.b`, `key:$.a` or `header:NAME`; raises OptionError for anything else."""
        kind, _, rest = text.strip().partition(":")
        if kind.lower() == "timestamp" and not rest:
            if unit is not Unit.MILLISECONDS:
                raise wrong("eventTimeUnit", unit.value, "a record's own timestamp is in ms: leave the option out")
            return EventTime()
        if kind.lower() == "header" and rest:
            return EventTime(Place.HEADER, (rest,), unit)
        if kind.lower() in {"json", "key"} and rest:
            return EventTime(Place(kind.lower()), _steps(text, rest.strip()), unit)
        raise wrong("eventTime", text, "timestamp, json:$.a.b, key:$.a or header:NAME is expected")

    @staticmethod
    def written(column: str) -> EventTime:
        """What the sink writes of a column of event times with `controlRows=inline`."""
        return EventTime(Place.WRITTEN, (header_of(column),))

    @property
    def text(self) -> str:
        """As the option names it."""
        if self.place is Place.TIMESTAMP:
            return self.place.value
        if self.place is Place.WRITTEN:
            return f"header:{self.path[0]}, else timestamp"
        return f"{self.place.value}:{self.path[0] if self.place is Place.HEADER else json_path(self.path)}"


def _steps(text: str, path: str) -> tuple[str | int, ...]:
    steps = json_steps(path)
    if steps is None:
        raise wrong("eventTime", text, WANTED)
    return steps
