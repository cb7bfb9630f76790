"""Random Delta tables under random filters, read by others' readers: no row is lost to what a reader passes over.

    python -m tests.sink.delta_readers 1000 [FIRST]

plays that many tables. A reader's answer from the table is compared with its own answer from the same rows where
nothing can be passed over: in memory, or in a file without bounds.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.transaction import AddAction
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_wm_sink.delta.publish import delta_publication
from pyspark_wm_sink.options.sink_options import SinkOptions, SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.rows import with_errors
from tests.sink.random_tables import (
    Filter,
    by_arrow,
    by_polars,
    by_sql,
    filters_of,
    ids,
    in_datafusion,
    in_duckdb,
    rows_of,
)
from tests.sink.table_sink import stage_rows

Answers = Callable[[Filter], list[int]]
PACKAGES = ("polars", "duckdb", "duckdb_extension_delta")


def how(place: Path | str, schema: pa.Schema, **more: str):
    sink_options = SinkOptions.parse({"path": str(place), "replayCheck": "counts", **more})
    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return with_errors(
        delta_publication, sink_options, sink_options.target, SnapshotMode.BATCH, columns, overwrite=False, stream=True
    )


def duckdb_with(*extensions: str):
    """DuckDB with extensions that packages of PyPI bring, unsigned."""
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in extensions:
        package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__ or "").parent
        connection.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def readers(place: Path, rows: pa.Table, duck) -> Iterator[tuple[str, Answers, Answers]]:
    """Each reader with what it finds in the table, and in the same rows elsewhere."""
    import polars as pl

    schema, table = rows.schema, DeltaTable(place)
    dataset = table.to_pyarrow_dataset()
    yield (
        "pyarrow",
        lambda row_filter: ids(dataset.to_table(filter=by_arrow(row_filter, schema))),
        lambda row_filter: ids(rows.filter(by_arrow(row_filter, schema))),
    )
    frame = pl.from_arrow(rows)
    types = dict(frame.schema)

    def in_frame(row_filter: Filter) -> list[int]:
        return ids(frame.filter(by_polars(row_filter, types))["id"].to_list())

    native = (
        [] if any("values-in-the-log" in one for one in table.file_uris()) else [("polars", pl.scan_delta(str(place)))]
    )
    for name, scan in (*native, ("polars, by pyarrow", pl.scan_delta(str(place), use_pyarrow=True))):
        yield (
            name,
            lambda row_filter, scan=scan: ids(scan.filter(by_polars(row_filter, types)).collect()["id"].to_list()),
            in_frame,
        )

    def by_duckdb(source: str) -> Answers:
        return lambda row_filter: in_duck(duck, source, row_filter, schema)

    duck.register("rows_of_table", rows)
    duck.register("dataset_of_table", dataset)
    duck.execute("CREATE OR REPLACE TABLE own_table AS FROM rows_of_table")
    yield "duckdb, by pyarrow", by_duckdb("dataset_of_table"), by_duckdb("rows_of_table")
    yield "duckdb", by_duckdb(f"delta_scan('{place}')"), by_duckdb("own_table")
    plain = twin(place.with_name(f"{place.name}-plain"), rows)

    def by_datafusion(of: DeltaTable) -> Answers:
        query = QueryBuilder().register("t", of)

        def answer(row_filter: Filter) -> list[int]:
            sql = f"SELECT id FROM t WHERE {by_sql(row_filter, schema, in_datafusion)}"  # noqa: S608
            return ids(pa.table(query.execute(sql).read_all()))

        return answer

    yield "deltalake", by_datafusion(table), by_datafusion(plain)


def in_duck(duck, source: str, row_filter: Filter, schema: pa.Schema) -> list[int]:
    sql = f"SELECT id FROM {source} WHERE {by_sql(row_filter, schema, in_duckdb)}"  # noqa: S608
    return ids([number for (number,) in duck.execute(sql).fetchall()])


def twin(place: Path, rows: pa.Table) -> DeltaTable:
    """A table of the same rows of which no reader knows anything before it reads them."""
    DeltaTable.create(str(place), Schema.from_arrow(rows.schema))
    pq.write_table(rows, place / "all.parquet", write_statistics=False)
    size = (place / "all.parquet").stat().st_size
    add = AddAction("all.parquet", size, {}, 1, data_change=True, stats=None)
    DeltaTable(place).create_write_transaction([add], "append", DeltaTable(place).schema())
    return DeltaTable(place)


PROPERTIES = (
    {}, {"delta.dataSkippingNumIndexedCols": "-1"}, {"delta.dataSkippingNumIndexedCols": "2"},
    {"delta.dataSkippingNumIndexedCols": "0"}, {"delta.dataSkippingStatsColumns": "c1, `c0`"},
)  # fmt: skip


def compare_readers(seed: int, place: Path, duck, filters: int = 12) -> tuple[int, list[str]]:
    """Play one table; returns how many answers were compared, and what was wrong."""
    random = Random(seed)
    tables = rows_of(random, random.randint(1, 4))
    schema = tables[0].schema
    could = [field.name for field in schema if field.name != "id" and _can_partition(field.type)]
    by = random.sample(could, random.randint(0, min(2, len(could), len(schema) - 2)))
    more = {"partitionBy": ", ".join(by)} if by else {}
    every = pa.concat_tables(tables)
    if random.random() < 0.4:  # a table of others: its columns in another order, with one that the rows lack
        there = pa.schema(random.sample([*schema, pa.field("extra", pa.int32())], len(schema) + 1))
        DeltaTable.create(
            str(place), Schema.from_arrow(there), partition_by=by, configuration=random.choice(PROPERTIES)
        )
        more["mergeSchema"] = "true"
        every = every.append_column("extra", pa.nulls(len(every), pa.int32()))
    to = how(place, schema, **more)
    for batch, rows in enumerate(tables):
        publish(to, [stage_rows(to, rows, batch)], batch=batch)
    if random.random() < 0.3:
        DeltaTable(place).create_checkpoint()
    every = _as_logged(every, by)
    row_filters, compared, wrong = filters_of(random, every, filters), 0, []
    for name, find, right in readers(place, every, duck):
        for one in row_filters:
            expected, answer = right(one), find(one)
            compared += 1
            if answer != expected:
                wrong.append(f"seed {seed}, {name}: {one}: {answer}, expected {expected}; by {by}, {more}")
    return compared, wrong


def _can_partition(kind: pa.DataType) -> bool:
    return any(of(kind) for of in (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_temporal))


def _as_logged(rows: pa.Table, by: list[str]) -> pa.Table:
    """Texts that partition a table: Delta's log takes an empty one for null."""
    for name in by:
        at, column = rows.schema.get_field_index(name), rows.column(name)
        if pa.types.is_string(column.type):
            rows = rows.set_column(at, name, pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column))
    return rows


def played_all(play: Callable[..., tuple[int, list[str]]], duck, count: int, first: int = 1) -> None:
    """Play tables of consecutive seeds; ends the process with 1 if an answer was wrong."""
    compared, wrong_counts = 0, Counter()
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as place:
            try:
                answers, wrong = play(seed, Path(place) / "t", duck)
            except Exception as error:  # noqa: BLE001 - reported by seed
                answers, wrong = 0, [f"seed {seed}, {type(error).__name__}: {str(error)[:300]}"]
        compared += answers
        for one in wrong:
            wrong_counts[one.split(": ")[0].split(", ", 1)[-1]] += 1
            print(one, flush=True)
    print(f"{compared} answers of {count} tables compared, {wrong_counts.total()} wrong {dict(wrong_counts)}")
    sys.exit(bool(wrong_counts))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    played_all(compare_readers, duckdb_with("delta"), *map(int, sys.argv[1:]))
