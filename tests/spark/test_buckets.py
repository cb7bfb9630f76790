"""Which bucket a key belongs to, and that each bucket has a shuffle partition of its own."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.operators.buckets import bucket_ids, bucket_of, spark_partition


def test_partitions_are_those_of_spark(spark):
    numbers = [0, 1, 2, 17, 1_000, 2**31 - 1]
    rows = spark.createDataFrame([(n,) for n in numbers], "id int").selectExpr("id", "pmod(hash(id), 13) p").collect()
    assert [row["p"] for row in rows] == [spark_partition(row["id"], 13) for row in rows]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 200])
def test_each_bucket_has_a_partition_of_its_own_and_zero_is_always_one_of_them(count):
    ids = bucket_ids(count)
    assert {spark_partition(one, count) for one in ids} == set(range(count))
    assert ids[0] == 0


COLUMNS = {
    "string": pa.array(["a", "b", None, "a", ""]),
    "binary": pa.array([b"a", b"b", None, b"a", b""]),
    "int32": pa.array([1, 2, None, 1, 0], pa.int32()),
    "int64": pa.array([1, 2, None, 1, 0], pa.int64()),
    "float": pa.array([1.5, -0.0, None, 1.5, 0.25]),
    "bool": pa.array([True, False, None, True, False]),
    "decimal": pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.00"), None, decimal.Decimal("1.50"), None]),
    "timestamp": pa.array([dt.datetime(2020, 1, 1), None, None, dt.datetime(2020, 1, 1), None], pa.timestamp("us")),  # noqa: DTZ001
    "date": pa.array([dt.date(2020, 1, 1), None, None, dt.date(2020, 1, 1), None]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_equal_keys_meet_whatever_stands_around_them(kind):
    column = pa.chunked_array([COLUMNS[kind]])
    whole = bucket_of([column], 5, 64)
    assert whole[0] == whole[3]
    for row in range(5):
        alone = bucket_of([column.slice(row, 1)], 1, 64)
        assert alone[0] == whole[row]


def test_minus_zero_is_zero():
    both = bucket_of([pa.chunked_array([[0.0, -0.0]])], 2, 64)
    assert both[0] == both[1]


def test_keys_spread_over_the_buckets():
    names = pa.chunked_array([[f"key {n}" for n in range(10_000)]])
    numbers = pa.chunked_array([list(range(10_000))])
    for columns in ([names], [numbers], [names, numbers]):
        sizes = np.bincount(bucket_of(columns, 10_000, 8), minlength=8)
        assert sizes.min() > 1_000


def test_without_key_columns_there_is_one_bucket():
    assert bucket_of([], 3, 4).tolist() == [0, 0, 0]
