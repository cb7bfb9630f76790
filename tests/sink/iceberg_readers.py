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
from tests.sink.iceberg_sink import catalog_of, how, staged, table_of
from tests.sink.random_tables import Both, Filter, IsIn, by_polars, ids, rows_of

SIGNS = {
    "=": EqualTo, "!=": NotEqualTo, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual,
}  # fmt: skip
PACKAGES = ("polars", "duckdb", "duckdb_extension_avro", "duckdb_extension_iceberg")


def by_pyiceberg(wanted: Filter) -> BooleanExpression:
    if isinstance(wanted, Both):
        return (And if wanted.word == "and" else Or)(by_pyiceberg(wanted.left), by_pyiceberg(wanted.right))
    if isinstance(wanted, random_tables.IsNull):
        return (IsNull if wanted.is_null else NotNull)(wanted.column)
    if isinstance(wanted, IsIn):
        return In(wanted.column, wanted.values)
    return SIGNS[wanted.sign](wanted.column, wanted.value)


def readers(table: Table, rows: pa.Table, duck) -> Iterator[tuple[str, Answers, Answers]]:
    """Each reader with what it finds in the table, and in the same rows elsewhere."""
    import polars as pl

    schema = rows.schema
    columns: Schema = table.schema()
    yield (
        "pyiceberg",
        lambda wanted: ids(table.scan(row_filter=by_pyiceberg(wanted)).to_arrow()),
        lambda wanted: ids(
            rows.filter(expression_to_pyarrow(bind(columns, by_pyiceberg(wanted), case_sensitive=True)))
        ),
    )
    frame = pl.from_arrow(rows)
    types = dict(frame.schema)
    scan = pl.scan_iceberg(StaticTable.from_metadata(table.metadata_location), reader_override="native")
    yield (
        "polars",
        lambda wanted: ids(scan.filter(by_polars(wanted, types)).collect()["id"].to_list()),
        lambda wanted: ids(frame.filter(by_polars(wanted, types))["id"].to_list()),
    )
    duck.register("rows_of_table", rows)
    duck.execute("CREATE OR REPLACE TABLE own_table AS FROM rows_of_table")

    metadata = f"iceberg_scan('{table.metadata_location}')"
    yield (
        "duckdb",
        lambda wanted: in_duck(duck, metadata, wanted, schema),
        lambda wanted: in_duck(duck, "own_table", wanted, schema),
    )


def terms_of(random: Random, schema: pa.Schema) -> list[str]:
    """Some partitions by columns that can have them."""
    found = []
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
        found.append(random.choice(terms))
    return found


def played(seed: int, place: Path, duck, filters: int = 12) -> tuple[int, list[str]]:
    """Play one table; returns how many answers were compared, and what was wrong."""
    random = Random(seed)
    tables = rows_of(random, random.randint(1, 4))
    by = terms_of(random, tables[0].schema)
    to = how(place, schema=tables[0].schema, **({"partitionBy": ", ".join(by)} if by else {}))
    taken: list[pa.Table] = []
    for rows in tables:
        try:
            message = staged(to, rows, len(taken))
        except InputError as error:
            if "which partitions the table by" not in str(error):
                raise
            continue
        publish(to, [message], batch=len(taken))
        taken.append(rows)
    if not taken:
        return 0, []
    every = table_of(place).scan().to_arrow().select(tables[0].schema.names)
    kinds = pa.schema([random_tables.as_in_iceberg(field) for field in tables[0].schema])
    original = pa.concat_tables(taken).cast(kinds)
    if every.sort_by("id").to_pylist() != original.to_pylist() and "nan" not in str(original.to_pylist()):
        return 0, [f"seed {seed}, pyiceberg: other rows than were written"]
    compared, wrong = 0, []
    for one in random_tables.filters_of(random, original, filters):
        for name, find, right in readers(table_of(place), original, duck):
            expected, found = right(one), asked(find, one)
            compared += 1
            if "NoneType" in str(found):
                continue  # PyIceberg's residual of a filter for a null partition
            if found == expected or is_wrong_of_twin(place, taken, original, duck, name, one, expected):
                continue
            wrong.append(f"seed {seed}, {name}: {one}: {found}, expected {expected}; by {by}")
    return compared, wrong


def asked(find: Answers, wanted: Filter) -> object:
    """Return the answer, or the error in place of one."""
    try:
        return find(wanted)
    except Exception as error:  # noqa: BLE001 - each reader has its own
        return repr(error)[:200]


def is_wrong_of_twin(
    place: Path, batches: list[pa.Table], rows: pa.Table, duck, reader: str, wanted: Filter, expected: list[int]
) -> bool:
    """Whether a reader is wrong about a table of the same rows and partitions, too, that PyIceberg wrote by itself."""
    ours, catalog = table_of(place), catalog_of(place)
    if not catalog.table_exists("db.twin"):
        catalog.create_table("db.twin", ours.schema(), partition_spec=ours.spec())
        try:
            for batch in batches:
                catalog.load_table("db.twin").append(batch.cast(rows.schema))
        except (UnicodeEncodeError, OSError):  # a bound, or a directory, that PyIceberg cannot write
            catalog.drop_table("db.twin")
            return False
    found = {name: find for name, find, _ in readers(catalog.load_table("db.twin"), rows, duck)}
    return asked(found[reader], wanted) != expected


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as _directory:
        played_all(played, duckdb_with("avro", "iceberg"), *map(int, sys.argv[1:]))
