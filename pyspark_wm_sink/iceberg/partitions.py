"""The partitions of an Iceberg table: which rows belong to which, by the transforms of its spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
from pyiceberg.types import DoubleType, FloatType

from keyedwm.config.validation import wrong
from keyedwm.core.errors import InputError
from pyspark_wm_sink.tables.grouping import grouped_by

_TERM = re.compile(r"(\w+)\((?:\s*(\d+)\s*,)?\s*([^(),]+?)\s*\)")
_SPANS = {
    "year": YearTransform(), "years": YearTransform(), "month": MonthTransform(), "months": MonthTransform(),
    "day": DayTransform(), "days": DayTransform(), "hour": HourTransform(), "hours": HourTransform(),
}  # fmt: skip
_SIZED = {"bucket": BucketTransform, "truncate": TruncateTransform}
_EXPECTED = "a column, or one of year(c), month(c), day(c), hour(c), bucket(N, c), truncate(N, c) is expected"

PartitionValues = tuple[object, ...]


def parse_term(term: str) -> tuple[str, Transform]:
    """Read one term of the option partitionBy as (column, transform); raises OptionError."""
    found = _TERM.fullmatch(term)
    if found is None:
        if "(" in term or ")" in term:
            raise wrong("partitionBy", term, _EXPECTED)
        return term, IdentityTransform()
    name, size, column = found[1].lower(), found[2], found[3]
    if size is None and name in _SPANS:
        return column, _SPANS[name]
    if size is not None and int(size) > 0 and name in _SIZED:
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
    """Whether floats are, or were, the values of partitions; PyIceberg 0.12 reads doubles there as of 32 bits."""
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
    """Raise InputError for a table that is partitioned by something that no column of the rows is."""
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


def partitions_of(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Yield the rows of each partition with its values in the order of the spec; void fields are null."""
    fields = _live(spec)
    for values, of_partition in grouped_by(rows, [_transformed(rows, field, schema) for field in fields]):
        live = {
            field.field_id: partition_record_value(field, _python(field, schema, value), schema)
            for field, value in zip(fields, values, strict=True)
        }
        yield tuple(live.get(field.field_id) for field in spec.fields), of_partition


def directory_of(values: PartitionValues, spec: PartitionSpec, schema: Schema) -> str:
    """The partition in words, as the part of a file's address; raises InputError for times that have none."""
    try:
        return spec.partition_to_path(Record(*values), schema)
    except OverflowError as error:  # PyIceberg's commit asks for these words again
        terms = ", ".join(_term(field, schema) for field in _live(spec))
        raise InputError(
            f"a row has a time beyond the years 1 to 9999, which PyIceberg cannot write as a partition of {terms}: "
            f"leave such rows out, or partition the table by month or year"
        ) from error


def _transformed(rows: pa.Table, field: PartitionField, schema: Schema) -> pa.ChunkedArray:
    source = schema.find_field(field.source_id)
    column = rows.column(source.name).combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    found = field.transform.pyarrow_transform(source.field_type)(column)
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _python(field: PartitionField, schema: Schema, value: pa.Scalar) -> object:
    """The value as PyIceberg takes it; times as numbers, since Python's end with the year 9999."""
    if not value.is_valid:
        return None
    if pa.types.is_temporal(value.type):
        return value.value
    try:
        return value.as_py()
    except (UnicodeDecodeError, OverflowError) as error:
        raise InputError(
            f"column {schema.find_column_name(field.source_id)}, which partitions the table, holds a value that "
            f"cannot be the value of a partition: leave such rows out"
        ) from error
