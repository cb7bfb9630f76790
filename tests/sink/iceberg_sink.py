"""A query's sink to an Iceberg table in SQLite, driven without Spark: tasks and commits are plain calls."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_wm_sink.iceberg import table as iceberg
from pyspark_wm_sink.iceberg.publish import IcebergPublication, iceberg_publication
from pyspark_wm_sink.options.sink_options import SinkOptions, SnapshotMode
from pyspark_wm_sink.tables.rows import with_errors
from tests.sink.table_sink import stage_rows

__all__ = ["stage_rows"]
NAME = "db.t"
COLUMNS = pa.schema([("n", pa.int64())])
KIND = "Iceberg"
LOG = iceberg
CONFLICT = iceberg.ConflictError


def options(place: Path, **more: str) -> dict[str, str]:
    place.mkdir(parents=True, exist_ok=True)
    of_catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{place}/catalog.db"}
    return {"table": NAME, **of_catalog, "catalog.warehouse": str(place), **more}


def catalog_of(place: Path) -> Catalog:
    place.mkdir(parents=True, exist_ok=True)
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{place}/catalog.db", warehouse=str(place))
    catalog.create_namespace_if_not_exists("db")
    return catalog


def table_of(place: Path, name: str = NAME) -> Table:
    return catalog_of(place).load_table(name)


def how(
    place: Path, mode: SnapshotMode = SnapshotMode.BATCH, schema: pa.Schema = COLUMNS, *, overwrite: bool = False,
    **more: str,
) -> IcebergPublication:  # fmt: skip
    catalog_of(place)
    sink_options = SinkOptions.parse(options(place, **{"createTable": "true", "replayCheck": "counts", **more}))
    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return with_errors(
        iceberg_publication, sink_options, sink_options.target, mode, columns, overwrite=overwrite, stream=True
    )


def rows(place: Path) -> list[dict]:
    return table_of(place).scan().to_arrow().to_pylist()


def numbers(place: Path) -> list[int]:
    return sorted(table_of(place).scan().to_arrow().column("n").to_pylist())


def foreign_append(place: Path, *values: int) -> None:
    table_of(place).append(pa.table({"n": pa.array(values, pa.int64())}))


def newest_text(place: Path) -> str:
    return table_of(place).current_snapshot().summary.additional_properties["keyedwm"]


def files(place: Path) -> int:
    return len(list((place / "db" / "t").rglob("*.parquet")))
