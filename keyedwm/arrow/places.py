"""Event times and fields of a run of records, read from the places that options name.

Rule: whole columns are read. An event time that cannot be read is invalid, and its row stays. A field that cannot be
read as its type is null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import text_of
from keyedwm.arrow.json_scan import Path, Spans, buffers, find, find_all
from keyedwm.arrow.schema import arrow_type, field_schema
from keyedwm.arrow.text_values import escaped_texts, floats, strings, whole_numbers
from keyedwm.arrow.time_text import MAX_EVENT_MS, milliseconds
from keyedwm.core.places import EventTime, Field, FieldType, Place, SchemaField
from keyedwm.core.rows import KEY, VALUE

_NONE: Mapping[Field, pa.Array] = MappingProxyType({})
EventTimes = tuple[NDArray[np.int64], NDArray[np.bool_] | None]


class EventTimeReader:
    """Reads one axis's event times.

    unwritten: how many records so far lacked the sink's header, so that their event time is the record's timestamp.
    """

    def __init__(self, spec: EventTime) -> None:
        self.unwritten = 0
        self._spec = spec
        self._path = Path(() if spec.place.has_schema else spec.path)

    def read(
        self,
        timestamp_ms: NDArray[np.int64],
        key: pa.Array | None,
        value: pa.Array | None,
        headers: pa.Array | None,
    ) -> EventTimes:
        """Return ms (int64) and validity (None: all valid) per record. A column without event times may be None."""
        place = self._spec.place
        if place is Place.TIMESTAMP:
            return _whole(*_from_timestamps(timestamp_ms))
        if place in (Place.HEADER, Place.SINK_HEADER):
            ms, valid, has_header = self._from_headers(headers)
            if place is Place.SINK_HEADER and not has_header.all():
                self.unwritten += int(np.count_nonzero(~has_header))
                own_ms, own_valid = _from_timestamps(timestamp_ms)
                ms, valid = np.where(has_header, ms, own_ms), np.where(has_header, valid, own_valid)
            return _whole(ms, valid)
        spans = find(key if place is Place.KEY else value, self._path)
        ms, valid = milliseconds(*spans, self._spec.unit)
        rows, texts = escaped_texts(*spans, ~valid)
        if len(rows):
            ms[rows], valid[rows] = milliseconds(*_spans_of(texts), self._spec.unit)
        return _whole(ms, valid)

    def _from_headers(self, headers: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return ms, validity, and whether a record has the header. The last one counts, as in Kafka's `lastHeader`."""
        rows, fields = pc.list_parent_indices(headers), pc.list_flatten(headers)
        is_match = pc.equal(fields.field("key"), self._spec.path[0])
        row = np.asarray(rows.filter(is_match))
        values = fields.field("value").filter(is_match)
        data, ends = buffers(values)
        start = np.full(len(headers), -1, np.int64)
        end = np.zeros(len(headers), np.int64)
        # numpy assigns in order: of several headers in one row the last stays.
        start[row] = np.where(np.asarray(values.is_valid()), ends[:-1], -1)
        end[row] = ends[1:]
        has = np.zeros(len(headers), np.bool_)
        has[row] = True
        return *milliseconds(data, start, end, self._spec.unit), has


def _from_timestamps(timestamp_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    # Kafka writes -1 for a record without a timestamp.
    return timestamp_ms, (timestamp_ms >= 0) & (timestamp_ms <= MAX_EVENT_MS)


def _whole(ms: NDArray[np.int64], valid: NDArray[np.bool_]) -> EventTimes:
    return ms, None if valid.all() else valid


class FieldReader:
    """Reads one field. columns: the rows' schema, for the type of a field that is a whole column."""

    def __init__(self, field: Field, columns: pa.Schema) -> None:
        self.field = field
        self.type = columns.field(field.column).type if field.kind is None else arrow_type(field.kind)
        self.path = Path(field.path) if field.path and not isinstance(field, SchemaField) else None

    def read(self, values: pa.Array, spans: Spans | None = None) -> pa.Array:
        """Return the field of each row. values: its column. spans: for a field with a path, its spans in the column."""
        kind = self.field.kind
        if kind is None:
            return values
        if kind is FieldType.STRING:
            return text_of(values) if spans is None else strings(*spans)
        read = whole_numbers if kind is FieldType.BIGINT else floats
        if spans is None:
            return read(*_spans_of(values))
        numbers = read(*spans)
        rows, texts = escaped_texts(*spans, np.asarray(numbers.is_null()))
        if not len(rows):
            return numbers
        again = np.zeros(len(numbers), np.bool_)
        again[rows] = True
        return pc.replace_with_mask(numbers, pa.array(again), read(*_spans_of(texts)))


def _spans_of(texts: pa.Array) -> Spans:
    """Return the span of each whole text; start -1 for a null."""
    data, ends = buffers(texts)
    start, end = ends[:-1].astype(np.int64), ends[1:].astype(np.int64)
    start[np.asarray(texts.is_null())] = -1
    return data, start, end


class FieldColumns:
    """Reads columns out of keys and values. fields: column → its place. selection: the columns to read."""

    def __init__(self, fields: Mapping[str, Field], selection: Collection[str]) -> None:
        columns = pa.schema(field_schema(fields))
        self._readers = {name: FieldReader(field, columns) for name, field in fields.items() if name in selection}

    def read(
        self, key: pa.Array | None, value: pa.Array | None, decoded: Mapping[Field, pa.Array] = _NONE
    ) -> dict[str, pa.Array]:
        """Return each column of some records. decoded: the values of fields that were read with a schema."""
        record_columns = {KEY: key, VALUE: value}
        readers = [*self._readers.values()]
        return dict(zip(self._readers, read_fields(readers, record_columns.__getitem__, decoded), strict=True))


def read_fields(
    readers: Sequence[FieldReader], column: Callable[[str], pa.Array], decoded: Mapping[Field, pa.Array] = _NONE
) -> list[pa.Array]:
    """Return each field of some rows; a text is scanned once for all members of one object.

    column: column name → values. decoded: the values of fields that were read with a schema.
    """
    paths: dict[str, list[Path]] = {}
    for reader in readers:
        if reader.path is not None and reader.field not in decoded:
            paths.setdefault(reader.field.column, []).append(reader.path)
    spans = {name: iter(find_all(column(name), of_column)) for name, of_column in paths.items()}
    return [
        decoded[reader.field]
        if reader.field in decoded
        else reader.read(column(reader.field.column), None if reader.path is None else next(spans[reader.field.column]))
        for reader in readers
    ]
