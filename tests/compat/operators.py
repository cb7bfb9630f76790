"""State of the operators that 0.3.0 brought, without Kafka and Spark: saved once, when a version is cut, and continued.

Rule: a bucket runs as in a worker of Spark, so manifests, with the plan's digest and description, are saved as well.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from keyedwm.core.rows import ControlKind
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import RowGapWindow, SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import HoppingWindow, KeyRowWindow, RowWindow, session_rows
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.process.deduplicate import Deduplicate, DeduplicatePlan
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.process.running import Running
from keyedwm.operators.process.running_state import RunningPlan
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT
from keyedwm.spark.hosting.unpack import Unpack
from tests.messy.drive import Pipeline
from tests.spark.test_bucket_batch import told

BATCHES, SAVED = 10, 6  # of the batches, as many are in the fixture
CHANNELS = ("t-0", "u-0")  # of the inputs
RECORD = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
SCHEMA = pa.schema([
    ("k", pa.string()), ("n", pa.int64()), ("v", pa.float64()), ("gap", pa.int64()),
    ("event_time", pa.timestamp("us", tz="UTC")), *RECORD,
])  # fmt: skip
TIMED = SCHEMA.append(pa.field("__time", pa.int64()))
GAPS = TIMED.set(TIMED.get_field_index("gap"), pa.field("gap", pa.duration("us")))
RETENTION = Retention(time_ms=30_000)
Rows = list[dict[str, Any]]

AGGREGATES = (
    ("variance", agg.variance("v")), ("trend", agg.linear_trend("v")), ("median", agg.median("v")),
    ("share", agg.quantile("v", 0.9)), ("about", agg.approx_quantile("v", 0.9)), ("top", agg.top_n(2, "v", "n")),
    ("by_key", agg.map_agg("n", "v")), ("hll", agg.hll_sketch("n")), ("theta", agg.theta_sketch("n")),
    ("kll", agg.kll_sketch("v")), ("some", agg.count_if("n > 3")), ("last", agg.last("n")),
)  # fmt: skip
FEW = (("rows", agg.count()), ("total", agg.sum("v")))


def _aggregate(
    window: Any, aggregates: Iterable[tuple[str, Any]] = FEW, schema: pa.Schema = TIMED, **how: Any
) -> WindowPlan:
    return WindowPlan(
        schema=schema, by=("k",), window=window, aggregates=tuple(aggregates), time="__time", order=tuple(RECORD.names),
        **how,
    )  # fmt: skip


def _process(make: Callable[[], Processor], result: pa.Schema, called: str, **how: Any) -> ProcessPlan:
    process_input = ProcessInput(schema=TIMED, by=("k",), time="__time")
    return ProcessPlan(inputs=(process_input,), make=make, result=result, called=called, version=1, **how)


def _running() -> ProcessPlan:
    plan = RunningPlan(schema=SCHEMA, by=("k",), aggregates=FEW, keep_ms=20_000)
    return _process(partial(Running, plan), plan.result_schema, plan.called)


def _deduplicated() -> ProcessPlan:
    plan = DeduplicatePlan(schema=SCHEMA, on=("k", "n"), within_ms=8_000)
    return _process(partial(Deduplicate, plan), plan.result_schema, "deduplicate")


class Holding(Processor):
    """Holds rows and a fact; each barrier tells how many there are of a key."""

    def on_rows(self, input_number: int, rows: pa.Table) -> Iterator[pa.Table]:  # noqa: ARG002
        self.state.append("rows", rows.select(["k", "event_time"]))
        self.state.facts["seen"] = self.state.facts.get("seen", 0) + rows.num_rows
        yield from ()

    def on_barrier(self, snapshot: int) -> Iterator[pa.Table]:  # noqa: ARG002
        rows = self.state.read("rows")
        if rows is not None:
            counts = rows.group_by("k").aggregate([("event_time", "count"), ("event_time", "max")])
            counts = counts.rename_columns(["k", "rows", "event_time"]).sort_by("k")
            yield counts.append_column("seen", pa.array([self.state.facts["seen"]] * counts.num_rows, pa.int64()))


def _holding_plan(**how: Any) -> ProcessPlan:
    result = pa.schema([("k", pa.string()), ("rows", pa.int64()), ("seen", pa.int64())])
    return _process(Holding, result, "held", **how)


def _join(*, latest: bool) -> JoinPlan:
    left, right = (JoinInputSpec(name, SCHEMA, ("k",), (Axis(name[0], 0),)) for name in ("left", "right"))
    low_ms, high_ms = (-FARTHEST_MS, 0) if latest else (-2_000, 3_000)
    how = How.LEFT if latest else How.FULL
    return JoinPlan(left=left, right=right, bounds=(Bound(0, 0, low_ms, high_ms),), how=how, latest=latest)


def _store(window: Any, retention: Retention = RETENTION, **how: Any) -> BucketStore:
    aggregates = (("rows", agg.count()), ("middle", median("v")))
    plan = StorePlan(
        schema=SCHEMA, by=("k",), window=window, aggregates=aggregates, retention=retention, time="event_time", **how
    )
    return BucketStore(plan=plan, late=LatePolicy.EMIT)


def _window_join(window: Any, **how: Any) -> BucketWindowJoin:
    left, right = (WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in ("left", "right"))
    return BucketWindowJoin(
        plan=WindowJoinPlan(left=left, right=right, window=window, **{"retention": RETENTION, **how})
    )


FEW_MESSAGES = Retention(max_messages=40)
PLANS: Mapping[str, Callable[[], Any]] = {
    "aggregates": partial(_aggregate, SlidingWindow(6_000, 3_000), AGGREGATES),
    "zoned": partial(_aggregate, ZonedWindow("Europe/Berlin", 3_600_000)),
    "row-gaps": partial(_aggregate, RowGapWindow(gap_column="gap"), schema=GAPS),
    "per-key": partial(_aggregate, SlidingWindow(6_000, 3_000), key_watermark=PerKey(500, 9_000)),
    "per-key-sessions": partial(_aggregate, SessionWindow(700), key_watermark=PerKey(500, 9_000, idle_ms=7_000)),
    "running": _running,
    "deduplicate": _deduplicated,
    "process": _holding_plan,
    "process-per-key": partial(_holding_plan, key_watermark=PerKey(500, 9_000)),
    "join": partial(_join, latest=False),
    "join-latest": partial(_join, latest=True),
    "store": partial(_store, HoppingWindow(6_000, 4_000)),
    "store-sessions": partial(_store, SessionWindow(700)),
    "store-on-demand": partial(_store, OnDemandWindow(5_000, "n >= 8")),
    "store-rows": partial(_store, RowWindow(7, 5), FEW_MESSAGES),
    "store-key-rows": partial(_store, KeyRowWindow(4, 3), FEW_MESSAGES),
    "store-session-rows": partial(_store, session_rows(2), FEW_MESSAGES),
    "window-join": partial(_window_join, HoppingWindow(6_000, 4_000), how=How.LEFT),
    "window-join-rows": partial(_window_join, RowWindow(7, 7), retention=FEW_MESSAGES),
    "window-join-sessions": partial(_window_join, SessionWindow(700), how=How.LEFT),
}


class Buckets(Pipeline):
    """All buckets of a plan, which are built anew for each batch from what the one before wrote."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan, 2, others=len(getattr(plan, "inputs", [plan])) - 1)
        self.back, self.unpack = None, Unpack.of(plan)

    def columns(self, number: int) -> tuple[str, ...]:
        return tuple(self.inputs[number].columns)

    def _shipped(self, inputs: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(inputs):
            schema = self.inputs[number].schema
            schema_of_rows = pa.schema(
                [*(schema.field(name) for name in self.columns(number)), (CONTROL_TEXT, pa.string())]
            )
            for row in rows:
                row["event_time"] = None if row["__time"] is None else row["__time"] * 1000
            yield from self.stage(number)(pa.Table.from_pylist(rows, schema=schema_of_rows).to_batches())


def batches(name: str, inputs: int) -> list[list[Rows]]:
    """Rows of each input and its control rows, batch by batch; the last one ends every window."""
    rng = random.Random(f"operators {name}")
    next_offset = dict.fromkeys(range(inputs), 0)
    steps: list[list[Rows]] = []
    for number in range(BATCHES):
        steps.append([])
        for one in range(inputs):
            rows: Rows = [{CONTROL_TEXT: None, **_row(rng, number, one, next_offset)} for _ in range(20)]
            watermark_ms = 10**9 if number == BATCHES - 1 else number * 3_000 - rng.randrange(2_000)
            steps[-1].append([*rows, *(_control(kind, one, **of) for kind, of in (
                (ControlKind.WATERMARK, {"key": 0, "watermark_ms": watermark_ms}),
                (ControlKind.BARRIER, {"snapshot": number, "channels": 1}),
            ))])  # fmt: skip
    return steps


def _row(rng: random.Random, number: int, one: int, next_offset: dict[int, int]) -> dict[str, Any]:
    offset = next_offset[one]
    next_offset[one] += rng.choice([1, 1, 1, 3])
    ms = number * 3_000 + rng.randrange(6_000) - rng.choice([0, 0, 0, 0, 9_000])
    return {
        "k": rng.choice([*"abcdef", None]), "n": rng.randrange(10), "v": rng.randrange(1_000) / 8, "gap": 700_000,
        "topic": CHANNELS[one][0], "partition": 0, "offset": offset, "__time": ms, "__time0": ms,
    }  # fmt: skip


def _control(kind: ControlKind, one: int, **fields: int) -> dict[str, Any]:
    return {CONTROL_TEXT: told(kind, CHANNELS[one], **fields), "__time": None}


def save_operator(name: str) -> dict[str, Any]:
    """Buckets after some batches, the batches to come, and the rows that these give."""
    pipeline = Buckets(PLANS[name]())
    steps = batches(name, len(pipeline.axes))
    for inputs in steps[:SAVED]:
        pipeline.batch(*_copies(inputs))
    buckets = {}
    for bucket, state in pipeline.state.items():
        assert state.manifest is not None
        blobs = {blob: b64encode(data).decode() for blob, data in state.blobs.items()}
        buckets[str(bucket)] = {"manifest": json.loads(state.manifest[0]), "blobs": blobs}
    saved = {"buckets": buckets, "batches": steps[SAVED:]}
    return {**saved, "expected": continue_operator(name, saved)}


def continue_operator(name: str, saved: Mapping[str, Any]) -> list[list[str]]:
    """The rows that the batches to come give on top of the saved buckets; those of a batch in order of their text."""
    pipeline = Buckets(PLANS[name]())
    for bucket, state in saved["buckets"].items():
        state_of_bucket = pipeline.state[int(bucket)]
        state_of_bucket.manifest = (json.dumps(state["manifest"], sort_keys=True),)
        state_of_bucket.blobs = {blob: b64decode(text) for blob, text in state["blobs"].items()}
    results = [pipeline.batch(*_copies(inputs)) for inputs in saved["batches"]]
    return [sorted(json.dumps(row, default=str, sort_keys=True) for row in rows) for rows in results]


def _copies(inputs: list[Rows]) -> Any:
    return json.loads(json.dumps(inputs))
