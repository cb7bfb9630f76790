"""The partitions of an Iceberg table: which rows belong to which, by the transforms of its spec.

Rule: the value of a partition is the one that PyIceberg's scalar transform gives for each of its rows. Readers compute
it in this way from a filter. A row without such a value is an error: a filter would miss it in any partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote_plus, unquote_plus

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType

from keyedwm.config.validation import wrong
from keyedwm.core.errors import InputError
from pyspark_wm_sink.tables.row_rules import row_place
from pyspark_wm_sink.tables.rows import grouped_by

_TERM = re.compile(r"(\w+)\((?:\s*(\d+)\s*,)?\s*([^(),]+?)\s*\)")
_SPANS = {
    "year": YearTransform(), "years": YearTransform(), "month": MonthTransform(), "months": MonthTransform(),
    "day": DayTransform(), "days": DayTransform(), "hour": HourTransform(), "hours": HourTransform(),
}  # fmt: skip
_SIZED = {"bucket": BucketTransform, "truncate": TruncateTransform}
_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}  # NumPy's, by the words of a transform
_EXPECTED = "a column, or one of year(c), month(c), day(c), hour(c), bucket(N, c), truncate(N, c) is expected"

_NAME_CHARACTERS = 64  # characters of a name or a value in a directory's name

PartitionValues = tuple[object, ...]


def parse_term(term: str) -> tuple[str, Transform]:
    """Read one term of the option partitionBy as (column, transform); raises OptionError."""
    match = _TERM.fullmatch(term)
    if match is None:
        if "(" in term or ")" in term:
            raise wrong("partitionBy", term, _EXPECTED)
        return term, IdentityTransform()
    name, size, column = match[1].lower(), match[2], match[3]
    if size is None and name in _SPANS:
        return column, _SPANS[name]
    if size is not None and 0 < int(size) <= IntegerType.max and name in _SIZED:
        return column, _SIZED[name](int(size))
    raise wrong("partitionBy", term, _EXPECTED)


def add_terms(update: UpdateSpec, terms: Sequence[str]) -> None:
    """Add the option's terms to the spec of a new table."""
    for term in terms:
        column, transform = parse_term(term)
        update.add_field(column, transform)


def spec_terms(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """The spec in the words of the option partitionBy."""
    return tuple(_term(field, schema) for field in _live(spec))


def canonical(terms: Sequence[str]) -> tuple[str, ...]:
    """The option's terms as `spec_terms` words them."""
    return tuple(_worded(transform, column) for column, transform in map(parse_term, terms))


def _term(field: PartitionField, schema: Schema) -> str:
    return _worded(field.transform, str(schema.find_column_name(field.source_id)))


def _worded(transform: Transform, column: str) -> str:
    if isinstance(transform, IdentityTransform):
        return column
    name, _, size = str(transform).rstrip("]").partition("[")
    return f"{name}({size}, {column})" if size else f"{name}({column})"


def _live(spec: PartitionSpec) -> list[PartitionField]:
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def has_float_partitions(metadata: TableMetadata) -> bool:
    """Whether partition values are, or were, floats; PyIceberg 0.12 reads doubles there as 32-bit floats."""
    identities = {
        field.source_id
        for spec in metadata.partition_specs for field in spec.fields if isinstance(field.transform, IdentityTransform)
    }  # fmt: skip
    return any(
        isinstance(schema.find_type(source), FloatType | DoubleType)
        for schema in metadata.schemas for source in identities & schema.field_ids
    )  # fmt: skip


def has_lost_source(spec: PartitionSpec, schema: Schema) -> bool:
    """Whether a column that once partitioned a table of version 1 was dropped: PyIceberg cannot read what it writes."""
    return any(field.source_id not in schema.field_ids for field in spec.fields)


def check_sources(spec: PartitionSpec, schema: Schema, names: Sequence[str], where: str) -> None:
    """Raise InputError for a table that is not partitioned by columns of the rows."""
    if has_lost_source(spec, schema):
        raise InputError(
            f"{where} was partitioned by a column that was dropped since, and PyIceberg cannot read what it would "
            f"write to it: write to another table"
        )
    for field in _live(spec):
        column = schema.find_column_name(field.source_id)
        if field.source_id not in {one.field_id for one in schema.fields}:
            raise InputError(
                f"{where} is partitioned by {_term(field, schema)}, which lies inside a column, and this sink "
                f"partitions rows by columns only: write to another table"
            )
        if column not in names:
            raise InputError(
                f"{where} is partitioned by {_term(field, schema)}, and the rows have no column {column}: add it, or "
                f"write to another table"
            )


def partitions_of(
    rows: pa.Table, spec: PartitionSpec, schema: Schema, *, has_offsets: bool
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Yield the rows of each partition with its values in the order of the spec; void fields are null.

    Raises InputError for a row whose partition has no value, or no name. has_offsets: as in `StagePlan`.
    """
    fields = _live(spec)
    for values, of_partition in grouped_by(rows, [_transformed(rows, field, schema) for field in fields]):
        live = {
            field.field_id: _value_or_refused(field, schema, value, of_partition, has_offsets=has_offsets)
            for field, value in zip(fields, values, strict=True)
        }
        yield tuple(live.get(field.field_id) for field in spec.fields), of_partition


def directory_of(values: PartitionValues, spec: PartitionSpec, schema: Schema) -> str:
    """Return the partition as text for a file's address, each name and value cut to what file systems accept."""
    parts = spec.partition_to_path(Record(*values), schema).split("/")
    return "/".join("=".join(map(_short_word, part.split("=", 1))) for part in parts)


def _short_word(word: str) -> str:
    """Return the first characters of a word, encoded for addresses; no character is cut in two."""
    if len(word) <= _NAME_CHARACTERS:
        return word
    return quote_plus(unquote_plus(re.sub("%.?$", "", word[:_NAME_CHARACTERS]), errors="ignore"), safe="")


def _transformed(rows: pa.Table, field: PartitionField, schema: Schema) -> pa.ChunkedArray:
    """Return the values of a field of the spec; whole numbers as 64 bits, so that values beyond the type show."""
    source = schema.find_field(field.source_id)
    column = rows.column(source.name).combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    unit = _UNITS.get(str(field.transform))
    if unit is not None:
        return pa.chunked_array([_units(column, unit)])
    if isinstance(field.transform, TruncateTransform) and pa.types.is_integer(column.type):
        numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
        return pa.chunked_array([pa.array(numbers - numbers % field.transform.width, mask=_nulls(column))])
    values = field.transform.pyarrow_transform(source.field_type)(column)
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _units(times: pa.Array, unit: str) -> pa.Array:
    """Years, months, days or hours since 1970, rounded down: PyIceberg's compiled transforms are wrong before 1970."""
    is_date = pa.types.is_date(times.type)
    numbers = times.view(pa.int32() if is_date else pa.int64()).cast(pa.int64()).fill_null(0).to_numpy()
    units = numbers.view("M8[D]" if is_date else "M8[us]").astype(f"M8[{unit}]").view(np.int64)
    return pa.array(units, mask=_nulls(times))


def _nulls(column: pa.Array) -> np.ndarray:
    return column.is_null().to_numpy(zero_copy_only=False)


def _value_or_refused(
    field: PartitionField, schema: Schema, value: pa.Scalar, rows: pa.Table, *, has_offsets: bool
) -> object:
    """Return the value of a partition for PyIceberg; raises InputError that names the first of its rows."""
    try:
        return _checked(field, schema, value, rows)
    except (ArithmeticError, UnicodeError) as error:
        column = schema.find_column_name(field.source_id)
        raise InputError(
            f"column {column}, which partitions the table by {_term(field, schema)}, holds "
            f"{_raw(rows.column(column)[0])!r} in a row{row_place(rows, 0, has_offsets=has_offsets)}, and {error}: "
            f"leave such rows out, or partition the table otherwise"
        ) from error


def _checked(field: PartitionField, schema: Schema, value: pa.Scalar, rows: pa.Table) -> object:
    """Raise ArithmeticError or UnicodeError for a value that no partition can have."""
    if not value.is_valid:
        return None
    source = schema.find_field(field.source_id)
    kind = field.transform.result_type(source.field_type)
    record_value = partition_record_value(field, _raw(value), schema)
    if isinstance(kind, DecimalType) and len(record_value.as_tuple().digits) > kind.precision:
        raise OverflowError(f"{record_value} is more than {kind} can hold")
    if pa.types.is_int64(value.type) and not isinstance(field.transform, IdentityTransform):
        limits = LongType if isinstance(kind, LongType) else IntegerType
        is_wrapped = (
            isinstance(field.transform, TruncateTransform) and record_value > rows.column(source.name)[0].as_py()
        )
        if is_wrapped or not limits.min <= record_value <= limits.max:
            raise OverflowError(f"its partition is beyond the numbers that {kind} can hold")
    try:
        field.transform.to_human_string(source.field_type, record_value)  # PyIceberg's commit asks for these words
    except OverflowError:
        raise OverflowError("PyIceberg writes only the years 1 to 9999 as such partitions") from None
    return record_value


def _raw(value: pa.Scalar) -> object:
    """The value as Python's; times as numbers, since Python's end with the year 9999."""
    return value.value if pa.types.is_temporal(value.type) else value.as_py()
