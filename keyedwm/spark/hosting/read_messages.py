"""Messages of a read that is not loaded: its tasks divide them by bucket, so they do not become rows of Spark first.

Rule: a message has the columns that a loaded source would have, and the fields that keys and aggregates name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from keyedwm.arrow.places import FieldReader
from keyedwm.arrow.schema import nullable
from keyedwm.config.places import field_of
from keyedwm.core.errors import OptionError
from keyedwm.core.places import Field
from keyedwm.core.rows import WATERMARK
from keyedwm.spark.hosting.source_description import Source, named_fields


@dataclass(frozen=True)
class MessageFields:
    """The columns of messages. fields: column -> field of the source. schema: the columns. keys: the key columns.

    read_from: a text with the place of each column whose name does not show its place.
    """

    fields: Mapping[str, str]
    schema: pa.Schema
    keys: tuple[str, ...]
    read_from: tuple[str, ...]


def message_fields(
    read: Source,
    by: Mapping[str, str] | Sequence[str],
    aggregates: Sequence[tuple[str, Any]],
    source_columns: Sequence[str],
) -> MessageFields:
    """Return the columns of a read's messages.

    by: key columns, or result column -> field. aggregates: names and specifications, which may read fields.
    source_columns: the source's columns in messages. Raises OptionError for an ambiguous or unknown name.
    """
    from pyspark_wm_source.options.source_options import SourceOptions

    options = SourceOptions.parse(read.set_options)
    columns = options.every_column
    # Watermarks belong to a batch and not to a record, so they are no fields.
    names = [name for name in columns.names if not name.startswith(WATERMARK)]
    keys = named_fields(by, names)
    fields_by_name = options.selection.fields
    parsed = {name: field_of("by", text, names, fields_by_name) for name, text in keys.items()}
    for name, text in keys.items():
        if name in source_columns and parsed[name] != fields_by_name.get(name, Field(name)):
            raise OptionError(
                f"aggregate: a key cannot be called {name!r}, which is a column of the source that messages hold: give "
                f"it another name, by={{'NAME': {text!r}}}, or leave the column out with the source's option columns"
            )
    fields = {**keys, **{name: name for name in source_columns}}
    parsed |= {name: fields_by_name.get(name, Field(name)) for name in source_columns}
    for text in (text for _, spec in aggregates for text in _read_by(spec)):
        if text not in fields:
            fields[text], parsed[text] = text, field_of("aggregates", text, names, fields_by_name)
        elif text in keys and _field(text, names, fields_by_name) not in (None, parsed[text]):
            raise OptionError(
                f"aggregate: a key cannot be called {text!r}, which is a field of the source that the aggregates read: "
                "give it another name"
            )
    _check_distinguishable(read, list(fields))
    return MessageFields(
        fields=fields,
        schema=pa.schema([nullable(pa.field(name, FieldReader(parsed[name], columns).type)) for name in fields]),
        keys=tuple(keys),
        read_from=(
            *(f"read from {name} {parsed[name]}" for name in keys if parsed[name] != Field(name)),
            *(
                f"read from {name} {fields_by_name[name].text}"
                for name in fields
                if name in fields_by_name and name not in keys
            ),
        ),
    )


def _read_by(spec: Any) -> tuple[str, ...]:
    """Return the columns or fields that an aggregate reads, without its condition, which names only columns."""
    plain = replace(spec, where=None) if getattr(spec, "where", None) is not None else spec
    return tuple(plain.inputs(()))


def _field(text: str, names: Sequence[str], fields_by_name: Mapping[str, Field]) -> Field | None:
    """Return the field that a text names, None if the text names none."""
    try:
        return field_of("aggregates", text, names, fields_by_name)
    except OptionError:
        return None


def _check_distinguishable(read: Source, names: Sequence[str]) -> None:
    """Raise OptionError for columns of messages whose names are equal to Spark."""
    if read.spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise OptionError(
                f"aggregate: messages would have the columns {other!r} and {name!r}, whose names are equal to Spark: "
                "give a key another name, or load() the source and name its columns"
            )
