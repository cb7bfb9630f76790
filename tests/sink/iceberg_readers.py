"""Random Iceberg tables under random filters, read by others' readers: no row is lost to what a reader passes over.

    python -m tests.sink.iceberg_readers 1000 [FIRST]

plays that many tables, as `tests.sink.delta_readers` does.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNull,
    Or,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table

from keyedwm.core.errors import InputError
from pyspark_wm_sink.tables.publish import publish
from tests.sink import random_tables
from tests.sink.delta_readers import Answers, duckdb_with, in_duck, played_all
from tests.sink.iceberg_sink import catalog_of, how, stage_rows, table_of
from tests.sink.random_tables import Both, Filter, IsIn, by_polars, ids, rows_of

SIGNS = {
    "=": EqualTo, "!=": NotEqualTo, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual,
}  # fmt: skip
PACKAGES = ("polars", "duckdb", "duckdb_extension_avro", "duckdb_extension_iceberg")


def by_pyiceberg(row_filter: Filter) -> BooleanExpression:
    if isinstance(row_filter, Both):
        return (And if row_filter.word == "and" else Or)(by_pyiceberg(row_filter.left), by_pyiceberg(row_filter.right))
    if isinstance(row_filter, random_tables.IsNull):
        return (IsNull if row_filter.is_null else NotNull)(row_filter.column)
    if isinstance(row_filter, IsIn):
        return In(row_filter.column, row_filter.values)
    return SIGNS[row_filter.sign](row_filter.column, row_filter.value)


def readers(table: Table, rows: pa.Table, duck) -> Iterator[tuple[str, Answers, Answers]]:
    """Each reader with what it finds in the table, and in the same rows elsewhere."""
    import polars as pl

    schema = rows.schema
    columns: Schema = table.schema()
    yield (
        "pyiceberg",
        lambda row_filter: ids(table.scan(row_filter=by_pyiceberg(row_filter)).to_arrow()),
        lambda row_filter: ids(
            rows.filter(expression_to_pyarrow(bind(columns, by_pyiceberg(row_filter), case_sensitive=True)))
        ),
    )
    frame = pl.from_arrow(rows)
    types = dict(frame.schema)
    scan = pl.scan_iceberg(StaticTable.from_metadata(table.metadata_location), reader_override="native")
    yield (
        "polars",
        lambda row_filter: ids(scan.filter(by_polars(row_filter, types)).collect()["id"].to_list()),
        lambda row_filter: ids(frame.filter(by_polars(row_filter, types))["id"].to_list()),
    )
    duck.register("rows_of_table", rows)
    duck.execute("CREATE OR REPLACE TABLE own_table AS FROM rows_of_table")

    metadata = f"iceberg_scan('{table.metadata_location}')"
    yield (
        "duckdb",
        lambda row_filter: in_duck(duck, metadata, row_filter, schema),
        lambda row_filter: in_duck(duck, "own_table", row_filter, schema),
    )


def terms_of(random: Random, schema: pa.Schema) -> list[str]:
    """Some partitions by columns that can have them."""
    picked_terms = []
    for field in random.sample(list(schema), random.randint(0, min(2, len(schema)))):
        terms, width = [field.name], random.choice([1, 2, 10, 1_000])
        if pa.types.is_floating(field.type) or pa.types.is_nested(field.type):
            continue
        if not pa.types.is_boolean(field.type):
            terms.append(f"bucket({width}, {field.name})")
        if pa.types.is_temporal(field.type):
            terms += [f"{span}({field.name})" for span in ("year", "month", "day", "hour")]
            terms = [one for one in terms if not (one.startswith("hour") and pa.types.is_date(field.type))]
        elif not pa.types.is_boolean(field.type):
            terms.append(f"truncate({width}, {field.name})")
        picked_terms.append(random.choice(terms))
    return picked_terms


def compare_readers(seed: int, place: Path, duck, filters: int = 12) -> tuple[int, list[str]]:
    """Play one table; returns how many answers were compared, and what was wrong."""
    random = Random(seed)
    tables = rows_of(random, random.randint(1, 4))
    by = terms_of(random, tables[0].schema)
    to = how(place, schema=tables[0].schema, **({"partitionBy": ", ".join(by)} if by else {}))
    written_batches: list[pa.Table] = []
    for rows in tables:
        try:
            message = stage_rows(to, rows, len(written_batches))
        except InputError as error:
            if "which partitions the table by" not in str(error):
                raise
            continue
        publish(to, [message], batch=len(written_batches))
        written_batches.append(rows)
    if not written_batches:
        return 0, []
    every = table_of(place).scan().to_arrow().select(tables[0].schema.names)
    kinds = pa.schema([random_tables.as_in_iceberg(field) for field in tables[0].schema])
    original = pa.concat_tables(written_batches).cast(kinds)
    if every.sort_by("id").to_pylist() != original.to_pylist() and "nan" not in str(original.to_pylist()):
        return 0, [f"seed {seed}, pyiceberg: other rows than were written"]
    compared, wrong = 0, []
    for one in random_tables.filters_of(random, original, filters):
        for name, find, right in readers(table_of(place), original, duck):
            expected, answer = right(one), answer_of(find, one)
            compared += 1
            if "NoneType" in str(answer):
                continue  # PyIceberg's residual of a filter for a null partition
            if answer == expected or is_wrong_of_twin(place, written_batches, original, duck, name, one, expected):
                continue
            wrong.append(f"seed {seed}, {name}: {one}: {answer}, expected {expected}; by {by}")
    return compared, wrong


def answer_of(find: Answers, row_filter: Filter) -> object:
    """Return the answer, or the error in place of one."""
    try:
        return find(row_filter)
    except Exception as error:  # noqa: BLE001 - each reader has its own
        return repr(error)[:200]


def is_wrong_of_twin(
    place: Path, batches: list[pa.Table], rows: pa.Table, duck, reader: str, row_filter: Filter, expected: list[int]
) -> bool:
    """Whether a reader is wrong about a table of the same rows and partitions, too, that PyIceberg wrote by itself."""
    own_table, catalog = table_of(place), catalog_of(place)
    if not catalog.table_exists("db.twin"):
        catalog.create_table("db.twin", own_table.schema(), partition_spec=own_table.spec())
        try:
            for batch in batches:
                catalog.load_table("db.twin").append(batch.cast(rows.schema))
        except (UnicodeEncodeError, OSError):  # a bound, or a directory, that PyIceberg cannot write
            catalog.drop_table("db.twin")
            return False
    find_by_reader = {name: find for name, find, _ in readers(catalog.load_table("db.twin"), rows, duck)}
    return answer_of(find_by_reader[reader], row_filter) != expected


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as _directory:
        played_all(compare_readers, duckdb_with("avro", "iceberg"), *map(int, sys.argv[1:]))
