"""Columns of Iceberg tables that `mergeSchema` leaves as they are, and values at the edges of their types."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from keyedwm.core.errors import InputError
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.limits import Limits
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import stage
from tests.sink.iceberg_sink import NAME, catalog_of, files, how, rows, stage_rows, table_of


def test_a_required_column_stays_required_when_others_are_added(tmp_path):
    required = NestedField(1, "n", LongType(), required=True)
    catalog_of(tmp_path).create_table(NAME, Schema(required, NestedField(2, "m", StringType())))
    to = how(tmp_path, schema=pa.schema([("n", pa.int64()), ("x", pa.string())]), mergeSchema="true")
    assert [(field.name, field.required) for field in table_of(tmp_path).schema().fields] == [
        ("n", True), ("m", False), ("x", False),
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"column n is null in a row, and the table declares it NOT NULL"):
        stage_rows(to, pa.table({"n": pa.array([None], pa.int64()), "x": ["a"]}))


@pytest.mark.parametrize(
    ("kind", "value", "expected_value"),
    [
        (DoubleType(), pa.array([3], pa.int32()), 3.0),
        (DecimalType(38, 10), pa.array([3], pa.int64()), Decimal(3)),
        (UUIDType(), pa.array([str(uuid.UUID(int=7))]), uuid.UUID(int=7)),
        (TimestampType(), pa.array([date(2024, 1, 1)]), None),
        (
            ListType(3, StructType(NestedField(4, "a", LongType())), element_required=False),
            pa.array([[{"b": "x", "a": 1}]], pa.list_(pa.struct([("b", pa.string()), ("a", pa.int32())]))),
            [{"a": 1, "b": "x"}],
        ),
    ],
    ids=str,
)
def test_a_column_that_is_wider_in_the_table_stays_so_when_others_are_added(kind, value, expected_value, tmp_path):
    catalog_of(tmp_path).create_table(NAME, Schema(NestedField(1, "n", kind), NestedField(2, "m", StringType())))
    source_rows = pa.table({"n": value, "x": ["a"]})
    to = how(tmp_path, schema=source_rows.schema, mergeSchema="true")
    publish(to, [stage_rows(to, source_rows)], batch=0)
    (row,) = rows(tmp_path)
    assert (row["m"], row["x"]) == (None, "a")
    assert expected_value is None or row["n"] == expected_value


@pytest.mark.parametrize("term", ["at", "day(at)", "hour(at)"])
def test_a_time_that_is_the_value_of_no_partition_is_refused_while_rows_are_staged(term, tmp_path):
    late = pa.table({"at": pa.array([5, 10**18], pa.timestamp("us", "UTC"))})
    to = how(tmp_path, schema=late.schema, partitionBy=term)
    with pytest.raises(InputError, match=r"column at, .* holds 1000000000000000000 in a row, and PyIceberg"):
        stage_rows(to, late)
    assert files(tmp_path) == 0


def test_zero_and_minus_zero_are_partitions_of_their_own_so_that_engines_read_them_as_they_were(tmp_path):
    """Engines take the values of an identity partition from the manifest, not from the file."""
    values = pa.table({"f": pa.array([0.0, -0.0, 0.0, float("nan"), None])})
    to = how(tmp_path, schema=values.schema, partitionBy="f")
    publish(to, [stage_rows(to, values)], batch=0)
    partitions = {
        str(task.file.partition[0]): task.file.record_count for task in table_of(tmp_path).scan().plan_files()
    }
    assert partitions == {"0.0": 2, "-0.0": 1, "nan": 1, "None": 1}


@pytest.mark.parametrize("long", ["z" * 5_000, "a" * 5_000, b"z" * 5_000], ids=["high", "low", "bytes"])
def test_a_value_too_long_for_parquets_bounds_is_found_beside_row_groups_that_have_some(long, tmp_path):
    """The footer has no bounds of a row group with a value above 4 KiB."""
    short = "m" if isinstance(long, str) else b"m"
    source_rows = pa.table({"v": [short, long, None]})
    to = how(tmp_path, schema=source_rows.schema)
    grouped = replace(to.stage, limits=Limits(table_group_bytes=1))  # a row group for each batch of rows
    batches = [source_rows.slice(at, 1).to_batches()[0] for at in range(3)]
    message = stage(grouped, Task(query="q", run="r", batch=0, partition=0, attempt=0), batches)
    publish(to, [message], batch=0)
    for value in (short, long):
        assert table_of(tmp_path).scan(row_filter=EqualTo("v", value)).to_arrow().column("v").to_pylist() == [value]
    assert message.files[0].metrics["null_value_counts"] == {1: 1}


@pytest.mark.parametrize("text", ["\ud7ff" * 17, "a" * 15 + "\ud7ff" + "b"])
def test_a_text_whose_upper_bound_would_be_half_of_a_pair_is_written_without_one(text, tmp_path):
    source_rows = pa.table({"v": [text, "a"]})
    to = how(tmp_path, schema=source_rows.schema)
    publish(to, [stage_rows(to, source_rows)], batch=0)
    assert table_of(tmp_path).scan(row_filter=EqualTo("v", text)).to_arrow().column("v").to_pylist() == [text]
