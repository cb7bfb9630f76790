"""delta-spark at work on a table that a query writes to: each operation between two batches, and while one is staged.

Run by hand; the Delta of the newest Spark that it was released for needs a Python environment of its own:

    python -m venv build/delta-spark && build/delta-spark/bin/pip install pyspark==4.2.0 delta-spark==4.4.0
    python -m tests.sink.delta_spark build/delta-spark/bin/python

Prints a line an operation; ends with 1 if a row was lost or doubled, or a refused batch was published.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from keyedwm.core.errors import KeyedwmError
from pyspark_wm_sink.tables.publish import publish
from tests.sink.delta_sink import how, stage_rows

JARS = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Answers each line of SQL with a line: a column of numbers, or how it failed.
SERVER = """
import json, sys
from pyspark.sql import SparkSession
build = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
for name, value in json.loads(sys.argv[1]).items():
    build = build.config(name, value)
spark = build.getOrCreate()
print("answer []", flush=True)
for line in sys.stdin:
    try:
        rows = spark.sql(json.loads(line)).collect()
        answer = [row[0] for row in rows] if line.startswith('"SELECT') else []
    except Exception as error:
        answer = str(error).splitlines()[0]
    print("answer " + json.dumps(answer), flush=True)
"""
CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.showConsoleProgress": "false",
    # Else VACUUM lists a directory by ten thousand tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """What delta-spark does to the numbers 1 to 4 ({t}: the table), and what is left of them with its own rows.

    rows_left: None if the sink rejects the query's next batch.
    """

    sql: tuple[str, ...]
    rows_left: tuple[int, ...] | None = (1, 2, 3, 4)


def properties(name: str) -> str:
    """Statement that sets a table property."""
    return f"ALTER TABLE {{t}} SET TBLPROPERTIES ({name})"


def rejected_operation(*sql: str) -> Operation:
    """Operation after which the next batch is refused."""
    return Operation(sql, None)


VECTORS = properties("'delta.enableDeletionVectors' = 'true'")
FEED = properties("'delta.enableChangeDataFeed' = 'true'")
MAPPED = properties("'delta.columnMapping.mode' = 'name'")
MERGE = """MERGE INTO {t} AS t USING (SELECT explode(array(1, 99)) AS n) AS s ON t.n = s.n
WHEN MATCHED THEN UPDATE SET n = 101 WHEN NOT MATCHED THEN INSERT *"""
OPERATIONS = {
    "OPTIMIZE": Operation(("OPTIMIZE {t}",)),
    "ZORDER": Operation(("OPTIMIZE {t} ZORDER BY (n)",)),
    "VACUUM": Operation(("OPTIMIZE {t}", "VACUUM {t}")),
    "VACUUM, half an hour kept": Operation(("OPTIMIZE {t}", "VACUUM {t} RETAIN 0.5 HOURS")),
    "INSERT": Operation(("INSERT INTO {t} VALUES (90)",), (1, 2, 3, 4, 90)),
    "INSERT OVERWRITE": Operation(("INSERT OVERWRITE {t} VALUES (90)",), (90,)),
    "DELETE": Operation(("DELETE FROM {t} WHERE n < 3",), (3, 4)),
    "DELETE of all rows": Operation(("DELETE FROM {t}",), ()),
    "UPDATE": Operation(("UPDATE {t} SET n = n + 100 WHERE n < 3",), (3, 4, 101, 102)),
    "MERGE": Operation((MERGE,), (2, 3, 4, 99, 101)),
    "DELETE by deletion vectors": Operation((VECTORS, "DELETE FROM {t} WHERE n = 1"), (2, 3, 4)),
    "UPDATE by deletion vectors": Operation((VECTORS, "UPDATE {t} SET n = 50 WHERE n = 1"), (2, 3, 4, 50)),
    "MERGE by deletion vectors": Operation((VECTORS, MERGE), (2, 3, 4, 99, 101)),
    "REORG PURGE": Operation((VECTORS, "DELETE FROM {t} WHERE n = 1", "REORG TABLE {t} APPLY (PURGE)"), (2, 3, 4)),
    "change data feed": Operation((FEED,)),
    "UPDATE with change data feed": Operation((FEED, "UPDATE {t} SET n = 9 WHERE n = 1"), (2, 3, 4, 9)),
    "appendOnly": Operation((properties("'delta.appendOnly' = 'true'"),)),
    "a checkpoint each commit": Operation((properties("'delta.checkpointInterval' = '1'"),)),
    "a comment": Operation(("COMMENT ON TABLE {t} IS 'numbers'",)),
    "in-commit timestamps": rejected_operation(properties("'delta.enableInCommitTimestamps' = 'true'")),
    "ADD COLUMNS": rejected_operation("ALTER TABLE {t} ADD COLUMNS (extra STRING)"),
    "ADD CONSTRAINT": rejected_operation("ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 10)"),
    "column mapping": rejected_operation(MAPPED),
    "RENAME COLUMN": rejected_operation(MAPPED, "ALTER TABLE {t} RENAME COLUMN n TO m"),
    "CLUSTER BY": rejected_operation("ALTER TABLE {t} CLUSTER BY (n)"),
    "a default": rejected_operation(
        properties("'delta.feature.allowColumnDefaults' = 'supported'"), "ALTER TABLE {t} ALTER COLUMN n SET DEFAULT 7"
    ),
    "row tracking": rejected_operation(properties("'delta.enableRowTracking' = 'true'")),
    "type widening": rejected_operation(properties("'delta.enableTypeWidening' = 'true'")),
    "RESTORE": rejected_operation("RESTORE TABLE {t} TO VERSION AS OF 1"),
    # By path it removes nothing.
    "CREATE OR REPLACE": Operation(("CREATE OR REPLACE TABLE {t} (n BIGINT) USING delta",)),
    "CREATE OR REPLACE by a query": Operation(
        ("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM VALUES (CAST(9 AS BIGINT)) AS v(n)",), (9,)
    ),
}  # fmt: skip


@contextmanager
def delta_spark(python: str, jars: Path | None) -> Iterator[subprocess.Popen]:
    """Start delta-spark; it takes a line of SQL as JSON and gives a line of JSON."""
    own = {"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))} if jars else {"spark.jars.packages": JARS}
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    process = subprocess.Popen(
        [python, "-c", SERVER, json.dumps(CONF | own)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean,
    )
    try:
        answer_of(process)
        yield process
    finally:
        process.stdin.close()
        process.wait(60)


def ask(server: subprocess.Popen, sql: str) -> list[int]:
    """Run a statement; raises SystemExit if delta-spark refuses it."""
    server.stdin.write(json.dumps(" ".join(sql.split())) + "\n")
    server.stdin.flush()
    answer = answer_of(server)
    if isinstance(answer, str):
        raise SystemExit(f"{sql}: {answer}")
    return answer


def answer_of(server: subprocess.Popen) -> list[int] | str:
    """Wait for the next answer; Delta's own lines between are skipped."""
    for line in server.stdout:
        if line.startswith("answer "):
            return json.loads(line.removeprefix("answer "))
    raise SystemExit("delta-spark has ended")


def trouble_of(server: subprocess.Popen, operation: Operation, table: Path, *, is_staged: bool) -> str | None:
    """Play an operation beside a query; returns how its table is wrong, None if it is right."""
    name = f"delta.`{table}`"
    for batch, values in enumerate([(1, 2), (3, 4)]):
        publish(how(table), [stage_rows(how(table), [*values], batch)], batch=batch)
    files = [stage_rows(how(table), [5, 6], 2)] if is_staged else []
    for sql in operation.sql:
        ask(server, sql.format(t=name))
    before = DeltaTable(table).version()
    try:
        publish(how(table), files or [stage_rows(how(table), [5, 6], 2)], batch=2)
    except KeyedwmError as error:
        error_text = f"{type(error).__name__}: {error}"
        if operation.rows_left is None and DeltaTable(table).version() == before:
            print(f"    {error_text[:220]}")
            return None
        return f"version {before} became {DeltaTable(table).version()}, {error_text}"
    if operation.rows_left is None:
        return "the batch was published"
    for batch, values in ((1, [3, 4]), (2, [5, 6])):  # both come again, as after a kill
        publish(how(table), [stage_rows(how(table), values, batch)], batch=batch)
    publish(how(table), [stage_rows(how(table), [7], 3)], batch=3)
    numbers, expected = ask(server, f"SELECT n FROM {name} ORDER BY n"), sorted([*operation.rows_left, 5, 6, 7])  # noqa: S608
    return None if numbers == expected else f"{numbers}, expected {expected}"


def main() -> None:
    """Play all operations in both places."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the Python that has pyspark 4.2 and delta-spark 4.4")
    parser.add_argument("--jars", type=Path, help=f"directory with the jars of {JARS}, else they are fetched")
    parser.add_argument("--only", action="append", choices=list(OPERATIONS))
    options = parser.parse_args()
    wrong = 0
    with delta_spark(options.python, options.jars) as server, tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(options.only or OPERATIONS):
            for is_staged in (False, True):
                table = Path(place) / f"{number}-{is_staged}"
                table.mkdir()
                trouble = trouble_of(server, OPERATIONS[name], table, is_staged=is_staged)
                wrong += trouble is not None
                print(
                    f"{name}, {'a batch staged' if is_staged else 'between batches'}: {trouble or 'as expected'}",
                    flush=True,
                )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
