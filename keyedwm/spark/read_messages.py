"""Messages of a read that is not loaded: its tasks divide them by bucket, and no row reaches Spark before its window.

Rule: a message holds what it would if the source were loaded, and beside that the fields that keys and aggregates name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.fields import FieldReader
from keyedwm.arrow.schema import row_schema
from keyedwm.core.errors import OptionError
from keyedwm.core.field import Field
from keyedwm.spark.source import Source, named_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def message_fields(
    read: Source, by: Mapping[str, str] | Sequence[str], aggregates: Sequence[tuple[str, Any]], held: Sequence[str]
) -> tuple[dict[str, str], pa.Schema, tuple[str, ...]]:
    """Return a message's columns, each with its field of the source, their types, and the keys among them.

    by: key columns, or result column → field. aggregates: which may name fields. held: the columns of the source that
    messages hold. Raises OptionError for names that mean two things, or nothing.
    """
    from pyspark_wm_source.options.message_store import message_schema
    from pyspark_wm_source.options.source_options import SourceOptions

    options = SourceOptions.parse(read.given)
    columns = row_schema(list(options.axes), headers=options.include_headers, control=False)
    keys = named_fields(by, columns.names)
    parsed = {name: Field.parse("by", text, columns.names) for name, text in keys.items()}
    for name, text in keys.items():
        if name in held and parsed[name] != Field(name):
            raise OptionError(
                f"aggregate: a key cannot be called {name!r}, which is a column of the source that messages hold: give "
                f"it another name, by={{'NAME': {text!r}}}, or leave the column out with the source's option columns"
            )
    fields = {**keys, **{name: name for name in held}}
    parsed |= {name: Field(name) for name in held}
    for text in (text for _, spec in aggregates for text in spec.inputs(tuple(fields))):
        if text not in fields:
            fields[text], parsed[text] = text, Field.parse("aggregates", text, columns.names)
    schema = message_schema({name: FieldReader(parsed[name], columns) for name in fields})
    return fields, schema, tuple(keys)


def read_messages(
    read: Source, fields: Mapping[str, str], *, by: Sequence[str], axis: str, buckets: int, number: int = 0
) -> DataFrame:
    """Return what the reading tasks ship to the buckets.

    fields: a message's column → field of the source. by: the columns by which messages are spread. number: of the
    operator's input.
    """
    from pyspark_wm_source.options.message_store import MessageSpec
    from pyspark_wm_source.options.source_options import SourceOptions

    spec = MessageSpec(fields=fields, by=tuple(by), axis=axis, number=number, buckets=buckets)
    staged = read.options(**spec.as_options())
    SourceOptions.parse(staged.given).for_stream()  # here, where a refusal is one sentence
    return staged.load()
