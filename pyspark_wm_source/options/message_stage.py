"""The stage of a store: reading tasks divide its messages by bucket (`stage`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.places import FieldReader, read_fields
from keyedwm.arrow.schema import axis_column, nullable
from keyedwm.config.places import field_of
from keyedwm.config.validation import wrong
from keyedwm.core.places import Field
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.messages.exchange_messages import ExchangeMessages
from pyspark_wm_source.options.stage import STAGE, SourceColumns, Stage, StageSpec, are_texts, axis_of, check_fields

if TYPE_CHECKING:
    from keyedwm.arrow.rows import Events, RowBuilder


@dataclass(frozen=True, kw_only=True)
class MessageSpec(StageSpec):
    """The stage of a store in the reading tasks.

    fields: a message's column → field of the source. by: the columns whose hash selects the bucket. axis: the time
    axis. number: of the operator's input.
    """

    kind = "messages"
    fields: Mapping[str, str]
    by: tuple[str, ...]
    axis: str
    number: int

    def description(self) -> dict[str, Any]:
        """Return all but the kind, ready for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, description: Mapping[str, Any], text: str) -> MessageSpec:
        """Return the stage of a description; see `StageSpec`."""
        check_fields(description, [one.name for one in fields(cls)], text)
        read, by = description["fields"], description["by"]
        if not isinstance(read, dict) or not are_texts([*read.values()]) or not are_texts(by):
            raise wrong(STAGE, text, "fields as a JSON object of texts and by as a list of them are expected")
        return cls(**{**description, "by": tuple(by)})

    def stage(self, source: SourceColumns) -> MessageStage:
        """Return the step of the reading tasks; see `StageSpec`."""
        axis_of(source, self.axis)
        time = axis_column(EVENT_TIME, self.axis)
        for name in (*self.by, time):
            if name not in self.fields:
                raise wrong(STAGE, name, "a field for this column is expected")
        read = {name: field_of(STAGE, text, source.every.names, source.fields) for name, text in self.fields.items()}
        if read[time] != Field(time):
            raise wrong(
                STAGE, self.fields[time], f"the column {time!r} itself is expected, which has a message's event time"
            )
        readers = {name: FieldReader(field, source.every) for name, field in read.items()}
        columns = {field.column for field in read.values()}
        return MessageStage(
            columns=pa.schema([field for field in source.every if field.name in columns]),
            shipped=ExchangeMessages(schema=message_schema(readers), by=self.by, time=time),
            buckets=self.buckets,
            number=self.number,
            readers=tuple(readers.values()),
        )


@dataclass(frozen=True, kw_only=True)
class MessageStage(Stage):
    """The stage that returns whole messages. readers: read their columns."""

    def rows(self, events: Events, builder: RowBuilder) -> pa.RecordBatch:
        """Return the messages."""
        rows, schema = builder.events(events), self.shipped.schema
        read = read_fields(self.readers, rows.column, events.decoded)
        arrays = [values.cast(field.type) for values, field in zip(read, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def message_schema(readers: Mapping[str, FieldReader]) -> pa.Schema:
    """Return the columns of messages. Each column is nullable."""
    return pa.schema([nullable(pa.field(name, reader.type)) for name, reader in readers.items()])
