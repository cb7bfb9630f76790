"""Tables of the sink with every kind of column and partition, by each reader: each cell, and rows under filters.

Libraries read in this process. Spark runs in an environment of its own, of the newest version that delta-spark and
Iceberg's runtime share: it reads each cell, too, and must find the same rows under a predicate as in a plain file.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.platforms.parts import CACHE, NotServedError, maven_folder
from tests.sink import spark_reader
from tests.sink.delta_spark import CONF, answer_of
from tests.sink.every_column import (
    COUNT,
    DELTA_PARTITIONS,
    DELTA_READERS,
    ICEBERG_PARTITIONS,
    ICEBERG_READERS,
    Reader,
    write_delta,
    write_iceberg,
    wrong_cells,
)
from tests.sink.iceberg_sink import table_of

DELTA, ICEBERG = "io.delta:delta-spark_4.1_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
JARS = {
    DELTA: "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ICEBERG: "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
}  # with the SHA-256 of each
LIBRARIES = ("deltalake", "pyiceberg", "duckdb", "polars")


@dataclass(frozen=True, slots=True)
class Format:
    """How tables of a format are written, which partitions they have, and what reads them.

    location: the address of a table for Spark, by the folder that it was written to.
    """

    write: Callable[..., pa.Table]
    partitions: tuple[str, ...]
    readers: dict[str, Reader]
    location: Callable[[Path], str]


FORMATS = {
    "delta": Format(write_delta, DELTA_PARTITIONS, DELTA_READERS, str),
    "iceberg": Format(
        write_iceberg, ICEBERG_PARTITIONS, ICEBERG_READERS, lambda place: table_of(place).metadata_location
    ),
}


def run(folder: Path) -> str:
    """Read all tables by all readers; raises AssertionError if a cell, or the rows under a filter, are wrong."""
    warnings.simplefilter("ignore")  # of the readers
    wrong, tables, cells, filters = [], 0, 0, 0
    with spark() as server:
        for name, by in ((name, by) for name, one in FORMATS.items() for by in one.partitions):
            place = folder / str(tables)
            # A row is a file of its own where no partition parts them, so that a reader that trusts bounds skips most.
            original = FORMATS[name].write(place, by, 2 if by else COUNT)
            columns = filtered_columns(original.schema, by)
            request = {"kind": name, "table": FORMATS[name].location(place), "columns": columns}
            answers = {"spark": read_by_spark(server, request, original, place)}
            answers |= {reader: wrong_in(read, place, original) for reader, read in FORMATS[name].readers.items()}
            lines = [
                f"{name} by {by or 'nothing'}, {reader}: {one}" for reader, some in answers.items() for one in some
            ]
            print("\n".join(lines) or f"{name} by {by or 'nothing'}: as written by {', '.join(answers)}", flush=True)
            wrong += lines
            tables, cells, filters = (
                tables + 1,
                cells + original.num_rows * original.num_columns,
                filters + len(columns),
            )
    if wrong:
        raise AssertionError(f"{len(wrong)} answers are wrong, the first: {wrong[0]}")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    return (
        f"{tables} tables, {cells} cells, filters of {filters} columns: as written by {', '.join([*versions, *JARS])}"
    )


def filtered_columns(schema: pa.Schema, by: str) -> list[str]:
    """Return the columns that partition a table; of one without partitions, all that have an order."""
    sources = re.findall(r"[a-z]\w*(?!\w|\()", by)
    return sources or [field.name for field in schema if not pa.types.is_nested(field.type)]


def read_by_spark(server: subprocess.Popen, request: dict, original: pa.Table, place: Path) -> list[str]:
    """Return the cells that Spark reads otherwise, and the predicates under which it misses or adds rows."""
    files = {"plain": str(place / "plain.parquet"), "cells": str(place / "cells.arrow")}
    pq.write_table(original, files["plain"], write_statistics=False)
    server.stdin.write(json.dumps(request | files) + "\n")
    server.stdin.flush()
    answer = answer_of(server)
    if isinstance(answer, str):
        return [answer]
    return [*answer, *wrong_in(lambda _: pa.ipc.open_file(files["cells"]).read_all(), place, original)]


def wrong_in(read: Reader, place: Path, original: pa.Table) -> list[str]:
    """Return the cells that a reader reads otherwise, or how it fails."""
    try:
        return wrong_cells(read(place), original)
    except Exception as error:  # noqa: BLE001 - each reader has its own
        return [f"{type(error).__name__}: {str(error)[:300]}"]


@contextmanager
def spark() -> Iterator[subprocess.Popen]:
    """Start Spark with both formats; raises NotServedError."""
    jars = maven_folder("readers-jars", [*JARS])
    for one, checksum in JARS.items():
        _, artifact, version = one.split(":")
        if hashlib.sha256((jars / f"{artifact}-{version}.jar").read_bytes()).hexdigest() != checksum:
            raise AssertionError(f"{one} has another SHA-256 than {checksum}")
    own = {
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))), "spark.sql.session.timeZone": "UTC",
        # Else Spark loses rows with NaN of its own cache, which the plain rows are in.
        "spark.sql.inMemoryColumnarStorage.partitionPruning": "false",
    }  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    python = environment()
    process = subprocess.Popen(
        [python, spark_reader.__file__, json.dumps(CONF | own)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=clean | {"PYSPARK_PYTHON": str(python)},
    )  # fmt: skip
    try:
        answer_of(process)
        yield process
    finally:
        process.stdin.close()
        process.wait(60)


def environment() -> Path:
    """Return the Python of Spark's environment, which outlives a run; raises NotServedError."""
    home = CACHE / "readers-pyspark"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        requirements = Path(__file__).with_name("readers.txt")
        command = [python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotServedError(f"pip could not install {requirements.name}: {done.stderr.strip().splitlines()[-1]}")
        (home / "complete").touch()
    return python
