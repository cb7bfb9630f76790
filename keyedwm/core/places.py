"""The places of event times and fields in a record, as options name them.

Rule: values only. `timestamp` is the record's own timestamp, `json:PATH` lies in the value, `key:PATH` in the key,
`header:NAME` in a header (the last one of that name). SINK_HEADER is what `propagate=true` reads by default: the header
that the sink has written, and the record's timestamp where there is none. That header is named after the column,
`keyedwm.event_time` or `keyedwm.event_time_AXIS`; its value is the event time in ms since the epoch, as decimal text,
null for a row that has none. The sink writes no event time as a record's timestamp, because brokers delete records by
their timestamps. A field is a column of the source, or a value inside of one: `offset`, `key::string`,
`json:$.amount::double`. A type after `::`, as in Spark's SQL, says how the text is read; without one a value out of
JSON is a string.

One event of the year 3000 must not move a watermark there, as every later event would be late (`FutureTime`). An event
is too far ahead of the append time that a broker gave the record, else of the clock of the batch's planning. That clock
reading is in the offset, so a replay decides the same. `avro:PATH` and `proto:PATH` are fields of a value with a
schema, `key.avro:PATH` and `key.proto:PATH` fields of a key with a schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import EVENT_TIME, KEY, SCHEMA_GUID, SCHEMA_ID, VALUE
from keyedwm.core.text import listed, nearest, one_line, shortened

_PREFIX = "keyedwm."
_NAME_SHOWN = 40  # characters of a member's name in a message
_JSON = {VALUE: "json", KEY: "key"}  # the names of a column's JSON in options
# A plain name is written after a dot. States identify a place by its text, so this pattern never changes.
_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*")
_STEP = re.compile(r"\.((?:[^\W\d]|\$)[\w$-]*)|\['([^']+)'\]|\[\"([^\"]+)\"\]|\[(\d{1,9})\]")
_BRANCH = re.compile(r"\[([A-Za-z_][\w.]*)\]")


def header_of(column: str) -> str:
    """Return the header of a column of event times."""
    return _PREFIX + column


def column_of(header: str) -> str:
    """Return the column of event times of a header."""
    return header.removeprefix(_PREFIX)


def is_event_time(column: str) -> bool:
    """Whether a column has the source's name of event times: `event_time`, or `event_time_AXIS`."""
    return column == EVENT_TIME or column.startswith(f"{EVENT_TIME}_")


def json_steps(path: str) -> tuple[str | int, ...] | None:
    """Return the steps (a member's name or an array index) of a path, None if it is no path."""
    at, steps = 1, list[str | int]()
    while path.startswith("$") and at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        name = step[1] or step[2] or step[3]
        steps.append(name if name is not None else int(step[4]))
        at = step.end()
    return tuple(steps) or None


def branch_of(step: str | int) -> str | None:
    """Return the branch of a union that a step names, in a path into a value with a schema; None for a field."""
    return step[1:-1] if isinstance(step, str) and step.startswith("[") else None


def schema_steps(path: str) -> tuple[str | int, ...] | None:
    """Return the steps (a field, an element's index, or a branch in brackets) of a path into a value with a schema.

    None if it is no such path. No field of a schema has the form of a branch.
    """
    at, steps = 1, list[str | int]()
    while path.startswith("$") and at < len(path):
        branch = _BRANCH.match(path, at)
        step = branch or _STEP.match(path, at)
        if step is None:
            return None
        name = step[0] if branch is not None else step[1] or step[2] or step[3]
        if branch is None and name is not None and branch_of(name) is not None:
            return None
        steps.append(name if name is not None else int(step[4]))
        at = step.end()
    return tuple(steps) or None


def schema_path(steps: Sequence[str | int]) -> str:
    """Write steps as a path, the reverse of `schema_steps`."""
    return "$" + "".join(step if isinstance(step, str) and branch_of(step) else _step_text(step) for step in steps)


def json_path(steps: tuple[str | int, ...]) -> str:
    """Write steps as a path, the reverse of `json_steps`."""
    return "$" + "".join(_step_text(step) for step in steps)


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN.fullmatch(step):
        return f".{step}"
    return f'["{step}"]' if "'" in step else f"['{step}']"


def path_advice(
    head: str, steps: Sequence[str | int], depth: int, names: Sequence[str], elements: int | None = None
) -> str:
    """For a path without a value, name the likely path, or the present members or elements.

    head: the option's word before the path. depth: how many of the steps exist. names: the names of the present
    members. elements: the length of the longest list, None if there is no list.
    """
    parent, step = f"{head}:{one_line(json_path(tuple(steps[:depth])))}", steps[depth]
    neighbour = nearest(step, names) if isinstance(step, str) else None
    if neighbour is not None:
        return f"did you mean {head}:{one_line(json_path((*steps[:depth], neighbour, *steps[depth + 1 :])))}?"
    if names:
        return f"{parent} has the members {listed([shortened(one_line(name), _NAME_SHOWN) for name in names])}"
    if elements is not None:
        return f"{parent} is a list of at most {elements} elements, which are {parent}[0] and so on"
    return f"{parent} is neither an object nor a list"


class Place(Enum):
    """The part of the record that holds the event time."""

    TIMESTAMP = "timestamp"
    VALUE = "json"
    KEY = "key"
    HEADER = "header"
    AVRO = "avro"
    PROTO = "proto"
    KEY_AVRO = "key.avro"
    KEY_PROTO = "key.proto"
    SINK_HEADER = "written"

    @property
    def column(self) -> str | None:
        """The column of the record, key or value, that contains it; None for other places."""
        if self in {Place.KEY, Place.KEY_AVRO, Place.KEY_PROTO}:
            return KEY
        return VALUE if self in {Place.VALUE, *SCHEMA_PLACES} else None

    @property
    def language(self) -> Place | None:
        """The language of the key or value: AVRO, PROTO, or VALUE for JSON; None for other places."""
        if self in {Place.VALUE, Place.KEY}:
            return Place.VALUE
        if self in {Place.AVRO, Place.KEY_AVRO}:
            return Place.AVRO
        return Place.PROTO if self in {Place.PROTO, Place.KEY_PROTO} else None

    @property
    def has_schema(self) -> bool:
        """Whether it is in a key or a value with a schema."""
        return self.language in SCHEMA_PLACES


SCHEMA_PLACES = (Place.AVRO, Place.PROTO)


def prefix_of(column: str, language: Place) -> str:
    """Return the beginning of a place, in options, in a key or a value of a language."""
    if column == VALUE:
        return language.value
    return KEY if language is Place.VALUE else f"{KEY}.{language.value}"


class OnBadTime(Enum):
    """The fate of a record whose event time cannot be read (`onBadEventTime`); each is counted."""

    NULL = "null"  # the row has no event time
    FAIL = "fail"  # the query ends
    REJECT = "reject"  # the record is no event: the column `rejected` returns it unchanged, with the reason


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
    def of_sink_header(column: str) -> EventTime:
        """Return the place of the header in which the sink writes a column of event times (`controlRows=inline`)."""
        return EventTime(Place.SINK_HEADER, (header_of(column),))

    @property
    def text(self) -> str:
        """As the option names it."""
        if self.place is Place.TIMESTAMP:
            return self.place.value
        if self.place is Place.SINK_HEADER:
            return f"header:{self.path[0]}, else timestamp"
        if self.place.has_schema:
            return f"{self.place.value}:{schema_path(self.path)}"
        return f"{self.place.value}:{self.path[0] if self.place is Place.HEADER else json_path(self.path)}"


class FieldType(Enum):
    """The type of a field in a key, a value or JSON; the last four are for values with a schema."""

    STRING = "string"
    BIGINT = "bigint"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"
    BINARY = "binary"


TEXT_TYPES = (FieldType.STRING, FieldType.BIGINT, FieldType.DOUBLE)
_MOST_DIGITS = 38  # as Spark's


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal number of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 0 <= self.scale <= self.precision <= _MOST_DIGITS or self.precision < 1:
            raise OptionError(f"{self.value} is no type: 1 to {_MOST_DIGITS} digits, and no more behind the point")

    @property
    def value(self) -> str:
        """As options name it."""
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Field:
    """A field: a column, and the steps into the JSON text there. kind: None for the unchanged column."""

    column: str
    path: tuple[str | int, ...] = ()
    kind: FieldType | DecimalType | None = None

    @property
    def text(self) -> str:
        """As options name it."""
        place = f"{_JSON[self.column]}:{json_path(self.path)}" if self.path else self.column
        return place if self.kind is None else f"{place}::{self.kind.value}"


@dataclass(frozen=True, slots=True)
class SchemaField(Field):
    """A field of a key or a value with a schema in a language; without a path the id of the value's schema."""

    language: Place = Place.AVRO

    @property
    def text(self) -> str:
        """As options name it."""
        if not self.path or self.kind is None:
            return SCHEMA_ID if self.kind is FieldType.BIGINT else SCHEMA_GUID
        return f"{prefix_of(self.column, self.language)}:{schema_path(self.path)}::{self.kind.value}"


SCHEMA_ID_FIELD = SchemaField(VALUE, (), FieldType.BIGINT)
SCHEMA_GUID_FIELD = SchemaField(VALUE, (), FieldType.STRING)
# By the name of the column.
ID_FIELDS = {SCHEMA_ID: SCHEMA_ID_FIELD, SCHEMA_GUID: SCHEMA_GUID_FIELD}


class OnBadValue(Enum):
    """The fate of a value with a schema that cannot be read (`onBadValue`)."""

    FAIL = "fail"  # the query ends
    NULL = "null"  # its unreadable parts are null
    REJECT = "reject"  # the column `rejected` returns the record unchanged, with the reason


DEFAULT_AHEAD_MS = 86_400_000
_MOST_MS = 2**62  # any event time less this fits into 64 bits


class OnFuture(Enum):
    """The fate of a row with an event time that is too far ahead; each such row is counted."""

    IGNORE = "ignore"  # the row stays unchanged, its time does not move the watermark
    NULL = "null"  # the row has no event time
    FAIL = "fail"  # the query ends


class OnFutureWatermark(Enum):
    """The fate of watermarks that are too far ahead when a query starts (`onFutureWatermark`)."""

    KEEP = "keep"
    RESET = "reset"  # each such partition restarts, as if its state had been lost


@dataclass(frozen=True, slots=True)
class FutureTime:
    """How far ahead an event time may be (ms, inclusive), and what becomes of the rows beyond.

    is_default: no option sets the limit. Up to 0.3 there was no such limit, so states do not depend on it.
    """

    ahead_ms: int = DEFAULT_AHEAD_MS
    on: OnFuture = OnFuture.IGNORE
    is_default: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.ahead_ms <= _MOST_MS:
            raise OptionError(f"maxEventTimeAhead is {self.ahead_ms} ms, it must be from 0 to {_MOST_MS} ms")
