"""A frame's columns as those of a Delta table.

Rule: everything may be null, however deep: what Spark knows of one batch's nulls is no promise about the next one's. A
type that readers of Delta tables do not know is refused, not turned into something else.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from keyedwm.core.errors import InputError
from keyedwm.core.rows import CONTROL

_STRANGERS = frozenset({"void", "variant", "yearmonthinterval", "geometry", "geography"})


def table_columns(schema: StructType, *, drop_control: bool) -> pa.Schema:
    """Return the table's columns; raises InputError for names it cannot tell apart and types it cannot hold."""
    doubled = [name for name, count in Counter(name.lower() for name in schema.fieldNames()).items() if count > 1]
    if doubled:
        raise InputError(f"the rows have several columns named {doubled[0]}, a table needs one of each name")
    fields = [field for field in schema.fields if not (drop_control and field.name == CONTROL)]
    if not fields:
        raise InputError("the rows have no column besides control, a table needs at least one")
    return pa.schema([_column(field) for field in fields])


def _column(field: StructField) -> pa.Field:
    stranger = _stranger(field.dataType)
    if stranger is not None:
        raise InputError(
            f"column {field.name} has type {field.dataType.simpleString()}, and a Delta table cannot hold "
            f"{stranger.simpleString()}: cast it"
        )
    frame = StructType([StructField(field.name, _nullable(field.dataType))])
    return to_arrow_schema(frame, timezone="UTC").field(0).remove_metadata()


def _stranger(kind: DataType) -> DataType | None:
    """Return the first part of a type that Spark hands over not at all, or as another type."""
    if kind.typeName() in _STRANGERS or (isinstance(kind, StructType) and not kind.fields):
        return kind
    return next((found for part in _parts(kind) if (found := _stranger(part)) is not None), None)


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
