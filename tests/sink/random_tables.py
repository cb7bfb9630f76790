"""Random tables, their rows at the edges of all types, and random filters in the words of each reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of local times
TIMES = [
    EPOCH + timedelta(microseconds=us)
    for us in (-86_400_000_001, -86_400_000_000, -999_999, -1, 0, 1, 999, 1_000, 86_399_999_999, 1_704_164_645_000_001)
] + [datetime(1, 1, 1), datetime(1959, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31, 23, 59, 59, 999_999)]  # noqa: DTZ001
TEXTS = ["", "a", "b" * 31, "b" * 32, "b" * 33, "b" * 40 + "é", "é" * 33, "z" * 40, "\ud7ff" * 33, "\uffff" * 40]
TEXTS += ["\U0010ffff" * 33, "\U0010ffff" * 70, "'%\\", "x/y=1", "你" * 30, " ", "A", "𠮷" * 33]
FLOATS = [0.0, -0.0, 1.5, -1.5, 1e300, 5e-324, 0.1]


def whole(bits: int) -> list[int]:
    return [-(2 ** (bits - 1)), 1 - 2 ** (bits - 1), -11, -1, 0, 1, 10, 2 ** (bits - 1) - 1]


def decimals(digits: int, scale: int) -> list[Decimal]:
    most = 10**digits - 1
    numbers = (-most, 1 - most, -101, -1, 0, 1, 100, most)
    return [Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)) for number in numbers]


KINDS: dict[pa.DataType, list] = {
    pa.int8(): whole(8), pa.int16(): whole(16), pa.int32(): whole(32), pa.int64(): whole(64),
    pa.float32(): [*FLOATS[:4], 0.5, 3e38, math.nan, math.inf], pa.float64(): [*FLOATS, math.nan, -math.inf],
    pa.string(): TEXTS, pa.binary(): [text.encode("utf-8", "surrogatepass") for text in TEXTS] + [b"\xff" * 40],
    pa.bool_(): [True, False], pa.date32(): [one.date() for one in TIMES],
    pa.timestamp("us", "UTC"): [one.replace(tzinfo=timezone.utc) for one in TIMES], pa.timestamp("us"): TIMES,
    pa.decimal128(9, 2): decimals(9, 2), pa.decimal128(20, 3): decimals(20, 3),
    pa.decimal128(38, 0): decimals(38, 0), pa.decimal128(38, 18): decimals(38, 18),
}  # fmt: skip
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
NESTED = {STRUCT: [{"a": 1, "b": "x"}, {"a": None, "b": ""}], pa.list_(pa.int64()): [[], [1, None]]}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda left, right: left == right, "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right, "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right, ">=": lambda left, right: left >= right,
}  # fmt: skip


@dataclass(frozen=True)
class Compare:
    """A column beside a value."""

    column: str
    sign: str
    value: Any


@dataclass(frozen=True)
class IsNull:
    """A column that is null, or is not."""

    column: str
    is_null: bool


@dataclass(frozen=True)
class IsIn:
    """A column that is one of some values."""

    column: str
    values: tuple


@dataclass(frozen=True)
class Both:
    """Two filters, joined by "and" or "or"."""

    word: str
    left: Filter
    right: Filter


Filter = Compare | IsNull | IsIn | Both


def rows_of(random: Random, files: int) -> list[pa.Table]:
    """Files of a table: a column `id` and some of random types."""
    kinds = random.sample(list(KINDS), random.randint(1, 6)) + random.sample(list(NESTED), random.randint(0, 1))
    schema = pa.schema([("id", pa.int64()), *((f"c{at}", kind) for at, kind in enumerate(kinds))])
    tables = []
    for file in range(files):
        count = random.randint(1, 5)
        columns = [pa.array(range(file * 10, file * 10 + count), pa.int64())]
        for kind in kinds:
            nulls, choice = random.choice([0, 0.3, 0.3, 1]), KINDS.get(kind) or NESTED[kind]
            some = random.sample(choice, min(len(choice), random.randint(1, 4)))
            values = [None if random.random() < nulls else random.choice(some) for _ in range(count)]
            columns.append(pa.array(values, kind))
        tables.append(pa.Table.from_arrays(columns, schema=schema))
    return tables


def filters_of(random: Random, rows: pa.Table, count: int) -> list[Filter]:
    """Filters by the values in the table, and some others."""
    columns = [field for field in rows.schema if field.type in KINDS]

    def value(field: pa.Field) -> Any:
        there = [one for one in rows.column(field.name).to_pylist() if one is not None]
        literal = random.choice(there if there and random.random() < 0.8 else KINDS[field.type])
        return (
            0.0 if isinstance(literal, float) and math.isnan(literal) else literal
        )  # engines differ in what is above NaN

    def one() -> Filter:
        field = random.choice(columns)
        if random.random() < 0.15:
            return IsNull(field.name, random.random() < 0.5)
        if random.random() < 0.15 and not pa.types.is_floating(field.type):  # some take -0.0 for 0.0, some do not
            return IsIn(field.name, (value(field), value(field)))
        return Compare(field.name, random.choice(list(COMPARE)), value(field))

    filters = [one() for _ in range(count)]
    return [
        Both(random.choice(["and", "or"]), row_filter, one()) if random.random() < 0.3 else row_filter
        for row_filter in filters
    ]


def by_arrow(row_filter: Filter, schema: pa.Schema) -> pc.Expression:
    if isinstance(row_filter, Both):
        left, right = by_arrow(row_filter.left, schema), by_arrow(row_filter.right, schema)
        return left & right if row_filter.word == "and" else left | right
    column, kind = pc.field(row_filter.column), schema.field(row_filter.column).type
    if isinstance(row_filter, IsNull):
        return column.is_null() if row_filter.is_null else column.is_valid()
    if isinstance(row_filter, IsIn):
        return column.isin(pa.array(row_filter.values, kind))
    return COMPARE[row_filter.sign](column, pa.scalar(row_filter.value, kind))


def by_polars(row_filter: Filter, types: dict) -> Any:
    import polars as pl

    if isinstance(row_filter, Both):
        left, right = by_polars(row_filter.left, types), by_polars(row_filter.right, types)
        return left & right if row_filter.word == "and" else left | right
    column, kind = pl.col(row_filter.column), types[row_filter.column]
    if isinstance(row_filter, IsNull):
        return column.is_null() if row_filter.is_null else column.is_not_null()
    if isinstance(row_filter, IsIn):
        return column.is_in(pl.Series(list(row_filter.values), dtype=kind).implode())
    return COMPARE[row_filter.sign](column, pl.lit(pl.Series([row_filter.value], dtype=kind)).first())


def by_sql(row_filter: Filter, schema: pa.Schema, literal: Callable[[Any, pa.DataType], str]) -> str:
    if isinstance(row_filter, Both):
        left, right = (by_sql(one, schema, literal) for one in (row_filter.left, row_filter.right))
        return f"({left}) {row_filter.word} ({right})"
    kind = schema.field(row_filter.column).type
    if isinstance(row_filter, IsNull):
        return f"{row_filter.column} is {'' if row_filter.is_null else 'not '}null"
    if isinstance(row_filter, IsIn):
        return f"{row_filter.column} in ({', '.join(literal(one, kind) for one in row_filter.values)})"
    return f"{row_filter.column} {row_filter.sign} {literal(row_filter.value, kind)}"


def texts(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def in_duckdb(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_binary(kind):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    names = {
        pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
        pa.float32(): "REAL", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN",
        pa.date32(): "DATE", pa.timestamp("us", "UTC"): "TIMESTAMPTZ", pa.timestamp("us"): "TIMESTAMP",
    }  # fmt: skip
    value = format(value, "f") if pa.types.is_decimal(kind) else value
    return f"{texts(value)}::{names.get(kind) or f'DECIMAL({kind.precision},{kind.scale})'}"


def in_datafusion(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_binary(kind):
        return f"X'{value.hex()}'"
    if pa.types.is_string(kind):
        return texts(value)
    if isinstance(value, date):
        value = value.isoformat()
    names = {
        pa.timestamp("us", "UTC"): 'Timestamp(Microsecond, Some("UTC"))', pa.timestamp("us"):
        "Timestamp(Microsecond, None)", pa.date32(): "Date32", pa.float32(): "Float32", pa.float64(): "Float64",
        pa.bool_(): "Boolean",
    }  # fmt: skip
    value = format(value, "f") if pa.types.is_decimal(kind) else value
    name = names.get(kind)
    if name is None:
        name = f"Decimal128({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else f"Int{kind.bit_width}"
    return f"arrow_cast({texts(value)}, {texts(name)})"


def ids(rows: Sequence | pa.Table) -> list[int]:
    return sorted(rows.column("id").to_pylist() if isinstance(rows, pa.Table) else rows)


def as_in_iceberg(field: pa.Field) -> pa.Field:
    """Iceberg has whole numbers of 32 and 64 bits only."""
    return field.with_type(pa.int32()) if field.type in (pa.int8(), pa.int16()) else field
