"""The option where: which records become rows, decided in the reading tasks.

Rule: a condition as operators take them, over all columns of the source, the fields that `columns` names, and fields
written where they are needed (`json:$.kind = 'bid'`). It decides about rows alone: watermarks, idleness and committed
states are those of all records, as with a filter behind the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from keyedwm.arrow.schema import field_schema
from keyedwm.config.places import field_of
from keyedwm.core.errors import OptionError
from keyedwm.core.places import Field
from keyedwm.core.rows import CONTROL, KEY, REJECTED, SCHEMA_GUID, SCHEMA_ID, VALUE
from keyedwm.expressions.advice import Advice
from keyedwm.expressions.condition import Condition

WHERE = "where"
# Texts and names in quotes stay as they are. A name with a minus is written in brackets: `a - b` is a difference.
_TEXT = r"'(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`"
_PATH = r"""\$(?:\.[^\W\d]\w*|\[\d+\]|\['[^']*'\]|\["[^"]*"\])+"""
_SCHEMA_PATH = r"""\$(?:\.[^\W\d]\w*|\[(?:\d+|[A-Za-z_][\w.]*)\]|\['[^']*'\]|\["[^"]*"\])+"""
_TYPE = r"\s*::\s*\w+"
_SCHEMA_TYPE = r"\s*::\s*(?:decimal\s*\([\d\s,]*\)|\w+)"
_FIELD = re.compile(
    rf"{_TEXT}|(?P<field>(?<![\w.])(?:(?:json|key):\s*{_PATH}(?:{_TYPE})?|"
    rf"(?:{KEY}\.)?(?:avro|proto):\s*{_SCHEMA_PATH}(?:{_SCHEMA_TYPE})?|(?:{SCHEMA_ID}|{SCHEMA_GUID})\b|"
    rf"(?:{KEY}|{VALUE}){_TYPE}))",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(_TEXT, re.DOTALL)
_STAYING = re.compile(rf"\b({CONTROL}|{REJECTED})\b", re.IGNORECASE)
_ADVICE = Advice(
    cast="values of one type are expected: json:$.a is a text, also of true and false, json:$.a::bigint and ::double "
    "are numbers, and times compare with TIMESTAMP '2026-01-31T12:00:00Z'",
    wider="compare as ::double, or put before an AND what leaves such records out",
    compute="filter the rows behind the source by it; types are written as json:$.a::bigint",
    path="fields are json:$.NAME, json:$['a-b'] and key:$.NAME, with ::bigint or ::double for numbers",
    name_advice="; a field of the value is json:$.NAME, avro:$.NAME or proto:$.NAME, with ::bigint for a number; "
    "a text is 'NAME'",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFilter:
    """columns: that the condition needs. fields: of them those that are read out of keys and values."""

    condition: Condition
    columns: pa.Schema
    fields: Mapping[str, Field]

    @property
    def decoded(self) -> set[str]:
        """The source's own columns that must be decoded for it."""
        return {self.fields[name].column if name in self.fields else name for name in self.columns.names}


def record_filters(text: str, columns: pa.Schema, chosen: Mapping[str, Field]) -> tuple[RecordFilter, ...]:
    """Read the option: filters of which each is asked about the records that those before it keep.

    columns: those of the source's event rows, with those that `columns` reads out of records. chosen: where these lie.
    Comparisons that AND joins before the first value out of JSON are the first filter: JSON is scanned where it holds.
    Raises OptionError in one sentence.
    """
    if not text.strip():
        raise OptionError(f"option {WHERE}: it is empty; a condition such as json:$.amount::double > 100 is expected")
    written, fields = _written(text, columns.names, chosen)
    every = pa.schema([*(field for field in columns if field.name not in fields), *field_schema(fields)])
    try:
        condition = Condition.parse(written, ("", every), of=f"option {WHERE}", advice=_ADVICE)
    except OptionError as error:
        raise OptionError(_as_written(error.message, fields)) from error
    scanned = {name for name, field in fields.items() if field.path}
    parts = replace(condition, text=text).in_turn(set(every.names) - scanned)
    return tuple(_filter(part, every, fields) for part in parts)


def _written(text: str, names: Sequence[str], chosen: Mapping[str, Field]) -> tuple[str, dict[str, Field]]:
    """The text with fields as names in backticks, and where they lie."""
    fields = dict(chosen)

    def column(found: re.Match[str]) -> str:
        place = found["field"]
        if place is None or place in chosen:
            return found[0]
        fields[place] = field_of(WHERE, place, names)
        return _quoted(place)

    written = _FIELD.sub(column, text)
    staying = _STAYING.search(_QUOTED.sub("", written))
    if staying:
        is_control = staying[1].lower() == CONTROL
        why = "control rows always stay" if is_control else "rejected records stay unless the rest is false of them"
        raise OptionError(f"option {WHERE}: {text!r} names {staying[1]!r}: {why}, leave it out")
    return written, fields


def _as_written(sentence: str, fields: Iterable[str]) -> str:
    """A sentence about the condition, with fields as the user writes them."""
    for place in fields:
        sentence = sentence.replace(_quoted(place), place)
    return sentence


def _quoted(place: str) -> str:
    return "`" + place.replace("`", "``") + "`"


def _filter(condition: Condition, every: pa.Schema, fields: Mapping[str, Field]) -> RecordFilter:
    (used,) = condition.columns
    return RecordFilter(
        condition=condition,
        columns=pa.schema([every.field(name) for name in used]),
        fields={name: field for name, field in fields.items() if name in used},
    )
