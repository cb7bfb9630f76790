"""Reading values that have a schema: fields and event times in one pass, and what becomes of bad values.

Rule: a field depends on the value, its schema and its path alone, never on which other fields are read. So an event
time before the damage in a value counts, in the tasks and in a recovery read alike. If the registry does not answer,
the error asks to retry; no value becomes null.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.places import EventTimeReader, FieldReader, read_fields
from keyedwm.arrow.rows import Rejects
from keyedwm.core.axis import Counts
from keyedwm.core.errors import InputError, KeyedwmError
from keyedwm.core.places import SCHEMA_GUID_FIELD, SCHEMA_ID_FIELD, EventTime, Field, FieldType, OnBadValue, Place
from keyedwm.core.rows import KEY
from keyedwm.core.text import one_line, shortened
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.decoder import WITHOUT_ID, Decoded, Decoder, Problem
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.header_ids import Guids, HeaderIds, header_ids
from keyedwm.formats.heads import Head, bodies_of, texts_of
from keyedwm.formats.proto_decoder import ProtoDecoder
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from keyedwm.registry.client import may_exist, registry_of
from pyspark_wm_source.options.value_format import KEY_SCHEMA, VALUE_SCHEMA, ColumnFormat, FormatName, Formats
from pyspark_wm_source.task.channel import NO_VALUES, ReadValues, joined_rejects
from pyspark_wm_source.task.lookups import lookup_of
from pyspark_wm_source.task.unknown_ids import Notes

_log = logging.getLogger("keyedwm.source")
_HEADS = {
    FormatName.AVRO: Head.NONE, FormatName.AVRO_CONFLUENT: Head.CONFLUENT, FormatName.AVRO_APICURIO: Head.APICURIO,
    FormatName.JSON_CONFLUENT: Head.CONFLUENT, FormatName.PROTOBUF: Head.NONE,
    FormatName.PROTOBUF_CONFLUENT: Head.CONFLUENT, FormatName.AVRO_SINGLE_OBJECT: Head.SINGLE_OBJECT,
    FormatName.AVRO_GLUE: Head.GLUE,
}  # fmt: skip
_IDS: Mapping[Field, Callable[[Decoded], pa.Array]] = {
    SCHEMA_ID_FIELD: Decoded.ids, SCHEMA_GUID_FIELD: Decoded.guid_texts,
}  # fmt: skip
_SCHEMA_FAULTS = (Fault.OTHER_KIND, Fault.WRONG_SCHEMA, Fault.OTHER_TYPE)
_SUBJECTS_MS, _MOST_SUBJECTS = 2_000, 3
_warned: set[tuple[str, str]] = set()


@functools.lru_cache(maxsize=64)
def _decoder(value_format: ColumnFormat, requests: tuple[Request, ...]) -> Decoder | ProtoDecoder:
    """Return the decoder of this process, which compiles a schema once."""
    name, schemas = value_format.name, lookup_of(value_format)
    if name.language is not Place.AVRO:
        return ProtoDecoder(_HEADS[name], requests, schemas)
    text = value_format.schema if name.has_registry else None
    reader = None if text is None else parse_avro(text)
    return Decoder(_HEADS[name], requests, schemas, reader)


class ValueReader:
    """Reads the values of one channel, or its keys.

    fields, times: the fields and event times that the format reads. notes: the ids that are unknown in this batch, None
    for none.
    """

    def __init__(
        self,
        value_format: ColumnFormat,
        channel: TopicPartition,
        fields: Sequence[Field],
        times: Sequence[EventTime],
        notes: Notes | None = None,
    ) -> None:
        self._format, self._channel, self._notes = value_format, channel, notes
        self._fields = [one for one in dict.fromkeys(fields) if value_format.reads(one)]
        self._times = [one for one in dict.fromkeys(times) if value_format.reads(one)]

    def read(self, records: Records) -> ReadValues:
        """Read some records. Raises InputError for the first bad value if the option says so.

        Raises UnavailableError if the registry does not answer.
        """
        values = records.key if self._format.column == KEY else records.value
        if values is None or not (self._fields or self._times):
            return NO_VALUES
        ids = (
            header_ids(records.headers, f"__{self._format.column}_schema_id") if self._format.name.has_headers else None
        )
        needs_schema = self._format.name.needs_schema
        decoded, read = self._decoded(records, values, ids) if needs_schema else self._json(records, values, ids)
        bad = decoded.bad
        if bad is None:
            return read
        rows = np.flatnonzero(bad)
        if self._format.on_bad is OnBadValue.FAIL:
            row = int(rows[0])
            raise InputError(
                f"{self._channel}: the {self._format.column} of the record at offset {int(records.offset[row])} cannot "
                f"be read: {self._reason(decoded, row)}{self._subjects(decoded, row)}; onBadValue=null would read it "
                "as null, and onBadValue=reject give the record back"
            )
        _, first, which = np.unique(decoded.reason_ids(rows), return_index=True, return_inverse=True)
        reasons = [self._reason(decoded, int(rows[at])) for at in first]
        self._warn(records, decoded, rows[first], reasons)
        faults, counts = np.unique(decoded.faults[rows], return_counts=True)
        read = read._replace(bad=tuple(zip(faults.tolist(), counts.tolist(), strict=True)))
        if self._format.on_bad is OnBadValue.NULL:
            return read
        return read._replace(rejects=Rejects(bad, pa.array(reasons, pa.string()).take(pa.array(which))))

    def _decoded(self, records: Records, values: pa.Array, ids: HeaderIds | None) -> tuple[Decoded, ReadValues]:
        fields = [one for one in self._fields if one not in _IDS]
        requests = requests_of(self._fields, self._times)
        decoded = self._with_notes(records, _decoder(self._format, requests).decode(values, ids))
        columns = dict(zip(fields, decoded.columns, strict=False))
        times = dict(zip(self._times, decoded.columns[len(fields) :], strict=True))
        return decoded, ReadValues(columns | self._ids(decoded), times)

    def _with_notes(self, records: Records, decoded: Decoded) -> Decoded:
        """Return values of noted ids as values of unknown ids; note the ids that are unknown now."""
        registry = self._format.registry
        if self._notes is None or registry is None:
            return decoded
        pieces = self._notes.pieces()
        if not any(piece.names for piece in pieces) and not (decoded.faults == Fault.UNKNOWN_SCHEMA).any():
            return decoded
        ids = decoded.names()
        names = {number: f"{self._format.column[0]}{name}" for number, name in ids.items()}
        unknown, problems = np.zeros(len(decoded.faults), np.bool_), dict[int, Problem]()
        for start, end, noted in pieces:
            numbers = [number for number, name in names.items() if name in noted]
            if numbers:
                within = (records.offset >= start) & (records.offset < end)
                unknown |= within & np.isin(decoded.schema_ids, numbers) & ~np.isin(decoded.faults, WITHOUT_ID)
                for number in numbers:
                    sentence = registry_of(registry).no_schema(ids[number]).message
                    problems[number] = Problem(Fault.UNKNOWN_SCHEMA, sentence)
        if problems:
            decoded = decoded.with_unknown(unknown, problems)
        fresh = decoded.schema_ids[(decoded.faults == Fault.UNKNOWN_SCHEMA) & ~unknown]
        numbers = [
            int(number)
            for number in np.unique(fresh, return_index=True)[0]
            if number in decoded.guids or may_exist(int(number))
        ]
        if numbers:
            self._notes.add(names[number] for number in numbers)
        return decoded

    def _json(self, records: Records, values: pa.Array, ids: HeaderIds | None) -> tuple[Decoded, ReadValues]:
        """Read the JSON behind the heads."""
        guids = Guids()
        bodies = bodies_of(Head.CONFLUENT, values, ids, guids)
        decoded = Decoded((), bodies.ids, bodies.faults, {}, Head.CONFLUENT, guids.texts)
        texts = texts_of(bodies)
        fields = [one for one in self._fields if one not in _IDS]
        readers = [FieldReader(one, pa.schema([])) for one in fields]
        columns = dict(zip(fields, read_fields(readers, lambda _: texts), strict=True))
        times = {
            one: EventTimeReader(one).read(records.timestamp_ms, texts, texts, records.headers) for one in self._times
        }
        return decoded, ReadValues(columns | self._ids(decoded), times)

    def _ids(self, decoded: Decoded) -> dict[Field, pa.Array]:
        return {field: read(decoded) for field, read in _IDS.items() if field in self._fields}

    def _reason(self, decoded: Decoded, row: int) -> str:
        """Say why a value is bad; for a key replace the word, since decoders know values only."""
        reason = decoded.reason(row)
        return reason.replace("the value", "the key", 1).replace(VALUE_SCHEMA, KEY_SCHEMA) if self._is_key else reason

    @property
    def _is_key(self) -> bool:
        return self._format.column == KEY

    def _subjects(self, decoded: Decoded, row: int) -> str:
        """Name the subjects of a wrong schema, for errors and logs only.

        A row must not depend on a registry that may be away.
        """
        schema_id, registry = int(decoded.schema_ids[row]), self._format.registry
        if registry is None or schema_id < 0 or Fault(decoded.faults[row]) not in _SCHEMA_FAULTS:
            return ""
        try:
            subjects = registry_of(registry).subjects_of(schema_id, _SUBJECTS_MS)
        except KeyedwmError:
            return ""
        some = [one_line(shortened(subject)) for subject in subjects[:_MOST_SUBJECTS]]
        return f" (subject {', '.join(some)})" if some else ""

    def _warn(self, records: Records, decoded: Decoded, rows: NDArray[np.int64], reasons: Sequence[str]) -> None:
        """Name the first bad value of a topic and reason, once in a process."""
        for row, reason in zip(rows.tolist(), reasons, strict=True):
            if (self._channel.topic, reason) not in _warned:
                _warned.add((self._channel.topic, reason))
                _log.warning(
                    "%s: the %s of the record at offset %d cannot be read (onBadValue=%s): %s%s",
                    self._channel, self._format.column, int(records.offset[row]), self._format.on_bad.value, reason,
                    self._subjects(decoded, row),
                )  # fmt: skip


def requests_of(fields: Sequence[Field], times: Sequence[EventTime]) -> tuple[Request, ...]:
    """Return what decoders are asked for: the fields that are no ids, then the event times."""
    requests = [Request(one.path, one.kind or FieldType.STRING) for one in fields if one not in _IDS]
    return (*requests, *(Request(one.path, one.unit) for one in times))


class RecordReader:
    """Reads the values and the keys of one channel."""

    def __init__(self, readers: Sequence[ValueReader]) -> None:
        self._readers = readers

    def read(self, records: Records) -> ReadValues:
        """Read some records. Raises as ValueReader does."""
        whole = NO_VALUES
        for reader in self._readers:
            read = reader.read(records)
            rejects = read.rejects if whole.rejects is None else joined_rejects(whole.rejects, read.rejects)
            bad = Counts(bad_values=whole.bad).plus(Counts(bad_values=read.bad)).bad_values
            whole = ReadValues({**whole.fields, **read.fields}, {**whole.times, **read.times}, rejects, bad)
        return whole


def reader_of(
    formats: Formats,
    channel: TopicPartition,
    fields: Sequence[Field],
    times: Sequence[EventTime],
    notes: Notes | None = None,
) -> RecordReader | None:
    """Return what reads the values and keys of a channel; None if they have no format."""
    readers = [ValueReader(one, channel, fields, times, notes) for one in formats.each]
    return RecordReader(readers) if readers else None
