"""Keys and values of records with a schema: which columns are their fields, and their bytes.

Rule: a record's fields are the fields of the struct `value`, else all columns that are neither Kafka's, the source's
nor the sink's. The plan of the tasks has the schema and its id: a task asks no registry.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from keyedwm.arrow.columns import valid_texts
from keyedwm.core.errors import InputError
from keyedwm.core.places import is_event_time
from keyedwm.core.rows import CONTROL, HEADERS, KEY, REJECTED, VALUE, WATERMARK
from keyedwm.core.schemas import SchemaKind
from keyedwm.formats.avro_making import avro_schema_of
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.avro_writing import avro_encoder
from keyedwm.formats.json_writing import check_json_schema, json_encoder, json_schema_of
from keyedwm.formats.proto_writing import proto_encoder, proto_schema_of
from keyedwm.formats.writing import Encoder, ValueFaultError, encode
from pyspark_wm_sink.batch.source_columns import has_control, has_offsets
from pyspark_wm_sink.options.record_format import SideFormat

_MAKERS = {
    SchemaKind.AVRO: avro_schema_of, SchemaKind.JSON: json_schema_of, SchemaKind.PROTOBUF: proto_schema_of,
}  # fmt: skip
_OF_RECORDS = {"offset": LongType, "timestamp": TimestampType, "timestampType": IntegerType}
_SINKS = (KEY, VALUE, HEADERS, "topic", "partition")


@dataclass(frozen=True, kw_only=True, slots=True)
class SideSchema:
    """The registered schema of one side of a write. columns: its fields; None: the fields are in the side's column."""

    side: str
    kind: SchemaKind
    text: str
    called_as: str
    columns: tuple[str, ...] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (self.side,) if self.columns is None else self.columns

    def column_of(self, rows: pa.Table) -> pa.Array:
        """Return the values as one array: the column, or a struct of the columns."""
        if self.columns is None:
            return _array(rows.column(self.side))
        columns = [_array(rows.column(name)) for name in self.columns]
        return pa.StructArray.from_arrays(columns, fields=[rows.schema.field(name) for name in self.columns])


@dataclass(frozen=True, kw_only=True, slots=True)
class SideWriter:
    """Writes one side of records behind a head with the schema's id."""

    schema: SideSchema
    schema_id: int

    @property
    def head(self) -> bytes:
        """The bytes before a value, as in Confluent's serializers; for Protobuf they name the file's first message."""
        message = b"\0" if self.schema.kind is SchemaKind.PROTOBUF else b""
        return b"\0" + self.schema_id.to_bytes(4, "big") + message


def with_records(rows: pa.Table, writers: Sequence[SideWriter], task: str, before: int) -> pa.Table:
    """Return the rows with keys and values in their format.

    task: its name, for errors. before: the number of the task's earlier rows. Raises InputError for a value that its
    schema does not allow.
    """
    sources = [name for writer in writers for name in writer.schema.sources]
    valid = valid_texts(rows.select(list(dict.fromkeys(sources))))
    for writer in writers:
        values = writer.schema.column_of(valid)
        try:
            coded = encode(_encoder(writer.schema, values.type), values, writer.head)
        except ValueFaultError as fault:
            column = f"column {fault.where}" if fault.where else f"column {writer.schema.side}"
            raise InputError(
                f"{column} of {_place(rows, fault.row, task, before)} {fault.reason}: drop such rows or fill the "
                f"column before the sink, or change {writer.schema.called_as}"
            ) from None
        side = writer.schema.side
        at = rows.column_names.index(side) if side in rows.column_names else rows.num_columns
        rows = rows.set_column(at, side, coded) if at < rows.num_columns else rows.append_column(side, coded)
    return rows


def schema_of_side(side: SideFormat, schema: StructType) -> SideSchema:
    """Return the schema to register for one side: the user's text, or a schema made of the columns.

    Raises InputError for columns that do not fit, in one sentence with the column and both types.
    """
    columns = None
    if side.side in schema.fieldNames():
        kind = _arrow(side.side, schema[side.side].dataType)
        if side.side == VALUE and not pa.types.is_struct(kind):
            raise InputError(
                f"column {VALUE} has type {schema[VALUE].dataType.simpleString()}, with {VALUE}.format a struct is "
                f"expected, whose fields are those of the record: drop the column, or write struct(...) AS {VALUE}"
            )
    elif side.side == KEY:
        raise InputError(f"the rows have no column {KEY}, which {KEY}.format needs: add it, or leave the option out")
    else:
        columns = field_columns(schema)
        if not columns:
            raise InputError(
                f"the rows have no column that is a field of a record: add columns beside {', '.join(_SINKS)} and "
                f"those of the source, or a struct {VALUE}"
            )
        fields = [schema[name] for name in columns]
        kind = pa.struct([pa.field(one.name, _arrow(one.name, one.dataType), one.nullable) for one in fields])
    text = _MAKERS[side.name.kind](kind, side.record_name) if side.schema is None else side.schema
    called_as = f"the schema of the {side.side}" if side.schema is None else side.schema_option
    side_schema = SideSchema(side=side.side, kind=side.name.kind, text=text, called_as=called_as, columns=columns)
    _encoder(side_schema, kind)
    return side_schema


def field_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns that are fields of a record: neither the sink's nor the source's own."""
    return tuple(name for name in schema.fieldNames() if name not in _SINKS and not _is_of_source(schema, name))


def _is_of_source(schema: StructType, name: str) -> bool:
    """Whether a column is the source's: name and type agree."""
    kind = schema[name].dataType
    if name == CONTROL:
        return has_control(schema)
    if name == REJECTED:
        return isinstance(kind, (StructType, StringType))
    if name in _OF_RECORDS:  # frames often lack the partition, or have another type of the timestamp
        is_frame = has_control(schema) or has_offsets(schema) or "timestampType" in schema.fieldNames()
        return is_frame and isinstance(kind, _OF_RECORDS[name])
    is_time = is_event_time(name) or name == WATERMARK or name.startswith(f"{WATERMARK}_")
    return is_time and isinstance(kind, TimestampType)


@functools.lru_cache(maxsize=64)
def _encoder(schema: SideSchema, kind: pa.DataType) -> Encoder:
    if schema.kind is SchemaKind.PROTOBUF:
        return proto_encoder(kind)
    if schema.kind is SchemaKind.JSON:
        check_json_schema(schema.text, kind, schema.called_as)
        return json_encoder(kind)
    try:
        parsed = parse_avro(schema.text)
    except InputError as error:
        raise InputError(f"{schema.called_as}: {error.message}") from None
    return avro_encoder(parsed, kind, schema.called_as)


def _arrow(name: str, kind: object) -> pa.DataType:
    try:
        return to_arrow_type(kind, timezone="UTC")  # type: ignore[arg-type]
    except PySparkException:
        raise InputError(
            f"column {name} has type {kind.simpleString()}, of which no field can be made: cast it to string"  # type: ignore[attr-defined]
        ) from None


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _place(rows: pa.Table, row: int, task: str, before: int) -> str:
    """Name a row by the record that it came from, else by its number."""
    if {"topic", "partition", "offset"} <= {*rows.column_names}:
        topic, partition, offset = (rows.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
        if offset is not None:
            return f"the row of {topic}-{partition}, offset {offset},"
    return f"row {before + row} of {task}"
