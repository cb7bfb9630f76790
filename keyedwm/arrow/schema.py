"""The row schema in Arrow (docs/design/rows.md), exactly as Spark's own conversion writes it.

Rule: the order of columns is fixed; `columns` only selects some of them. Timestamps are microseconds in UTC. The column
`rejected` is a struct with at least the place of a rejected record or message, and the reason. Any other column called
`rejected` is the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core import rows
from keyedwm.core.errors import InputError
from keyedwm.core.places import DecimalType, Field, FieldType
from keyedwm.core.rows import REASON, REJECTED

# The type of a record's headers, as in Spark's Kafka source: in rows read, and in rows written.
HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
TIMESTAMP = pa.timestamp("us", "UTC")
US_PER_MS = 1_000
CONTROL_TYPE = pa.struct(
    [
        pa.field("kind", pa.string()),
        pa.field("key", pa.int8()),
        pa.field("watermark", TIMESTAMP),
        pa.field("channel", pa.string()),
        pa.field("snapshot", pa.int64()),
        pa.field("channels", pa.int32()),
        pa.field("source", pa.string()),
    ]
)
CONTROL_TYPE_1 = pa.struct([field for field in CONTROL_TYPE if field.name in rows.CONTROL_FIELDS_1])

_KAFKA = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
}
# The column of a rejected record: the whole record and the reason. Other columns of the row are null.
RECORD_TYPE = pa.struct([*_KAFKA.items(), (rows.HEADERS, HEADERS_TYPE)])
REJECTED_TYPE = pa.struct([*RECORD_TYPE, pa.field(rows.REASON, pa.string())])

_FIELD_TYPES = {
    FieldType.STRING: pa.string(), FieldType.BIGINT: pa.int64(), FieldType.DOUBLE: pa.float64(),
    FieldType.BOOLEAN: pa.bool_(), FieldType.TIMESTAMP: TIMESTAMP, FieldType.DATE: pa.date32(),
    FieldType.BINARY: pa.binary(),
}  # fmt: skip


def arrow_type(kind: FieldType | DecimalType) -> pa.DataType:
    """Return the type of a field's column."""
    return pa.decimal128(kind.precision, kind.scale) if isinstance(kind, DecimalType) else _FIELD_TYPES[kind]


def field_schema(fields: Mapping[str, Field]) -> list[pa.Field]:
    """Return the column of each field that has a type; a field without one is a column of the source already."""
    return [pa.field(name, arrow_type(field.kind)) for name, field in fields.items() if field.kind is not None]


def row_schema(
    axes: Sequence[str],
    *,
    headers: bool,
    control: bool,
    columns: Sequence[str] | None = None,
    rejected: bool = False,
    fields: Sequence[pa.Field] = (),
) -> pa.Schema:
    """Return the schema of the rows.

    axes: names of the time axes; one unnamed axis is `("",)` and gives `event_time` and `watermark`.
    rejected: whether the rows have the column `rejected`.
    columns: the names to keep, in any case and order, None for all; the rows' order stays (docs/design/rows.md).
    fields: columns that are read out of keys and values, behind the columns of the record; all of them stay.
    """
    record = [pa.field(name, kind) for name, kind in _KAFKA.items()]
    if headers:
        record.append(pa.field(rows.HEADERS, HEADERS_TYPE))
    added = [pa.field(axis_column(rows.EVENT_TIME, axis), TIMESTAMP) for axis in axes]
    added += [pa.field(axis_column(rows.WATERMARK, axis), TIMESTAMP) for axis in axes]
    if control:
        added.append(pa.field(rows.CONTROL, CONTROL_TYPE))
    if rejected:
        added.append(pa.field(rows.REJECTED, REJECTED_TYPE))
    if columns is not None:
        lower_names = {c.lower() for c in columns}
        record, added = ([one for one in some if one.name.lower() in lower_names] for some in (record, added))
    return pa.schema([*record, *fields, *added])


def axis_column(base: str, axis: str) -> str:
    """Name the column of an axis: `event_time`, or `event_time_NAME` with several axes."""
    return f"{base}_{axis}" if axis else base


def with_control_rows(fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the schema of rows that include control rows: every column can be null, whatever its field declares."""
    return pa.schema([field.with_nullable(nullable=True) for field in fields])


def nullable(field: pa.Field) -> pa.Field:
    """Return the field as nullable, with everything inside it except the keys of maps."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([nullable(one) for one in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, nullable(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(nullable(kind.value_field))
    return field.with_type(kind).with_nullable(nullable=True)


_REJECT_FIELDS = ("topic", "partition", "offset", REASON)


def is_rejected_type(kind: pa.DataType) -> bool:
    """Return whether a column `rejected` of this type has rejected records; else it is the user's own."""
    return pa.types.is_struct(kind) and all(kind.get_field_index(name) >= 0 for name in _REJECT_FIELDS)


def together(kinds: Iterable[pa.StructType], caller: str) -> pa.StructType | None:
    """Return a struct with the fields of all `kinds`, the reason last; None if there are no kinds.

    Raises InputError if fields with the same name differ in type.
    """
    types: dict[str, pa.DataType] = {}
    for kind in kinds:
        for field in kind:
            known = types.setdefault(field.name, field.type)
            if known != field.type:
                raise InputError(
                    f"{caller}: {field.name} of the records in column {REJECTED} is {known} in one input and "
                    f"{field.type} in another: give the column of messages another name, or cast it to {known}"
                )
    if not types:
        return None
    types[REASON] = types.pop(REASON)
    return pa.struct(list(types.items()))


def fitted(records: pa.Array, kind: pa.StructType) -> pa.Array:
    """Cast records to a type that has more fields, which become null, or timestamps in another zone."""
    present = {field.name for field in records.type}
    arrays = [
        pc.struct_field(records, field.name).cast(field.type)
        if field.name in present
        else pa.nulls(len(records), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=records.is_null())
