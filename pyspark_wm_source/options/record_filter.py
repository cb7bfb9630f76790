"""The option `where`: reading tasks drop records that do not meet a condition.

Rule: the condition can name all columns of the source, fields of the option `columns`, and fields by their place
(`json:$.kind = 'bid'`). It filters rows only. Watermarks, idleness and committed states depend on all records, as with
a filter after the source.
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
    wider="compare as ::double, or add a condition and AND before it that drops such records",
    compute="filter the rows behind the source by it; types are written as json:$.a::bigint",
    path="fields are json:$.NAME, json:$['a-b'] and key:$.NAME, with ::bigint or ::double for numbers",
    name_advice="; a field of the value is json:$.NAME, avro:$.NAME or proto:$.NAME, with ::bigint for a number; "
    "a text is 'NAME'",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFilter:
    """One filter of records. columns: the columns of the condition. fields: its fields of keys and values."""

    condition: Condition
    columns: pa.Schema
    fields: Mapping[str, Field]

    @property
    def decoded(self) -> set[str]:
        """The source's own columns that must be decoded for the condition."""
        return {self.fields[name].column if name in self.fields else name for name in self.columns.names}


def record_filters(text: str, columns: pa.Schema, selected_fields: Mapping[str, Field]) -> tuple[RecordFilter, ...]:
    """Parse the option into filters. Each filter reads the records that the filters before it keep.

    columns: the source's event columns and the fields of the option `columns`. selected_fields: places of these fields.
    The first filter has the ANDed comparisons before the first field of JSON. So JSON is scanned only in records that
    pass the first filter. Raises OptionError.
    """
    if not text.strip():
        raise OptionError(f"option {WHERE}: it is empty; a condition such as json:$.amount::double > 100 is expected")
    condition_text, fields = _with_quoted_fields(text, columns.names, selected_fields)
    every = pa.schema([*(field for field in columns if field.name not in fields), *field_schema(fields)])
    try:
        condition = Condition.parse(condition_text, ("", every), of=f"option {WHERE}", advice=_ADVICE)
    except OptionError as error:
        raise OptionError(_as_written(error.message, fields)) from error
    scanned = {name for name, field in fields.items() if field.path}
    parts = replace(condition, text=text).in_turn(set(every.names) - scanned)
    return tuple(_filter(part, every, fields) for part in parts)


def _with_quoted_fields(
    text: str, names: Sequence[str], selected_fields: Mapping[str, Field]
) -> tuple[str, dict[str, Field]]:
    """Return the text with each field's place as a name in backticks, and the places by name."""
    fields = dict(selected_fields)

    def column(match: re.Match[str]) -> str:
        """Return a matched field's place in backticks, and note its field; text and known places stay."""
        place = match["field"]
        if place is None or place in selected_fields:
            return match[0]
        fields[place] = field_of(WHERE, place, names)
        return _quoted(place)

    condition_text = _FIELD.sub(column, text)
    staying = _STAYING.search(_QUOTED.sub("", condition_text))
    if staying:
        is_control = staying[1].lower() == CONTROL
        why = (
            "control rows are never dropped"
            if is_control
            else "rejected records stay unless other columns make it false"
        )
        raise OptionError(f"option {WHERE}: {text!r} names {staying[1]!r}: {why}; remove the column")
    return condition_text, fields


def _as_written(sentence: str, fields: Iterable[str]) -> str:
    """Return a sentence about the condition, with fields as the user writes them."""
    for place in fields:
        sentence = sentence.replace(_quoted(place), place)
    return sentence


def _quoted(place: str) -> str:
    return "`" + place.replace("`", "``") + "`"


def _filter(condition: Condition, every: pa.Schema, fields: Mapping[str, Field]) -> RecordFilter:
    (column_names,) = condition.columns
    return RecordFilter(
        condition=condition,
        columns=pa.schema([every.field(name) for name in column_names]),
        fields={name: field for name, field in fields.items() if name in column_names},
    )
