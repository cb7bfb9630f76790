"""All buckets of an operator of two inputs, without Spark: stage, buckets and unpacking."""

from __future__ import annotations

import json

import pyarrow as pa

from keyedwm.operators.exchange_control import unpack_control
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.state.blobs import unpacked
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.hosting.bucket_batch import BucketBatch, BucketLayout, BucketManifest
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from keyedwm.spark.hosting.unpack import Unpack
from tests.spark.test_bucket_batch import emitted_of


class TwoInputs:
    """All buckets of one plan; every batch begins from what the one before wrote down."""

    def __init__(self, plan: OperatorSpec, layout: BucketLayout) -> None:
        self.plan, self.layout = plan, layout
        self.unpack = Unpack.of(plan)
        self.state = {one: (BucketManifest(), MemoryStore()) for one in self.layout.ids}
        self.late_rows = self.null_event_time_rows = 0

    def batch(self, *inputs: list[dict]) -> list[dict]:
        """Run a batch of rows of each input; return what leaves."""
        shipped = [
            row
            for number, rows in enumerate(inputs)
            for out in StageOne({number: self.plan.inputs[number]}, self.layout.ids)(self._staged(number, rows))
            for row in out.to_pylist()
        ]
        made = []
        for bucket in self.layout.ids:
            note, store = self.state[bucket]
            note = BucketManifest.from_json(json.loads(json.dumps(note.as_json())))
            now = BucketBatch(self.plan, self.layout, bucket, note, store)
            mine = [[row for row in shipped if (row["bucket"], row["input"]) == (bucket, one)] for one in (0, 1)]
            leaving = now.on_input(
                control=[
                    [one for row in rows if row["control"] for one in unpack_control(row["control"])] for rows in mine
                ],
                rows=[[unpacked(row["partials"]) for row in rows if row["partials"] is not None] for rows in mine],
                null_event_time_rows=sum(row["null_event_times"] for rows in mine for row in rows),
                now_ms=None,
            )
            frames = list(leaving)
            changed, removed = now.drain()
            kept = {name: blob for name, blob in store.blobs.items() if name not in removed} | dict(changed)
            assert kept.keys() == now.manifest.blobs.keys()
            self.state[bucket] = now.manifest, MemoryStore(kept)
            last_row = now.last_rows()
            self.late_rows += now.late_rows
            self.null_event_time_rows += int(last_row["null_event_time_rows"].sum())
            emitted = [emitted_of(frame) for frame in [*frames, last_row]]
            made += [row for out in self.unpack(emitted) for row in out.to_pylist()]
        return made

    def _staged(self, number: int, rows: list[dict]) -> list[pa.RecordBatch]:
        given = self.plan.inputs[number]
        schema = pa.schema([*(given.schema.field(name) for name in given.columns), (CONTROL_TEXT, pa.string())])
        return pa.Table.from_pylist(rows, schema).to_batches()
