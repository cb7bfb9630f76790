"""Two streams to pairs: what the stages and buckets of `join` and `join_latest` compile."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.cli.warm.windowing import in_batches
from keyedwm.core.control_row import decode_rows
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, How, JoinPlan, JoinSide
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.state.blobs import unpacked
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.hosting.join_batch import JoinBatch, JoinLayout, JoinNote
from keyedwm.spark.hosting.join_stage import JoinStage
from keyedwm.spark.hosting.join_unpack import JoinUnpack, output_schema

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
    layout = JoinLayout("warm", tuple(bucket_ids(2)))
    notes = {one: (JoinNote(), MemoryStore()) for one in layout.ids}
    for batch, watermark_ms in enumerate((500, 1_500, 10_000)):
        shipped = [
            row
            for number, side in enumerate(plan.sides)
            for out in JoinStage(side, number, layout.ids)(_staged(side, number, batch, watermark_ms))
            for row in out.to_pylist()
        ]
        for bucket in layout.ids:
            note, store = notes[bucket]
            now = JoinBatch(plan, layout, bucket, note, store)
            mine = [[row for row in shipped if (row["bucket"], row["side"]) == (bucket, at)] for at in (LEFT, RIGHT)]
            control = [[one for row in rows if row["control"] for one in decode_rows(row["control"])] for rows in mine]
            tables = [[unpacked(row["rows"]) for row in rows if row["rows"] is not None] for rows in mine]
            frames = list(now.on_input(control, tables))
            written, removed = now.drain()
            left = {name: blob for name, blob in store.blobs.items() if name not in removed}
            notes[bucket] = now.note, MemoryStore(left | dict(written))
            emitted = [pa.RecordBatch.from_pandas(one, preserve_index=False) for one in [*frames, now.last_row()]]
            for _ in JoinUnpack(output_schema(plan), len(plan.result_schema))(emitted):
                pass


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
