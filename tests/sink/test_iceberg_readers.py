"""Tables that the sink wrote, as other readers of Iceberg see them: the same rows, whatever partitions the table."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from pyspark_wm_sink.tables.publish import publish
from tests.sink.delta_readers import duckdb_with
from tests.sink.iceberg_sink import how, stage_rows, table_of
from tests.sink.test_iceberg_tables import ROWS

LATER = "SELECT id FROM t WHERE \"at\" >= TIMESTAMPTZ '2024-01-02 00:00:00+00'"


def by_pyiceberg(metadata: str) -> tuple[pa.Table, list[int]]:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata)
    later = table.scan(row_filter="at >= '2024-01-02T00:00:00+00:00'").to_arrow()
    return table.scan().to_arrow(), later.column("id").to_pylist()


def by_polars(metadata: str) -> tuple[pa.Table, list[int]]:
    """Its own reader of the Parquet files, and of their field ids."""
    import polars as pl

    rows = pl.scan_iceberg(metadata, reader_override="native")
    later = rows.filter(pl.col("at") >= pl.datetime(2024, 1, 2, time_zone="UTC"))
    return rows.collect().to_arrow(), later.collect()["id"].to_list()


def by_duckdb(metadata: str) -> tuple[pa.Table, list[int]]:
    connection = duckdb_with("avro", "iceberg")
    connection.execute(f"CREATE VIEW t AS FROM iceberg_scan('{metadata}')")
    rows = connection.execute("SELECT * FROM t").to_arrow_table()
    return rows, [number for (number,) in connection.execute(LATER).fetchall()]


# What each is read with.
READERS: dict[str, tuple[Callable[[str], tuple[pa.Table, list[int]]], tuple[str, ...]]] = {
    "pyiceberg": (by_pyiceberg, ()),
    "polars": (by_polars, ("polars",)),
    "duckdb": (by_duckdb, ("duckdb", "duckdb_extension_avro", "duckdb_extension_iceberg")),
}


@pytest.fixture(scope="module", params=["", "day(at), bucket(4, id)"])
def metadata(request, tmp_path_factory) -> str:
    """Three batches: the second of a table that others have given a column, the last after the first has expired."""
    place = tmp_path_factory.mktemp("lake")
    to = how(place, schema=ROWS.schema, **({"partitionBy": request.param} if request.param else {}))
    publish(to, [stage_rows(to, ROWS.slice(0, 1))], batch=0)
    first = table_of(place).current_snapshot().snapshot_id
    with table_of(place).update_schema() as update:
        update.add_column("new", StringType())
        update.rename_column("text", "words")
    publish(to, [stage_rows(to, ROWS.slice(1, 1), 1)], batch=1)
    table_of(place).maintenance.expire_snapshots().by_ids([first]).commit()
    publish(to, [stage_rows(to, ROWS.slice(2), 2)], batch=2)
    return table_of(place).metadata_location


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Iceberg scan planning")
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_sees_the_rows_as_they_were(reader, metadata):
    read, packages = READERS[reader]
    for package in packages:
        pytest.importorskip(package, reason="make install, or pip install 'keyedwm[test]', brings the readers")
    first_rows, later = read(metadata)
    rows = sorted(first_rows.to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"new": None} | {("words" if name == "text" else name): value for name, value in row.items()}
        for row in ROWS.to_pylist()
    ]
    assert later == [2]
