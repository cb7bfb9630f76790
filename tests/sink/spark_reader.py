"""Spark with delta-spark and Iceberg's runtime: reads tables and filters them.

The Python of another environment runs this file, which therefore imports nothing of ours. Argument: Spark's settings as
JSON. A line of input is a request as JSON, a line of output that begins with "answer" is the answer: the predicates
under which the table has other rows than `plain` (the same rows in a file without bounds), or how Spark failed.
"""

from __future__ import annotations

import json
import sys
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F


def main() -> None:
    """Answer requests until the input ends."""
    build = SparkSession.builder.master("local[2]")
    for name, value in json.loads(sys.argv[1]).items():
        build = build.config(name, value)
    spark = build.getOrCreate()
    print("answer []", flush=True)
    for line in sys.stdin:
        try:
            answer: object = read(spark, **json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever Spark fails with is the answer
            answer = f"{type(error).__name__}: {str(error)[:500]}"
        print("answer " + json.dumps(answer), flush=True)


def read(spark: SparkSession, *, kind: str, table: str, plain: str, cells: str, columns: list[str]) -> list[str]:
    """Write the table's rows to the file `cells`; return the predicates of `columns` that lose or add rows."""
    rows = spark.read.format(kind).load(table)
    with pa.OSFile(cells, "wb") as sink, pa.ipc.new_file(sink, (every := rows.toArrow()).schema) as writer:
        writer.write_table(every)
    own, original = spark.read.parquet(plain).cache(), pq.read_table(plain, columns=columns)
    conditions = predicates(original, dict(own.dtypes))
    answer, right = (ids_under(conditions, where) for where in (rows, own))
    own.unpersist()
    return [f"{text}: {answer[text]} instead of {right[text]}" for text in conditions if answer[text] != right[text]]


def predicates(rows: pa.Table, types: dict[str, str]) -> dict[str, Column]:
    """Return, for each row, a predicate of which each part holds for that row: one bad bound of its file loses it.

    The parts are "=" or "is null"; in a second predicate ">=" and "<=".
    """
    every = {}
    for row in rows.to_pylist():
        equal, between = [], []
        for name, value in row.items():
            column, kind = F.col(name), rows.schema.field(name).type
            literal = F.lit(bytearray(value or b"")) if pa.types.is_binary(kind) else F.lit(str(value))
            literal = literal if pa.types.is_binary(kind) else literal.cast(types[name])
            equal.append(column.isNull() if value is None else column == literal)
            between += [] if value is None else [column >= literal, column <= literal]
        every[f"= {row}"] = reduce(Column.__and__, equal)
        if between:
            every[f">= and <= {row}"] = reduce(Column.__and__, between)
    return every


def ids_under(conditions: dict[str, Column], rows: DataFrame) -> dict[str, list[int]]:
    """Return the ids of the rows under each predicate, each of which Spark pushes into a scan of its own."""
    parts = [rows.where(one).select(F.lit(text).alias("text"), "id") for text, one in conditions.items()]
    answer: dict[str, list[int]] = {text: [] for text in conditions}
    for text, number in reduce(DataFrame.unionAll, parts).collect():
        answer[text].append(number)
    return {text: sorted(numbers) for text, numbers in answer.items()}


if __name__ == "__main__":
    main()
