"""Frames over a real topic, with random select, casts, NOT NULL and odd names, against Spark's own SQL on the records.

What this finds is what operators alone cannot: nullability, names and types as Spark's plan has them.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keyedwm.spark import Store, aggregate, count, join, running, tumbling
from keyedwm.spark import max as highest
from tests.messy.conditions import quoted
from tests.messy.feed import NAMES
from tests.tools import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BASE_MS, SPAN_MS, FAR_MS = 1_760_000_000_000, 60_000, 36_000_000
OPERATORS = ("aggregate", "store", "running", "join")
# Of each: whether it can be a key. The batch side reads text as our readers do.
EXPRESSIONS = {
    "make_valid_utf8(cast(key as string))": True, "key": True, "v": True, "7": True, "'eu'": True,
    "coalesce(v, 0)": True,
    "v IS NULL": True, "cast(v as tinyint)": True, "cast(v as bigint)": True, "cast(v as decimal(7,2))": True,
    "CASE WHEN x < 0 THEN sqrt(x) ELSE x END": True, "cast(x as float)": True, "coalesce(x, -0.0d)": True,
    "date_add(date'1969-12-30', coalesce(v, 0))": True, "timestamp_millis(v * 1000L)": True,
    "cast(timestamp_millis(v * 1000L) as timestamp_ntz)": True, "make_dt_interval(v)": True, "cast(v as string)": True,
    "array(v, 1)": False, "named_struct('a', v, 'b', x)": False, "map('a', x)": False, "array()": False,
    "struct(cast(key as string) k)": False,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """keys, values: expression → name."""

    operator: str
    keys: dict[str, str]
    values: dict[str, str]
    buckets: int
    records: list[Record]

    @property
    def selected(self) -> dict[str, str]:
        return {**self.keys, **self.values}


def drawn(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(f"frames {seed}")
    of_keys = [one for one, can_be_key in EXPRESSIONS.items() if can_be_key]
    keys = rng.sample(of_keys, rng.choice([1, 1, 2]))
    values = rng.sample([one for one in EXPRESSIONS if one not in keys], 3)
    reserved = {"topic", "partition", "offset", "reason"}  # the last one is that of messages which a store gives back
    names: list[str] = []
    for name in rng.sample(NAMES, len(NAMES)):
        if name.lower() not in reserved:
            reserved.add(name.lower())
            names.append(name)
    unused = iter(names)
    records = [_record(rng) for _ in range(60)]
    records += [Record(partition, BASE_MS + FAR_MS, b"{}", None) for partition in (0, 1)]
    return Case(
        OPERATORS[seed % len(OPERATORS)], {one: next(unused) for one in keys}, {one: next(unused) for one in values},
        rng.choice([1, 2, 3]), records,
    )  # fmt: skip


def _record(rng: random.Random) -> Record:
    value = {"v": rng.choice([None, 0, 1, 2, 100]), "x": rng.choice([None, "NaN", "-1", "0.0", "-0.0", "1e300", "2.5"])}
    key = rng.choice([None, b"", b"a", b"A", "é".encode(), b"\xff", b"\xff\xfe", b"a\xc3", b"NaN"])
    at = BASE_MS + rng.choice([rng.randrange(SPAN_MS), rng.randrange(6) * 10_000])
    return Record(rng.randrange(2), at, json.dumps(value).encode(), key)


def play(seed: int, batch: Callable[[list[Record]], DataFrame], load: Callable[..., DataFrame], run: Callable) -> int:
    """Play a seed; batch: the records as Spark has them; load: the stream; run: all there is of a frame, as rows."""
    case = drawn(seed)
    result_rows = run(_streamed(case, load).where("control IS NULL"))
    expected = _batched(case, batch(case.records)).collect()
    columns = _compared_columns(case)
    actual, correct = (
        Counter(tuple(_plain(row[name]) for name in columns) for row in rows) for rows in (result_rows, expected)
    )
    assert actual == correct, (
        f"{case.operator} of {case.selected}: strange {actual - correct}, missing {correct - actual}"
    )
    return len(result_rows)


def _compared_columns(case: Case) -> list[str]:
    """The columns of results that are compared."""
    if case.operator in ("aggregate", "store"):
        return [*case.keys.values(), "window", "n__", "m__"]
    if case.operator == "running":
        return [*case.selected.values(), "partition", "offset", "n__", "m__"]
    return [*case.keys.values(), "lp__", "lo__", "rp__", "ro__"]


_PARSED = [
    "*", "cast(get_json_object(cast(value as string), '$.v') as int) v",
    "cast(get_json_object(cast(value as string), '$.x') as double) x",
]  # fmt: skip


def _selected(case: Case, frame: DataFrame, *others: str, valid: bool) -> DataFrame:
    """valid: text is made so by Spark; else our readers do it."""
    texts = {
        one: one if valid else one.replace("make_valid_utf8(cast(key as string))", "cast(key as string)")
        for one in case.selected
    }
    columns = [f"{texts[one]} AS {quoted(name)}" for one, name in case.selected.items()]
    return frame.selectExpr(*_PARSED).selectExpr(*columns, *others)


def _streamed(case: Case, load: Callable[..., DataFrame]) -> DataFrame:
    read = load(watermarkLag="2 minutes", maxOffsetsPerTrigger="40", idleTimeout="none")
    times = ("event_time", "watermark", "control")
    record = ("topic", "partition", "offset")
    keys, buckets = list(case.keys.values()), case.buckets
    value = _numeric(case)
    if case.operator == "join":
        sides = [
            _selected(case, read, f"partition {side}p__", f"offset {side}o__", *times, valid=False).drop(
                *case.values.values()
            )
            for side in "lr"
        ]
        return join(*sides, keys, within=("-5 seconds", "5 seconds"), buckets=buckets)
    rows = _selected(case, read, *(f"{one} AS m__" for one in value), *record, *times, valid=False)
    aggs = {"n__": count(), "m__": highest("m__")}
    if case.operator == "running":
        rows = rows.withColumnRenamed("m__", "v__")
        return running(rows, keys, {"n__": count(), "m__": highest("v__")}, buckets=buckets)
    store = Store(retention="1 minute") if case.operator == "store" else None
    return aggregate(rows, keys, tumbling("10 seconds"), aggs, buckets=buckets, store=store)


def _numeric(case: Case) -> Sequence[str]:
    return ["CASE WHEN x < 0 THEN sqrt(x) ELSE x END"] if case.buckets % 2 else ["v"]


def _batched(case: Case, records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    near = records.where(F.col("event_time") < F.timestamp_millis(F.lit(BASE_MS + FAR_MS - 1)))
    (value,) = _numeric(case)
    rows = _selected(case, near, f"{value} AS v__", "topic", "partition", "offset", "event_time", valid=True)
    keys = [F.col(quoted(one)) for one in case.keys.values()]
    if case.operator == "join":
        left, right = (
            rows.select(
                *keys, *(F.col(one).alias(f"{side}{one[0]}__") for one in ("partition", "offset", "event_time"))
            )
            for side in "lr"
        )
        equal = [F.col(f"l.{quoted(one)}") == F.col(f"r.{quoted(one)}") for one in case.keys.values()]
        pairs = left.alias("l").join(right.alias("r"), equal)
        apart = F.unix_millis("re__") - F.unix_millis("le__")
        return pairs.where(apart.between(-5_000, 5_000)).select("l.*", "rp__", "ro__")
    if case.operator == "running":
        order = "event_time, topic, partition, offset"
        by = ", ".join(quoted(one) for one in case.keys.values())
        over = f"OVER (PARTITION BY {by} ORDER BY {order} ROWS UNBOUNDED PRECEDING)"
        return rows.selectExpr("*", f"count(*) {over} n__", f"max(v__) {over} m__")
    return rows.groupBy(*keys, F.window("event_time", "10 seconds")).agg(
        F.count("*").alias("n__"), F.max("v__").alias("m__")
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(sorted((key, _plain(one)) for key, one in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def batch_of(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """The records as a batch read has them; topic is not compared."""
    from pyspark.sql import functions as F

    offsets: Counter = Counter()
    rows = []
    for one in records:
        rows.append((one.key, one.value, "t", one.partition, offsets[one.partition], one.timestamp_ms))
        offsets[one.partition] += 1
    schema = "key binary, value binary, topic string, partition int, offset bigint, ms bigint"
    return spark.createDataFrame(rows, schema).withColumn("event_time", F.timestamp_millis("ms"))
