"""Reading values that have a schema: fields and event times in one pass, and what becomes of bad values.

Rule: a field depends on the value, its schema and its path alone, never on which others are asked for. So an event time
that stands before the damage in a value counts, in the tasks and in a recovery read alike. A registry that is away is
an error that says to retry, and no value is null for it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.places import EventTimeReader, FieldReader, read_fields
from keyedwm.arrow.rows import Rejects
from keyedwm.core.errors import InputError
from keyedwm.core.places import SCHEMA_ID_FIELD, EventTime, Field, FieldType, OnBadValue, Place
from keyedwm.core.rows import VALUE
from keyedwm.core.schemas import RegisteredSchema, SchemaKind, SchemaLookup, UnknownSchemaError
from keyedwm.formats.avro_fingerprint import fingerprint
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.decoder import Decoded, Decoder
from keyedwm.formats.faults import Fault
from keyedwm.formats.heads import Head, bodies_of, texts_of
from keyedwm.formats.proto_decoder import ProtoDecoder
from keyedwm.formats.requests import Request
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from keyedwm.registry.client import registry_of
from pyspark_wm_source.options.value_format import FormatName, ValueFormat
from pyspark_wm_source.task.channel import NO_VALUES, ReadValues

_log = logging.getLogger("keyedwm.source")
_HEADS = {
    FormatName.AVRO: Head.NONE, FormatName.AVRO_CONFLUENT: Head.CONFLUENT, FormatName.AVRO_APICURIO: Head.APICURIO,
    FormatName.JSON_CONFLUENT: Head.CONFLUENT, FormatName.PROTOBUF: Head.NONE,
    FormatName.PROTOBUF_CONFLUENT: Head.CONFLUENT, FormatName.AVRO_SINGLE_OBJECT: Head.SINGLE_OBJECT,
}  # fmt: skip
_warned: set[tuple[str, str]] = set()


class OneSchema(SchemaLookup):
    """The schema of `value.schema`, for values that do not say theirs."""

    def __init__(self, kind: SchemaKind, text: str) -> None:
        self._kind, self._text = kind, text

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema, whatever the id."""
        return RegisteredSchema(schema_id, self._kind, self._text)


class FingerprintedSchema(SchemaLookup):
    """The schema of `value.schema`, for values that name theirs by its fingerprint."""

    def __init__(self, text: str) -> None:
        self._text, self._fingerprint = text, fingerprint(text)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema. Raises UnknownSchemaError for another fingerprint."""
        if schema_id != self._fingerprint:
            raise UnknownSchemaError(
                f"the value has a schema of the fingerprint {schema_id}, option value.schema one of {self._fingerprint}"
            )
        return RegisteredSchema(schema_id, SchemaKind.AVRO, self._text)


@functools.lru_cache(maxsize=64)
def _decoder(value_format: ValueFormat, requests: tuple[Request, ...]) -> Decoder | ProtoDecoder:
    """Return the decoder of this process, which compiles a schema once."""
    name, text = value_format.name, value_format.schema
    is_avro = name.language is Place.AVRO
    if value_format.registry is not None:
        schemas: SchemaLookup = registry_of(value_format.registry)
    elif name is FormatName.AVRO_SINGLE_OBJECT:
        return Decoder(_HEADS[name], requests, FingerprintedSchema(text or ""))
    else:
        schemas = OneSchema(SchemaKind.AVRO if is_avro else SchemaKind.PROTOBUF, text or "")
    if not is_avro:
        return ProtoDecoder(_HEADS[name], requests, schemas)
    reader = parse_avro(text) if name.has_id and text is not None else None
    return Decoder(_HEADS[name], requests, schemas, reader)


class ValueReader:
    """Reads the values of one channel. fields, times: those that the format reads."""

    def __init__(
        self, value_format: ValueFormat, channel: TopicPartition, fields: Sequence[Field], times: Sequence[EventTime]
    ) -> None:
        self._format, self._channel = value_format, channel
        self._fields = [one for one in dict.fromkeys(fields) if value_format.reads(one)]
        self._times = [one for one in dict.fromkeys(times) if value_format.reads(one)]

    def read(self, records: Records) -> ReadValues:
        """Read some records. Raises InputError for the first bad value, where the option says so, and
        UnavailableError if the registry does not answer.
        """
        if records.value is None or not (self._fields or self._times):
            return NO_VALUES
        decoded, read = self._decoded(records.value) if self._format.name.needs_schema else self._json(records)
        bad = decoded.bad
        if bad is None:
            return read
        rows = np.flatnonzero(bad)
        if self._format.on_bad is OnBadValue.FAIL:
            raise InputError(
                f"{self._channel}: the value of the record at offset {int(records.offset[rows[0]])} cannot be read: "
                f"{decoded.reason(int(rows[0]))}; onBadValue=null would read it as null, and onBadValue=reject give "
                "the record back"
            )
        # Values of one schema with one fault have one reason.
        kinds = decoded.schema_ids[rows] * len(Fault) + decoded.faults[rows]
        _, first, which = np.unique(kinds, return_index=True, return_inverse=True)
        reasons = [decoded.reason(int(rows[at])) for at in first]
        self._warn(records, rows[first], reasons)
        if self._format.on_bad is OnBadValue.NULL:
            return read
        return read._replace(rejects=Rejects(bad, pa.array(reasons, pa.string()).take(pa.array(which))))

    def _decoded(self, values: pa.Array) -> tuple[Decoded, ReadValues]:
        fields = [one for one in self._fields if one != SCHEMA_ID_FIELD]
        requests = [Request(tuple(map(str, one.path)), one.kind or FieldType.STRING) for one in fields]
        requests += [Request(tuple(map(str, one.path)), one.unit) for one in self._times]
        decoded = _decoder(self._format, tuple(requests)).decode(values)
        columns = dict(zip(fields, decoded.columns, strict=False))
        if SCHEMA_ID_FIELD in self._fields:
            columns[SCHEMA_ID_FIELD] = decoded.ids()
        times = dict(zip(self._times, decoded.columns[len(fields) :], strict=True))
        return decoded, ReadValues(columns, times)

    def _json(self, records: Records) -> tuple[Decoded, ReadValues]:
        """Read the JSON behind the heads."""
        bodies = bodies_of(Head.CONFLUENT, records.value)
        decoded = Decoded((), bodies.ids, bodies.faults, {}, Head.CONFLUENT)
        texts = texts_of(bodies)
        fields = [one for one in self._fields if one != SCHEMA_ID_FIELD]
        readers = [FieldReader(one, pa.schema([])) for one in fields]
        columns = dict(zip(fields, read_fields(readers, {VALUE: texts}.__getitem__), strict=True))
        if SCHEMA_ID_FIELD in self._fields:
            columns[SCHEMA_ID_FIELD] = decoded.ids()
        times = {
            one: EventTimeReader(one).read(records.timestamp_ms, records.key, texts, records.headers)
            for one in self._times
        }
        return decoded, ReadValues(columns, times)

    def _warn(self, records: Records, rows: NDArray[np.int64], reasons: Sequence[str]) -> None:
        """Name the first bad value of a topic and reason, once in a process."""
        for row, reason in zip(rows, reasons, strict=True):
            if (self._channel.topic, reason) not in _warned:
                _warned.add((self._channel.topic, reason))
                _log.warning(
                    "%s: the value of the record at offset %d cannot be read (onBadValue=%s): %s",
                    self._channel, int(records.offset[row]), self._format.on_bad.value, reason,
                )  # fmt: skip
