"""The partitions of a Delta table: which rows belong to which, and how the log writes their values.

Rule: the log defines a file's partition. A value is serialized as the Delta protocol says, so that every reader parses
the same value. A column whose type has no such text cannot partition a table. Polars reads values from the directory's
name, so the name has the same value, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from keyedwm.core.errors import InputError, OptionError
from pyspark_wm_sink.tables.row_rules import row_place
from pyspark_wm_sink.tables.rows import grouped_by

PartitionValues = tuple[str | None, ...]
_NULL = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_NAME = 255  # bytes that a file system takes
_LONGEST_PATH = 512  # an object store takes 1,024, with that of the table
_UNNAMED = "values-in-the-log=1/"  # for values beyond: no column's name, so Polars stops at it with an error
_PREFIX_BYTES = 64


def partitions_of(
    rows: pa.Table, by: Sequence[str], *, has_offsets: bool = False
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Yield the rows of each partition, in the order in which they came; has_offsets: as in `StagePlan`."""
    for values, of_partition in grouped_by(rows, [rows.column(name) for name in by]):
        place = row_place(of_partition, 0, has_offsets=has_offsets)
        yield tuple(_value_text(name, value, place) for name, value in zip(by, values, strict=True)), of_partition


def directory_of(values: Mapping[str, str | None]) -> str:
    """Name a directory for a partition; empty for a table without partitions."""
    parts = [
        f"{quote(name, safe='')}={_NULL if value is None else quote(value, safe='')}/" for name, value in values.items()
    ]
    path = "".join(parts)
    return path if len(path) <= _LONGEST_PATH and all(len(part) <= _LONGEST_NAME for part in parts) else _UNNAMED


def check_columns(by: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """Return the partition columns as the rows spell them; raises OptionError or InputError if one is unsuitable."""
    spelled = {name.lower(): name for name in schema.names}
    for name in by:
        if name.lower() not in spelled:
            raise OptionError(f"option partitionBy: the rows have no column {name} ({', '.join(schema.names)})")
        kind = schema.field(spelled[name.lower()]).type
        if not _can_partition(kind):
            raise InputError(
                f"column {name} has type {kind}, which cannot partition a table: text, whole numbers, "
                f"booleans, dates and timestamps can"
            )
    columns = tuple(spelled[name.lower()] for name in by)
    if len(set(columns)) < len(columns) or len(columns) == len(schema):
        raise OptionError(
            f"option partitionBy: {', '.join(by)} must be different columns, and one column at least must be left"
        )
    return columns


def _can_partition(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _value_text(name: str, value: pa.Scalar, place: str) -> str | None:
    """Return the text of a value in Delta's log, where an empty string means null. place: the row, for errors."""
    try:
        if pa.types.is_timestamp(value.type) and value.is_valid:
            return _timestamp_text(value)
        plain: Any = value.as_py()
    except OverflowError as error:
        unit = "days" if pa.types.is_date(value.type) else f"{value.type.unit} since 1970"
        raise InputError(
            f"column {name}, which partitions the table, holds a time beyond the years 1 to 9999 ({value.value} "
            f"{unit}) in a row{place}. Readers of the log cannot read it: leave such rows out, or partition by "
            f"another column"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"column {name}, which partitions the table, holds bytes that are no text (UTF-8) in a row{place}: "
            f"{value.as_buffer().to_pybytes()[:_PREFIX_BYTES]!r}"
        ) from error
    if plain is None or plain == "":
        return None
    if plain == _NULL:
        raise InputError(
            f"column {name}, which partitions the table, holds the text {_NULL} in a row{place}, which readers "
            f"take for null: give such rows another value"
        )
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def _timestamp_text(value: pa.Scalar) -> str:
    """Write an instant in UTC with the suffix Z: without it readers would apply the time zone of their session.

    Not with strftime: it may write the year 1 as "1", which Spark does not read.
    """
    if value.type.tz is None:
        return str(value.as_py().isoformat(" ", "microseconds"))
    utc = value.cast(pa.timestamp("us", "UTC")).as_py()
    return f"{utc.replace(tzinfo=None).isoformat('T', 'microseconds')}Z"
