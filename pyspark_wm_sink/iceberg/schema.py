"""The columns of an Iceberg table: as Spark's types, for the check of the rows, and as the columns of a file.

Rule: a file names its columns by the table's field ids, so that it reads the same after columns were renamed, moved or
added. A file has the columns of the rows, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_wm_sink.tables.schema_check import Fields

# Iceberg's name of a type → Spark's name of the same type.
_SPARK_NAMES = {"int": "integer"}
_DEFAULT = {"CURRENT_DEFAULT": "write-default"}


def rows_fields(columns: pa.Schema) -> Fields:
    """The columns of the rows as Spark's types."""
    return from_arrow_schema(columns, prefer_timestamp_ntz=True).jsonValue()["fields"]


def table_fields(schema: Schema) -> Fields:
    """The columns of the table as Spark's types; types that Spark does not have keep Iceberg's names."""
    return [_field(field, is_column=True) for field in schema.fields]


def _field(field: NestedField, *, is_column: bool = False) -> dict:
    kind = _kind(field.field_type)
    if isinstance(field.field_type, UUIDType) and not is_column:
        kind = "uuid inside a column"
    return {
        "name": field.name,
        "type": kind,
        "nullable": not field.required,
        "metadata": {} if field.write_default is None else _DEFAULT,
    }


def _kind(kind: IcebergType) -> str | dict:
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_field(field) for field in kind.fields]}
    if isinstance(kind, ListType):
        element = _field(kind.element_field)["type"]
        return {"type": "array", "elementType": element, "containsNull": not kind.element_required}
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "keyType": _field(kind.key_field)["type"],
            "valueType": _field(kind.value_field)["type"],
            "valueContainsNull": not kind.value_required,
        }
    if isinstance(kind, TimestamptzType):
        return "timestamp"
    if isinstance(kind, TimestampType):
        return "timestamp_ntz"
    text = str(kind).replace(" ", "")
    return _SPARK_NAMES.get(text, text)


def written_schema(schema: Schema, names: Sequence[str]) -> Schema:
    """The table's fields that a file holds, by the names of the rows' columns, with the table's ids and types."""
    return Schema(*(schema.find_field(name) for name in names), schema_id=schema.schema_id)


def file_columns(schema: Schema) -> pa.Schema:
    """The Arrow columns of a file, each with its field id; texts and lists have Arrow's usual types, as rows have."""
    return pa.schema([_small(field) for field in schema_to_pyarrow(schema, include_field_ids=True)])


def _small(field: pa.Field) -> pa.Field:
    return field.with_type(_small_type(field.type))


def _small_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_small(kind.field(at)) for at in range(kind.num_fields)])
    return kind


def keep_table_types(columns: pa.Schema, table: Schema) -> pa.Schema:
    """The rows' columns; those that the table has, at any depth, get the table's type and nullability.

    So a union only adds new columns. A union with the rows' own schema would make required columns of the table
    optional and try to change column types.
    """
    there = schema_to_pyarrow(table, include_field_ids=False)
    return pa.schema([_as_there(field, there) for field in columns])


def _as_there(field: pa.Field, fields: pa.Schema | pa.StructType) -> pa.Field:
    at = fields.get_field_index(field.name)
    return field if at < 0 else _joined(field, fields.field(at))


def _joined(here: pa.Field, there: pa.Field) -> pa.Field:
    kind, new = there.type, here.type
    if pa.types.is_struct(kind):
        return there.with_type(pa.struct([_as_there(new.field(at), kind) for at in range(new.num_fields)]))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return there.with_type(pa.list_(_joined(new.value_field, kind.value_field)))
    if pa.types.is_map(kind):
        parts = _joined(new.key_field, kind.key_field), _joined(new.item_field, kind.item_field)
        return there.with_type(pa.map_(*parts))
    return there


def changed_field(files_schema: Schema, table: Schema) -> str | None:
    """Name the first field in which staged files do not fit the table.

    The table lacks the field or has a type that cannot read it, or the table requires the field and the files lack it.
    """
    for field in files_schema.fields:
        now = next((one for one in table.fields if one.field_id == field.field_id), None)
        if now is None or not _reads(now, field):
            return field.name
    ids_in_files = {field.field_id for field in files_schema.fields}
    return next((one.name for one in table.fields if one.required and one.field_id not in ids_in_files), None)


def _reads(now: NestedField, file_field: NestedField) -> bool:
    """Whether values of a staged field can be read as values of the table's field of the same id."""
    if now.required and not file_field.required:
        return False
    if isinstance(now.field_type, PrimitiveType) or isinstance(file_field.field_type, PrimitiveType):
        return now.field_type == file_field.field_type
    if type(now.field_type) is not type(file_field.field_type):
        return False
    fields = {field.field_id: field for field in _inside(now.field_type)}
    by_id = {field.field_id: field for field in _inside(file_field.field_type)}
    if any(field.required and number not in by_id for number, field in fields.items()):
        return False
    return all(number in fields and _reads(fields[number], one) for number, one in by_id.items())


def _inside(kind: IcebergType) -> Sequence[NestedField]:
    if isinstance(kind, ListType):
        return [kind.element_field]
    if isinstance(kind, MapType):
        return [kind.key_field, kind.value_field]
    return kind.fields if isinstance(kind, StructType) else []
