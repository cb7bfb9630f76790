"""Sketches that windows give, read and merged by Spark's own functions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from keyedwm.operators.aggregates import functions as agg
from tests.operators.test_more_aggregates import one

HALF = 20_000
OF_SPARK = {
    "hll": "hll_sketch_agg(v)", "hll_small": "hll_sketch_agg(v, 8)",
    "theta": "theta_sketch_agg(v)", "theta_small": "theta_sketch_agg(v, 9)",
}  # fmt: skip
OURS = {
    "hll": agg.hll_sketch("v"), "hll_small": agg.hll_sketch("v", 8),
    "theta": agg.theta_sketch("v"), "theta_small": agg.theta_sketch("v", 9),
}  # fmt: skip
KINDS = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "binary": pa.binary(), "double": pa.float64()}


def values(kind: str, begin: int, end: int) -> list:
    if kind in ("string", "binary"):
        texts = ["", *(f"é{number}" for number in range(begin, end))]
        return texts if kind == "string" else [text.encode() for text in texts]
    return [float(number) if kind == "double" else number for number in range(begin, end)]


def table_of(spark, **columns):
    return spark.createDataFrame(pa.table(columns))


@pytest.mark.parametrize("kind", KINDS)
def test_spark_merges_sketches_of_distinct_values_with_its_own(spark, kind):
    names = [name for name in OURS if kind != "double" or name.startswith("theta")]  # Spark's HLL takes no doubles
    for count in (3, 300, HALF):
        lower, upper = values(kind, 0, count), values(kind, count, 2 * count)
        is_upper = [False] * len(lower) + [True] * len(upper)
        frame = table_of(spark, v=pa.array([*lower, *upper], KINDS[kind]), upper=is_upper)
        parts = frame.groupBy("upper").agg(*(F.expr(f"{OF_SPARK[name]} {name}") for name in names))
        theirs = {row["upper"]: row for row in parts.collect()}
        for name in names:
            ours = one(OURS[name], lower, kind=KINDS[kind])
            low, high = bytes(theirs[False][name]), bytes(theirs[True][name])
            union = "hll_union" if name.startswith("hll") else "theta_union"
            lg_k = "" if name.startswith("hll") else ", 9" if name.endswith("small") else ", 12"
            estimate = f"{name.partition('_')[0]}_sketch_estimate"
            (row,) = table_of(spark, ours=[ours], low=[low], high=[high]).selectExpr(
                f"{estimate}(ours) ours", f"{estimate}(low) theirs",
                f"{estimate}({union}(ours, high{lg_k})) mixed", f"{estimate}({union}(low, high{lg_k})) of_spark",
                f"{estimate}({union}(ours, low{lg_k})) twice",
            ).collect()  # fmt: skip
            assert row["mixed"] == row["of_spark"]
            assert row["ours"] == row["twice"] == pytest.approx(row["theirs"], rel=0.15 if "small" in name else 0.05)


def test_spark_reads_and_merges_sketches_of_quantiles(spark):
    numbers = [float(number) for number in range(HALF)]
    for count in (1, 2, 200, HALF):
        ours = one(agg.kll_sketch("v"), numbers[:count])
        (row,) = table_of(spark, ours=[ours]).selectExpr(
            "kll_sketch_get_n_double(ours) n", "kll_sketch_get_quantile_double(ours, 0.9) ninth",
            f"kll_sketch_get_rank_double(ours, {count // 2}) middle",
            "kll_sketch_get_n_double(kll_sketch_merge_double(ours, ours)) twice",
        ).collect()  # fmt: skip
        assert (row["n"], row["twice"]) == (count, 2 * count)
        assert row["ninth"] == pytest.approx(0.9 * count, abs=0.02 * count + 1)
        assert row["middle"] == pytest.approx((count // 2 + 1) / count, abs=0.02)
    frame = table_of(spark, s=[one(agg.kll_sketch("v"), numbers[:100]), one(agg.kll_sketch("v"), numbers[100:])])
    (merged,) = frame.selectExpr("kll_sketch_get_quantile_double(kll_merge_agg_double(s), 0.5) v").collect()
    assert merged["v"] == pytest.approx(HALF / 2, rel=0.04)
