"""The code of Spark's Python workers, driven in this process: stage one, buckets with their state, unpacking.

Rule: a bucket is built anew for each batch, from the blobs that the one before wrote: a restart between any two.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.cloudpickle import dumps

from keyedwm.arrow.schema import REJECTED_TYPE
from keyedwm.core.rows import REJECTED
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.protocol import KINDS, inputs_of
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.rescale_pieces import SameBuckets
from keyedwm.spark.hosting.bucket import Bucket
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.rescale_state import RescaledState
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from keyedwm.spark.hosting.unpack import Unpack
from tests.messy.feed import Batch, Feed
from tests.messy.kinds import rows_of
from tests.messy.rejected import Rejected
from tests.operators.moving import pieces

NAME = "messy"
_UNPACKED = {"results": pa.binary(), "control": pa.string(), "watermarks": pa.string(), "rejected": pa.binary()}
_TIMERS = SimpleNamespace(getCurrentProcessingTimeInMs=lambda: -1)


class State:
    """What Spark keeps of one bucket: the manifest and the blobs, as `handle` gives them."""

    def __init__(self) -> None:
        self.manifest: tuple | None = None
        self.blobs: dict[str, bytes] = {}

    def getValueState(self, *_: object) -> Any:
        return SimpleNamespace(
            exists=lambda: self.manifest is not None, get=lambda: self.manifest,
            update=lambda manifest: setattr(self, "manifest", manifest),
        )  # fmt: skip

    def getMapState(self, *_: object) -> Any:
        return SimpleNamespace(
            getValue=lambda at: None if at[0] not in self.blobs else (self.blobs[at[0]],),
            updateValue=lambda at, one: self.blobs.__setitem__(at[0], one[0]),
            removeKey=lambda at: self.blobs.__delitem__(at[0]),
        )


class Pipeline:
    """All buckets of an operator of one input or several; `buckets` may change between two batches."""

    def __init__(self, plan: Any, buckets: int, others: int = 0) -> None:
        self.plan = pickle.loads(dumps(plan))  # noqa: S301  as Spark sends it
        self.kind = KINDS[plan.kind].api_name
        self.axes = ((0,),) * (1 + others)
        self.inputs = inputs_of(plan)
        self.back = None if REJECTED in plan.result_schema.names else Rejected()
        self.unpack = Unpack.of(plan, [REJECTED_TYPE] if self.back else [], NAME)
        self.rescaled: RescaledState | None = None
        self.open(buckets)

    def open(self, buckets: int) -> None:
        self.layout = BucketLayout(NAME, tuple(bucket_ids(buckets)), self.axes, self.kind)
        self.state = {one: State() for one in self.layout.ids}

    def bucket(self) -> Bucket:
        return Bucket(self.plan, self.layout, self.rescaled)

    def batch(self, *batches: tuple[Feed, Batch]) -> list[dict[str, Any]]:
        """Play a batch of each input; return the rows of the result, results and control rows."""
        shipped = pa.Table.from_batches(list(self._shipped(batches))).to_pandas()
        rows: list[dict[str, Any]] = []
        for bucket in self.layout.ids:
            of_bucket = self.bucket()
            of_bucket.init(self.state[bucket])
            frame = shipped[shipped["bucket"] == bucket]
            emitted = list(of_bucket.handleInputRows((bucket,), iter([frame]), _TIMERS))
            for out in self.unpack([_batch_of(emitted)]):
                assert all(field.nullable for field in out.schema)  # control rows have nothing in most columns
                rows += rows_of(self.back.out_of(out) if self.back else out)
        if self.back:
            self.back.check()
        return rows

    def _shipped(self, batches: Sequence[tuple[Feed, Batch]]) -> Iterator[pa.RecordBatch]:
        for number, (feed, batch) in enumerate(batches):
            stage = self.stage(number)
            for task, texts in zip(batch.tasks, batch.control, strict=True):
                table = feed.table(task, [*self.columns(number), CONTROL_TEXT], texts)
                rows = self.back.among(table) if self.back else table
                yield from stage(rows.to_batches(max_chunksize=7))

    def stage(self, number: int) -> Any:
        return StageOne({number: self.inputs[number]}, self.layout.ids, has_rejected=self.back is not None)

    def columns(self, number: int) -> Sequence[str]:
        input_plan = self.inputs[number]
        return ["__time" if name in getattr(input_plan, "times", ()) else name for name in input_plan.columns]

    def move(self, buckets: int) -> None:
        """Go on with another number of buckets, as from a savepoint."""
        states = [self.state[one] for one in self.layout.ids]
        notes = tuple(json.loads(one.manifest[0]) for one in states)
        facts = tuple(json.loads(one.blobs[MANIFEST]) for one in states)
        blobs = tuple(tuple(name for name in one.blobs if name != MANIFEST) for one in states)
        self.open(buckets)
        rescaled = self._rescale(notes, facts, blobs)
        self.rescaled = pickle.loads(dumps(rescaled))  # noqa: S301
        state_pieces = pieces(rescaled, self.layout, [one.blobs for one in states])
        for bucket in self.layout.ids:
            blank = {"name": None, "blob": None, "entry": None}
            records = [vars(piece) for piece in state_pieces if piece.bucket == bucket]
            of_bucket = self.bucket()
            of_bucket.init(self.state[bucket])
            for some in [[blank], *([one] for one in records)]:
                of_bucket.handleInitialState((bucket,), pd.DataFrame(some, dtype=object), None)

    def _rescale(self, notes: tuple, facts: tuple, blobs: tuple) -> RescaledState:
        arguments: dict[str, Any] = {
            "who": NAME, "plan": self.plan, "digest": self.plan.digest(), "states": facts, "blobs": blobs,
            "count": len(self.layout.ids), "description": json.loads(json.dumps(self.plan.description())),
        }  # fmt: skip
        move = KINDS[self.plan.kind].rescale(**arguments)
        return RescaledState(rescale=move, name=NAME, manifests=notes, follows={})

    @property
    def can_move(self) -> bool:
        return KINDS[self.plan.kind].rescale is not SameBuckets


def _batch_of(emitted: Sequence[pd.DataFrame]) -> pa.RecordBatch:
    """Frames of one row as one batch, of the columns that unpacking reads: pandas takes its time for each frame."""
    names = [name for name in _UNPACKED if name in emitted[0].columns]
    columns = [[frame[name].iat[0] for frame in emitted] for name in names]
    arrays = [
        pa.array([None if value is pd.NA else value for value in column], _UNPACKED[name])
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names)
