"""Rows to results: what stage one and the buckets of `aggregate`, `deduplicate`, `join` and `join_latest` compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from keyedwm.core.control_row import ControlRow, encode_rows
from keyedwm.core.rows import EVENT_TIME, ControlKind
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates import functions
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.exchange_control import unpack_control
from keyedwm.operators.exchange_input import ExchangeInput
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.panes import Early
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.process.deduplicate import Deduplicate, DeduplicatePlan
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.protocol import inputs_of
from keyedwm.operators.state.blobs import unpacked
from keyedwm.operators.state.hashed_keys import HashedKeys, hash_of
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.hosting.bucket_batch import BucketBatch, BucketLayout, BucketManifest
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from keyedwm.spark.hosting.unpack import Unpack

_SCHEMA = pa.schema([
    ("text", pa.string()), ("number", pa.int64()), ("float", pa.float64()), ("__time", pa.int64())
])  # fmt: skip
_KEYS = (("text",), ("number",), ("text", "number"), ())
_WINDOWS = (SlidingWindow(1_000, 1_000), SlidingWindow(3_000, 1_000), SessionWindow(400))
_AGGREGATES = (
    functions.count(),
    functions.count("float", where="number > 2"),
    *(
        make(column)
        for make in (
            functions.sum, functions.avg, functions.min, functions.max, functions.first, functions.last,
            functions.collect, functions.approx_count_distinct, functions.variance, functions.stddev,
            functions.linear_trend, functions.median, functions.hll_sketch, functions.theta_sketch,
            functions.kll_sketch,
        )
        for column in ("number", "float")
    ),
    functions.approx_count_distinct("text"),
    functions.min("text"),
    functions.hll_sketch("text"),
    functions.quantile("float", 0.9),
    functions.approx_quantile("float", 0.9),
    functions.top_n(2, "float", "text"),
    functions.map_agg("text", "number"),
)  # fmt: skip
# Sets of settings with different code paths of the operators.
_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"late": LatePolicy.EMIT},
    {"lateness_ms": 2_000},
    {"early": Early(rows=2)},
    {"key_watermark": PerKey(200, 1_000), "order": ("text", "number")},
)
_ROWS = 24
_MANY_KEYS = 3_000


def close_windows_once() -> None:
    """Aggregate a few rows in three batches; the last batch closes all windows."""
    few = {"n": functions.count(), "sum": functions.sum("float")}
    for window in _WINDOWS:
        _close(WindowPlan(schema=_SCHEMA, by=("text",), window=window, time="__time",
                          aggregates=tuple((f"a{n}", one) for n, one in enumerate(_AGGREGATES))))  # fmt: skip
        for keys in _KEYS:
            _close(WindowPlan(schema=_SCHEMA, by=keys, window=window, time="__time", aggregates=tuple(few.items())))
        for settings in _SETTINGS:
            _close(WindowPlan(schema=_SCHEMA, by=("text",), window=window, time="__time",
                              aggregates=tuple(few.items()), **settings))  # fmt: skip


def _close(plan: WindowPlan) -> None:
    play(plan, _input_rows)


def find_many_keys_once() -> None:
    """Add more keys than the first capacity of a dictionary, and find them among as many further keys."""
    keys = HashedKeys((pa.field("number", pa.int64()),))
    keys.numbers([pa.array(range(_MANY_KEYS))], _MANY_KEYS)
    at_rest = [pa.array(range(2 * _MANY_KEYS))]
    keys.find(at_rest, hash_of(at_rest, 2 * _MANY_KEYS))


def leave_duplicates_out_once() -> None:
    """Deduplicate a few rows in three batches."""
    stream_input = ProcessInput(schema=_SCHEMA.append(pa.field(EVENT_TIME, pa.int64())), by=("text",), time="__time")
    rows = DeduplicatePlan(
        schema=stream_input.schema.remove(_SCHEMA.get_field_index("__time")), on=stream_input.by, within_ms=300
    )
    operator = partial(Deduplicate, rows)
    plan = ProcessPlan(inputs=(stream_input,), make=operator, result=rows.result_schema, called="warm", version=1)
    play(plan, _input_rows)


def play(plan: OperatorSpec, rows_of: Callable[[ExchangeInput, int, int, int], list[pa.RecordBatch]]) -> None:
    """Run three batches through all buckets. rows_of: input, its number, batch and watermark → the rows of one task."""
    inputs = inputs_of(plan)
    layout = BucketLayout("warm", tuple(bucket_ids(2)), ((0,),) * len(inputs))
    manifests = {one: (BucketManifest(), MemoryStore()) for one in layout.ids}
    for batch, watermark_ms in enumerate((500, 1_500, 10_000)):
        shipped = [
            row
            for number, stream_input in enumerate(inputs)
            for out in StageOne({number: stream_input}, layout.ids)(rows_of(stream_input, number, batch, watermark_ms))
            for row in out.to_pylist()
        ]
        for bucket in layout.ids:
            manifest, store = manifests[bucket]
            now = BucketBatch(plan, layout, bucket, manifest, store)
            groups = [
                [row for row in shipped if (row["bucket"], row["input"]) == (bucket, at)] for at in range(len(inputs))
            ]
            frames = list(now.on_input(
                control=[
                    [one for row in rows if row["control"] for one in unpack_control(row["control"])] for rows in groups
                ],
                rows=[[unpacked(row["partials"]) for row in rows if row["partials"] is not None] for rows in groups],
                null_event_time_rows=0, now_ms=None,
            ))  # fmt: skip
            blobs, removed = now.drain()
            left = {name: blob for name, blob in store.blobs.items() if name not in removed}
            manifests[bucket] = now.manifest, MemoryStore(left | dict(blobs))
            emitted = [pa.RecordBatch.from_pandas(one, preserve_index=False) for one in [*frames, now.last_rows()]]
            for _ in Unpack.of(plan)(emitted):
                pass


def _input_rows(stream_input: ExchangeInput, _number: int, batch: int, watermark_ms: int) -> list[pa.RecordBatch]:
    """One task's rows: events, the channel's watermark and its barrier."""
    rows = [
        {
            "text": f"key {row % 3}",
            "number": row % 5,
            "float": row / 3,
            "__time": 500 * batch + 100 * row,
            EVENT_TIME: 500 * batch + 100 * row,
        }
        for row in range(_ROWS)
    ]
    return in_batches(
        rows, pa.schema([stream_input.schema.field(name) for name in stream_input.columns]), batch, watermark_ms
    )


def in_batches(
    rows: Sequence[Mapping[str, object]], columns: pa.Schema, batch: int, watermark_ms: int, channel: str = "warm-0"
) -> list[pa.RecordBatch]:
    """Return rows of these columns, then their channel's control rows for the end of a batch."""
    control_rows = (
        ControlRow(kind=ControlKind.WATERMARK, channel=channel, offset=batch, key=0, watermark_ms=watermark_ms),
        ControlRow(kind=ControlKind.BARRIER, channel=channel, offset=batch, snapshot=batch, channels=1),
    )
    texts = [{CONTROL_TEXT: encode_rows([one])[1:-1]} for one in control_rows]
    return pa.Table.from_pylist(
        [*rows, *texts], schema=columns.append(pa.field(CONTROL_TEXT, pa.string()))
    ).to_batches()


_SCHEMAS = tuple(pa.schema([("text", pa.string()), ("number", pa.int64()), (value, pa.float64())]) for value in "vw")


def join_rows_once() -> None:
    """Join a few rows in three batches; the last batch drops all rows."""
    for on in (("text",), ("number",), ("text", "number")):
        sides = [
            JoinInputSpec(name, schema, on, (Axis(name, 0),))
            for name, schema in zip(("left", "right"), _SCHEMAS, strict=True)
        ]
        left, right = sides
        for how in (How.INNER, How.FULL, How.LEFT_SEMI):
            _play_join(
                JoinPlan(left=left, right=right, bounds=(Bound(0, 0, -300, 300),), how=how, condition="v < w + 1")
            )
        _play_join(JoinPlan(left=left, right=right, bounds=(Bound(0, 0, -FARTHEST_MS, 0),), how=How.LEFT, latest=True))


def _play_join(plan: JoinPlan) -> None:
    play(plan, lambda _, number, *control: _staged_side(plan.sides[number], number, *control))


def _staged_side(side: JoinInputSpec, number: int, batch: int, watermark_ms: int) -> list[pa.RecordBatch]:
    """One task's rows of a side; some keys are null."""
    value = side.schema.names[2]
    rows = [
        {"text": None if row == 7 else f"key {row % 3}", "number": row % 5, value: row / 3,
         side.times[0]: 500 * batch + 100 * row}
        for row in range(_ROWS)
    ]  # fmt: skip
    columns = pa.schema([*side.schema, *(pa.field(name, pa.int64()) for name in side.times)])
    return in_batches(rows, columns, batch, watermark_ms, f"warm{number}-0")
