"""The parser of places in options: `offset`, `key::string`, `json:$.amount::double`, `header:NAME`.

Rule: for fields and event times alike, `json:PATH` is a place in the record's value, and `key:PATH` one in its key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.places import (
    ID_FIELDS,
    TEXT_TYPES,
    DecimalType,
    EventTime,
    Field,
    FieldType,
    Place,
    SchemaField,
    Unit,
    json_path,
    json_steps,
    schema_steps,
)
from keyedwm.core.rows import KEY, VALUE
from keyedwm.core.text import nearest

# Names of units in other products -> ours.
UNIT_WORDS: Mapping[str, str] = MappingProxyType({
    "second": "s", "seconds": "s", "sec": "s", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
    "micros": "us", "microsecond": "us", "microseconds": "us", "nanos": "ns", "nanosecond": "ns", "nanoseconds": "ns",
    "iso8601": "iso", "iso-8601": "iso", "timestamp": "iso", "string": "iso",
})  # fmt: skip
# A type that fields do not have -> the nearest one that they have, and how the rows get the type.
_TYPE_WORDS: Mapping[str, str] = MappingProxyType({
    **dict.fromkeys(("long", "int", "integer", "short", "smallint", "tinyint", "byte"), "bigint"),
    **dict.fromkeys(("float", "real"), "double"),
    "decimal": "string, and CAST(... AS decimal(10, 2)) over the rows",
    **dict.fromkeys(("boolean", "bool"), "string, which is true or false, and CAST(... AS boolean) over the rows"),
    "timestamp": "bigint, and timestamp_millis(...) over the rows",
    "date": "string, and CAST(... AS date) over the rows", "text": "string", "varchar": "string",
})  # fmt: skip
_NONE: Mapping[str, Field] = MappingProxyType({})
_BARE_NAME = re.compile(r"\.([^.\[\]'\"]+)")
_TYPED = re.compile(r"(.*)::\s*(\w+)(?:\([^)]*\))?\s*", re.DOTALL)
_PLACES, _TEXTS = {"json": VALUE, "key": KEY}, (KEY, VALUE)
_WITH_SCHEMA = {place.value: place for place in Place if place.has_schema}
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,4})\s*(?:,\s*(\d{1,4})\s*)?\)", re.IGNORECASE)
# The same for values with a schema, which have more types.
_SCHEMA_TYPE_WORDS: Mapping[str, str] = MappingProxyType({
    **dict.fromkeys(("long", "int", "integer", "short", "smallint", "tinyint", "byte"), "bigint"),
    **dict.fromkeys(("float", "real"), "double"), **dict.fromkeys(("text", "varchar"), "string"),
    "decimal": "decimal(PRECISION,SCALE)", "bool": "boolean", "bytes": "binary",
})  # fmt: skip


def field_of(name: str, text: str, columns: Collection[str], fields: Mapping[str, Field] = _NONE) -> Field:
    """Parse a field; raises OptionError.

    name: the option that gives the text, for errors. columns: the source's columns. fields: column -> its place, for
    the columns that are read out of keys and values.
    """
    if text in fields:
        return fields[text]
    if text.partition(":")[0].strip().lower() in _WITH_SCHEMA and ":" in text:
        return _schema_field(name, text)
    if text.strip().lower() in ID_FIELDS.keys() - columns:
        return ID_FIELDS[text.strip().lower()]
    match = _TYPED.fullmatch(text)
    place, kind = (match[1].strip(), _type_of(name, text, match[2])) if match else (text.strip(), None)
    head, colon, path = place.partition(":")
    head = head.lower()
    if colon and head in _PLACES:
        return Field(_PLACES[head], _steps(name, text, path), kind or FieldType.STRING)
    place = head if head in _TEXTS else place
    if kind is not None and place in fields:
        raise wrong(name, text, f"the column {place!r} is of the type {fields[place].text} already: write {place!r}")
    if place not in columns:
        hint = nearest(place, columns)
        paths = "json:PATH, key:PATH, avro:PATH and proto:PATH"
        known = f"did you mean {hint!r}?" if hint else f"it has {', '.join(columns)}, {paths}"
        raise OptionError(f"option {name}: the source has no column {place!r}; {known}")
    if kind is not None and place not in _TEXTS:
        raise wrong(name, text, f"only {KEY}, {VALUE} and values out of JSON take a type: write {place!r}")
    return Field(place, (), kind)


def event_time_of(text: str, unit: Unit) -> EventTime:
    """Parse `timestamp`, `header:NAME`, or a path in a value or key (`json:$.a.b`, `avro:$.a`); raises OptionError."""
    kind, _, rest = text.strip().partition(":")
    if kind.lower() == "timestamp" and not rest:
        if unit is not Unit.MILLISECONDS:
            raise wrong("eventTimeUnit", unit.value, "a record's own timestamp is in ms: leave the option out")
        return EventTime()
    if kind.lower() == "header" and rest:
        return EventTime(Place.HEADER, (rest,), unit)
    if kind.lower() in {"json", "key"} and rest:
        return EventTime(Place(kind.lower()), _steps("eventTime", text, rest), unit)
    if kind.lower() in _WITH_SCHEMA and rest:
        return EventTime(_WITH_SCHEMA[kind.lower()], _schema_steps("eventTime", text, rest), unit)
    raise wrong("eventTime", text, "timestamp, json:$.a.b, key:$.a, avro:$.a, proto:$.a or header:NAME is expected")


def _schema_field(name: str, text: str) -> SchemaField:
    """Parse a field of a key or a value with a schema."""
    prefix, _, rest = text.partition(":")
    path, colons, type_name = rest.partition("::")
    kind = _schema_type(name, text, type_name.strip()) if colons else FieldType.STRING
    place = _WITH_SCHEMA[prefix.strip().lower()]
    return SchemaField(place.column or VALUE, _schema_steps(name, text, path), kind, place.language or place)


def _schema_type(name: str, text: str, type_name: str) -> FieldType | DecimalType:
    decimal = _DECIMAL.fullmatch(type_name)
    if decimal is not None:
        try:
            return DecimalType(int(decimal[1]), int(decimal[2] or 0))
        except OptionError as error:
            raise wrong(name, text, error.message) from error
    kinds = {kind.value: kind for kind in FieldType}
    if type_name.lower() not in kinds:
        hint = _SCHEMA_TYPE_WORDS.get(type_name.lower())
        allowed = f"one of the types {', '.join(kinds)}, decimal(PRECISION,SCALE) is expected"
        raise wrong(name, text, allowed + (f"; did you mean {hint}?" if hint else ""))
    return kinds[type_name.lower()]


def _schema_steps(name: str, text: str, path: str) -> tuple[str | int, ...]:
    steps = schema_steps(path.strip())
    if steps is None:
        raise wrong(
            name,
            text,
            "a path such as $.a.b, $.a[0] for an element of a list, or $.a[int] for a branch of a union, is expected",
        )
    return steps


def _type_of(name: str, text: str, type_name: str) -> FieldType:
    kinds = {kind.value: kind for kind in TEXT_TYPES}
    if type_name.lower() not in kinds:
        allowed, hint = ", ".join(kinds), _TYPE_WORDS.get(type_name.lower())
        raise wrong(name, text, f"one of the types {allowed} is expected" + (f"; did you mean {hint}?" if hint else ""))
    return kinds[type_name.lower()]


def _steps(name: str, text: str, path: str) -> tuple[str | int, ...]:
    steps = json_steps(path.strip())
    if steps is None:
        candidate = json_steps(_BARE_NAME.sub(r"['\1']", path.strip()))
        hint = "" if candidate is None else f"; did you mean {json_path(candidate)}?"
        raise wrong(name, text, f"a path such as $.a.b, $['a'] or $.a[0] is expected{hint}")
    return steps
