"""The option messageStore: messages that an operator keeps are divided by bucket inside the reading tasks, as values.

Rule: `MessageSpec` is what was asked for and crosses Spark as text; `MessageStage` is what a reading task does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from keyedwm.arrow.fields import FieldReader
from keyedwm.arrow.schema import axis_column, nullable
from keyedwm.config.places import field_of
from keyedwm.config.validation import wrong
from keyedwm.core.field import Field
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.messages.shipped_messages import ShippedMessages
from keyedwm.operators.shuffle import SHIPPED
from pyspark_wm_source.options.json_option import json_object

MESSAGE_STORE = "messageStore"


@dataclass(frozen=True, kw_only=True)
class MessageSpec:
    """What a store asks of the reading tasks.

    fields: a message's column → field of the source. by: the columns by which messages are spread. axis: the time axis.
    number: of the operator's input. buckets: how many messages are spread over.
    """

    fields: Mapping[str, str]
    by: tuple[str, ...]
    axis: str
    number: int
    buckets: int

    def as_options(self) -> dict[str, str]:
        """Return the option."""
        return {MESSAGE_STORE: json.dumps(asdict(self))}

    @staticmethod
    def parse(text: str, axes: Sequence[str]) -> MessageSpec:
        """Read the option's text; axes: names of the source's. Raises OptionError."""
        wanted = "what a store over keyedwm.spark.source writes is expected"
        found = json_object(MESSAGE_STORE, text, MessageSpec.__dataclass_fields__, wanted)
        fields, by, numbers = found["fields"], found["by"], (found["number"], found["buckets"])
        if not isinstance(fields, dict) or not isinstance(by, list) or not _are_texts([*fields.values(), *by]):
            raise wrong(MESSAGE_STORE, text, "fields as a JSON object of texts and by as a list of them are expected")
        if not all(type(one) is int for one in numbers) or found["number"] not in (0, 1) or found["buckets"] < 1:
            raise wrong(MESSAGE_STORE, text, "input 0 or 1, and a whole number of buckets from 1 up are expected")
        if found["axis"] not in axes:
            raise wrong(MESSAGE_STORE, text, f"axis must be one of {', '.join(map(repr, axes))}")
        for name in (*by, axis_column(EVENT_TIME, found["axis"])):
            if name not in fields:
                raise wrong(MESSAGE_STORE, text, f"a field for the column {name!r} is expected")
        return MessageSpec(**{**found, "by": tuple(by)})


@dataclass(frozen=True, kw_only=True)
class MessageStage:
    """What the reading tasks do to their records. readers: of the messages' columns; columns: what they read of the
    source."""

    messages: ShippedMessages
    readers: tuple[FieldReader, ...]
    columns: pa.Schema
    number: int
    buckets: int
    shipped: pa.Schema = SHIPPED

    @staticmethod
    def of(spec: MessageSpec, columns: pa.Schema) -> MessageStage:
        """Plan what was asked for; columns: of the source. Raises OptionError for a field that it does not have."""
        readers = {
            name: FieldReader(field_of(MESSAGE_STORE, text, columns.names), columns)
            for name, text in spec.fields.items()
        }
        time = axis_column(EVENT_TIME, spec.axis)
        if readers[time].field != Field(time):
            raise wrong(MESSAGE_STORE, spec.fields[time], f"the column {time!r} as it is has a message's event time")
        read = {reader.field.column for reader in readers.values()}
        return MessageStage(
            messages=ShippedMessages(schema=message_schema(readers), by=spec.by, time=time),
            readers=tuple(readers.values()),
            columns=pa.schema([field for field in columns if field.name in read]),
            number=spec.number,
            buckets=spec.buckets,
        )

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the buckets."""
        return bucket_ids(self.buckets)


def message_schema(readers: Mapping[str, FieldReader]) -> pa.Schema:
    """Return the columns of messages, which can all be null."""
    return pa.schema([nullable(pa.field(name, reader.type)) for name, reader in readers.items()])


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(one, str) for one in values)
