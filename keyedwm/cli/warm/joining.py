"""Two streams to pairs: what the stages and buckets of `join` and `join_latest` compile."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.cli.warm.windowing import in_batches, play
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import Axis, How, JoinPlan, JoinSide
from keyedwm.operators.plan_checks import FARTHEST_MS

_SCHEMAS = tuple(pa.schema([("text", pa.string()), ("number", pa.int64()), (value, pa.float64())]) for value in "vw")
_ROWS = 24


def join_rows_once() -> None:
    """Join a few rows in three batches, the last of which forgets everything."""
    for on in (("text",), ("number",), ("text", "number")):
        sides = [
            JoinSide(name, schema, on, (Axis(name, 0),))
            for name, schema in zip(("left", "right"), _SCHEMAS, strict=True)
        ]
        left, right = sides
        for how in (How.INNER, How.FULL, How.LEFT_SEMI):
            _play(JoinPlan(left=left, right=right, bounds=(Bound(0, 0, -300, 300),), how=how, condition="v < w + 1"))
        _play(JoinPlan(left=left, right=right, bounds=(Bound(0, 0, -FARTHEST_MS, 0),), how=How.LEFT, latest=True))


def _play(plan: JoinPlan) -> None:
    play(plan, plan.inputs, lambda number, *control: _staged(plan.sides[number], number, *control))


def _staged(side: JoinSide, number: int, batch: int, watermark_ms: int) -> list[pa.RecordBatch]:
    """One task's rows of a side; some keys are null."""
    value = side.schema.names[2]
    rows = [
        {"text": None if row == 7 else f"key {row % 3}", "number": row % 5, value: row / 3,
         side.times[0]: 500 * batch + 100 * row}
        for row in range(_ROWS)
    ]  # fmt: skip
    columns = pa.schema([*side.schema, *(pa.field(name, pa.int64()) for name in side.times)])
    return in_batches(rows, columns, batch, watermark_ms, f"warm{number}-0")
