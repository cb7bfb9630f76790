"""Rows with columns of every kind, tables with partitions of every kind, and libraries of others that read them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from pyspark_wm_sink.tables.publish import publish
from tests.sink import delta_readers, iceberg_sink
from tests.sink.delta_readers import duckdb_with
from tests.sink.iceberg_sink import table_of
from tests.sink.random_tables import KINDS, TIMES, as_in_iceberg
from tests.sink.table_sink import stage_rows

COUNT = 24  # rows, two for each text
TEXTS = [
    "x/y=1%",
    "é'",
    " ",
    "a:b",
    "..",
    "%20",
    "a+b c",
    "你𠮷",
    '"q"',
    "\\",
    "#?&;",
    "{}[]^*",
    "",
    "\t\n",
    "NULL",
    "ß.=~",
]
NAMES = {
    pa.int8(): "i8", pa.int16(): "i16", pa.int32(): "i32", pa.int64(): "i64", pa.float32(): "f32",
    pa.float64(): "f64", pa.string(): "text", pa.binary(): "raw", pa.bool_(): "flag", pa.date32(): "day",
    pa.timestamp("us", "UTC"): "at", pa.timestamp("us"): "local", pa.decimal128(9, 2): "d9",
    pa.decimal128(20, 3): "d20", pa.decimal128(38, 0): "d38", pa.decimal128(38, 18): "d38_18",
}  # fmt: skip
LEAVES = pa.struct([
    ("flag", pa.bool_()), ("f", pa.float64()), ("price", pa.decimal128(20, 3)), ("raw", pa.binary()),
    ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("text", pa.string()),
])  # fmt: skip
LEAF = {
    "flag": True, "f": math.inf, "price": Decimal("-1.250"), "raw": b"\x00\xff", "day": date(1, 1, 1),
    "at": TIMES[0].replace(tzinfo=timezone.utc), "local": TIMES[-1], "text": "é",
}  # fmt: skip
PAIR = {"key", "value"}
NO_LEAF = dict.fromkeys(LEAF)
NESTED: dict[str, tuple[pa.DataType, list]] = {
    "struct": (LEAVES, [LEAF, NO_LEAF, None]),
    "list": (pa.list_(pa.int64()), [[1, None, 2**63 - 1], [], None, [None]]),
    "times": (pa.list_(pa.timestamp("us", "UTC")), [[LEAF["at"], None], None]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("k", math.nan), ("", None)], [], None]),
    "days": (pa.map_(pa.int32(), pa.date32()), [[(-1, date(9999, 12, 31))], None]),
    "deep": (
        pa.list_(pa.map_(pa.string(), pa.struct([("s", LEAVES), ("l", pa.list_(pa.list_(pa.string())))]))),
        [[[("a", {"s": LEAF, "l": [["x", None], [], None]}), ("b", None)], [], None], [], None],
    ),
    "none": (pa.int64(), [None]),
}
DELTA_PARTITIONS = ("", "word", "day", "i32", "i64", "flag", "at", "local", "word, day")
ICEBERG_PARTITIONS = (
    "", "word", "day", "i32", "flag", "at", "local", "d9", "raw", "year(day)", "month(local)", "day(at)", "hour(local)",
    "bucket(4, i64)", "bucket(4, text)", "bucket(4, raw)", "bucket(4, d20)", "bucket(4, day)", "bucket(4, at)",
    "truncate(10, i64)", "truncate(3, text)", "truncate(3, raw)", "truncate(50, d9)", "day(at), bucket(4, word)",
)  # fmt: skip


def _column(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(islice(cycle(values), COUNT), kind)


def rows() -> pa.Table:
    """Return rows whose columns have the edges of their type, and nulls."""
    columns = {"id": pa.array(range(COUNT), pa.int64()), "word": _column([*TEXTS, None], pa.string())}
    columns |= {name: _column([*KINDS[kind], None], kind) for kind, name in NAMES.items()}
    columns |= {name: _column(values, kind) for name, (kind, values) in NESTED.items()}
    return pa.table(columns)


def write_delta(place: Path, by: str, batches: int = 2) -> pa.Table:
    """Write the rows to a Delta table; return them as readers must see them."""
    every = rows()
    to = delta_readers.how(place, every.schema, **({"partitionBy": by} if by else {}))
    _write(to, every, batches)
    if "word" in by:  # Delta's log has no empty text
        texts = [word or None for word in every.column("word").to_pylist()]
        every = every.set_column(every.schema.get_field_index("word"), "word", pa.array(texts, pa.string()))
    return every


def write_iceberg(place: Path, by: str, batches: int = 2) -> pa.Table:
    """Write the rows to an Iceberg table; return them as readers must see them."""
    every = rows()
    if by.startswith("truncate"):  # the sink rejects the lowest numbers, because no such partition has them
        column = every.column(by.split(", ")[1].rstrip(")"))
        least = pa.array(KINDS[column.type][:2], column.type)
        every = every if pa.types.is_string(column.type) else every.filter(pc.invert(pc.is_in(column, least)))
    to = iceberg_sink.how(place, schema=every.schema, **({"partitionBy": by} if by else {}))
    _write(to, every, batches)
    return every.cast(pa.schema(map(as_in_iceberg, every.schema)))


def _write(to: Any, every: pa.Table, batches: int) -> None:
    count = -(-len(every) // batches)
    for batch in range(batches):
        publish(to, [stage_rows(to, every.slice(batch * count, count), batch)], batch=batch)


def cells(table: pa.Table) -> list[dict]:
    """Return the rows by id; a value has one form, whatever types a reader has."""
    rows = ({name: _cell(value) for name, value in row.items()} for row in table.to_pylist())
    return sorted(rows, key=lambda row: int(row["id"]))


def wrong_cells(rows: pa.Table, written_rows: pa.Table) -> list[str]:
    """Return how the rows of a reader differ from those that were written, a line for a cell."""
    answer, original = cells(rows), cells(written_rows)
    if [row["id"] for row in answer] != [row["id"] for row in original]:
        return [f"rows {[row['id'] for row in answer]} instead of {[row['id'] for row in original]}"]
    return [
        f"row {right['id']}, {name}: {row.get(name)!r} instead of {right[name]!r}"
        for row, right in zip(answer, original, strict=True) for name in right if row.get(name) != right[name]
    ]  # fmt: skip


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cell(one) for name, one in value.items()}
    if isinstance(value, list | tuple):  # a map is a list of pairs, to Polars of structs
        return [_cell([*one.values()] if isinstance(one, dict) and set(one) == PAIR else one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat() if value.tzinfo else value.isoformat()
    return None if value is None else repr(value)  # NaN, the scale of decimals, the sign of 0.0


def _polars_delta(place: Path) -> pa.Table:
    return importlib.import_module("polars").scan_delta(str(place)).collect().to_arrow()


def _polars_iceberg(place: Path) -> pa.Table:
    scan = importlib.import_module("polars").scan_iceberg
    return scan(table_of(place).metadata_location, reader_override="native").collect().to_arrow()


def _duckdb_delta(place: Path) -> pa.Table:
    return duckdb_with("delta").execute(f"FROM delta_scan('{place}')").to_arrow_table()


def _duckdb_iceberg(place: Path) -> pa.Table:
    scan = f"FROM iceberg_scan('{table_of(place).metadata_location}')"
    return duckdb_with("avro", "iceberg").execute(scan).to_arrow_table()


def _deltalake_sql(place: Path) -> pa.Table:
    return pa.table(QueryBuilder().register("t", DeltaTable(place)).execute("SELECT * FROM t").read_all())


Reader = Callable[[Path], pa.Table]
DELTA_READERS: dict[str, Reader] = {
    "deltalake": lambda place: DeltaTable(place).to_pyarrow_table(),
    "deltalake's SQL": _deltalake_sql,
    "duckdb": _duckdb_delta,
    "polars": _polars_delta,
}
ICEBERG_READERS: dict[str, Reader] = {
    "pyiceberg": lambda place: table_of(place).scan().to_arrow(),
    "duckdb": _duckdb_iceberg,
    "polars": _polars_iceberg,
}
