"""The part of Spark's plan from the shipped rows to the results of the buckets, for every kind of operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from keyedwm.operators.keyed.key_census import MOST_SHOWN
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.runtime.compiled import say_if_first
from keyedwm.spark.hosting.bucket_batch import EMITTED, BucketLayout
from keyedwm.spark.hosting.lineage import marked
from keyedwm.spark.hosting.source_description import Source, with_schema
from keyedwm.spark.hosting.staged_rows import rejected_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Metric -> the column of the buckets' rows that it sums: for every operator, for a kind, and for the other kinds.
_METRICS = {name: name for name in ("late_rows", "null_event_time_rows", "state_bytes")}
_OF_KIND = {"aggregate": {"timeless_rows": "null_event_time_rows", "frames": "frames"}}
_OF_OTHERS = {"held_rows": "frames"}
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def of_keys() -> list[Column]:
    """Return the metrics of keys with their own watermarks."""
    from pyspark.sql import functions as F

    behind_ms = F.col("keys_behind_ms")

    def highest(number: str, name: str) -> Column:
        pair = F.struct(F.col(number).alias(name), "key")
        pairs = F.sort_array(F.collect_list(F.when(F.col(number).isNotNull(), pair)), asc=False)
        return F.transform(F.slice(pairs, 1, MOST_SHOWN), lambda one: F.struct(one["key"].alias("key"), one[name]))

    return [
        F.sum("keys").alias("keys_held"),
        F.sum(F.when(behind_ms > 0, F.col("keys")).otherwise(0)).alias("keys_behind"),
        F.sum("keys_forgotten").alias("keys_forgotten"),
        *(
            F.percentile(behind_ms, share, F.col("keys")).cast("long").alias(f"keys_behind_ms_{name}")
            for name, share in _PERCENTILES.items()
        ),
        highest("key_behind_ms", "behind_ms").alias("slowest_keys"),
        highest("key_dropped_rows", "rows").alias("dropped_keys"),
    ]


def build_results(
    shipped: DataFrame,
    plan: OperatorSpec,
    layout: BucketLayout,
    savepoint: str | None,
    inputs: Iterable[DataFrame | Source],
) -> DataFrame:
    """Return the results, which include the inputs' unreadable records. savepoint: the place of the initial state.

    inputs: the frames or sources that were shipped.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    from keyedwm.spark.hosting.bucket import Bucket
    from keyedwm.spark.hosting.handed_on import refuse_records_twice
    from keyedwm.spark.hosting.rescale_state import initial_state, rescaled
    from keyedwm.spark.hosting.unpack import Unpack

    say_if_first()
    inputs = list(inputs)
    if len(inputs) > 1:
        refuse_records_twice(inputs, layout.kind)
    begin = state = None
    if savepoint is not None:
        begin = rescaled(savepoint, plan, layout)
        state = initial_state(shipped.sparkSession, savepoint, begin, layout)
    schema = StructType()
    for field in EMITTED.split(", "):
        column, type_name = field.split(" ")
        schema.add(column, type_name)
    mode = "ProcessingTime" if plan.by_clock else "None"
    emitted = shipped.groupBy("bucket").transformWithStateInPandas(
        Bucket(plan, layout, begin), schema, "append", mode, initialState=state
    )
    metrics = _METRICS | _OF_KIND.get(layout.kind, _OF_OTHERS) | {name: name for name in plan.own_metrics}
    emitted = with_schema(emitted, schema)
    observed = [F.sum(column).alias(metric) for metric, column in metrics.items()]
    if plan.key_watermark is not None:
        observed += of_keys()
    # These show a bucket that is too large, by one large key or by an uneven hash of keys.
    size = F.when(F.col("bucket").isNotNull(), F.col("state_bytes"))
    observed += [
        F.max_by("bucket", size).alias("largest_bucket"),
        F.max(size).alias("largest_bucket_bytes"),
        F.median(size).cast("long").alias("median_bucket_bytes"),
    ]
    unpack = Unpack.of(plan, [kind for one in inputs if (kind := rejected_type(one))], layout.who)
    results = emitted.observe(layout.name, *observed).mapInArrow(unpack, from_arrow_schema(unpack.schema))
    return results if plan.repeated_totals is None else marked(results, plan.repeated_totals)
