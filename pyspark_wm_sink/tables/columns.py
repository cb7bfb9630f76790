"""The columns of a DataFrame as columns of a table.

Rule: everything may be null, at any depth: the nullability that Spark infers for one batch need not hold for the next
batch. The sink rejects a type that the table's format does not have, and never converts one.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from keyedwm.core.errors import InputError
from keyedwm.core.rows import CONTROL, CONTROL_FIELDS, CONTROL_FIELDS_1

_UNSUPPORTED = frozenset({"void", "variant", "yearmonthinterval", "geometry", "geography"})


def table_columns(schema: StructType, *, drop_control: bool, table: str) -> pa.Schema:
    """Return the columns of a table of the kind that `table` names, such as "a Delta table".

    Raises InputError for names that differ only in case, and for types that the table does not have.
    """
    doubled = [name for name, count in Counter(name.lower() for name in schema.fieldNames()).items() if count > 1]
    if doubled:
        raise InputError(f"the rows have several columns named {doubled[0]}, a table needs one of each name")
    fields = [_as_kept(field) for field in schema.fields if not (drop_control and field.name == CONTROL)]
    if not fields:
        raise InputError("the rows have no column besides control, a table needs at least one")
    return pa.schema([_column(field, table) for field in fields])


def _as_kept(field: StructField) -> StructField:
    """Tables store control rows in version 1, so that one table can have control rows of every version."""
    kind = field.dataType
    if field.name != CONTROL or not isinstance(kind, StructType) or tuple(kind.fieldNames()) != CONTROL_FIELDS:
        return field
    parts = [part for part in kind.fields if part.name in CONTROL_FIELDS_1]
    return StructField(field.name, StructType(parts), field.nullable, field.metadata)


def _column(field: StructField, table: str) -> pa.Field:
    unsupported = _unsupported_part(field.dataType)
    if unsupported is not None:
        raise InputError(
            f"column {field.name} has type {field.dataType.simpleString()}, and {table} cannot hold "
            f"{unsupported.simpleString()}: cast it"
        )
    frame = StructType([StructField(field.name, _nullable(field.dataType))])
    return to_arrow_schema(frame, timezone="UTC").field(0).remove_metadata()


def _unsupported_part(kind: DataType) -> DataType | None:
    """Return the first part of a type that Spark's Arrow writer does not pass on, or passes on as another type."""
    if kind.typeName() in _UNSUPPORTED or (isinstance(kind, StructType) and not kind.fields):
        return kind
    return next((inner for part in _parts(kind) if (inner := _unsupported_part(part)) is not None), None)


def _parts(kind: DataType) -> list[DataType]:
    if isinstance(kind, StructType):
        return [field.dataType for field in kind.fields]
    if isinstance(kind, MapType):
        return [kind.keyType, kind.valueType]
    return [kind.elementType] if isinstance(kind, ArrayType) else []


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind.fields])
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return ArrayType(_nullable(kind.elementType)) if isinstance(kind, ArrayType) else kind
