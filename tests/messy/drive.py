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

from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.rescale import Move
from keyedwm.operators.join.held import MATCHED
from keyedwm.operators.join.move import JoinMove
from keyedwm.operators.messages.join.staged import StagedWindowJoin
from keyedwm.operators.messages.staged import StagedStore
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.rescale import ProcessMove
from keyedwm.operators.state.note import NOTE
from keyedwm.spark.hosting.bucket import Bucket
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.bucket_move import CutState, Moved
from keyedwm.spark.hosting.join_batch import JoinLayout
from keyedwm.spark.hosting.join_bucket import JoinBucket
from keyedwm.spark.hosting.join_move import CutJoin, MovedJoin
from keyedwm.spark.hosting.join_stage import JoinStage
from keyedwm.spark.hosting.join_unpack import JoinUnpack
from keyedwm.spark.hosting.join_unpack import output_schema as join_output
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from keyedwm.spark.hosting.unpack import Unpack, output_schema
from tests.messy.feed import Batch, Feed
from tests.messy.kinds import rows_of

NAME = "messy"
_UNPACKED = {"results": pa.binary(), "control": pa.string(), "watermark_ms": pa.int64(), "watermarks": pa.string()}
_TIMERS = SimpleNamespace(getCurrentProcessingTimeInMs=lambda: -1)


class State:
    """What Spark keeps of one bucket: the note and the blobs, as `handle` gives them."""

    def __init__(self) -> None:
        self.note: tuple | None = None
        self.blobs: dict[str, bytes] = {}

    def getValueState(self, *_: str) -> Any:
        return SimpleNamespace(
            exists=lambda: self.note is not None, get=lambda: self.note,
            update=lambda told: setattr(self, "note", told),
        )  # fmt: skip

    def getMapState(self, *_: str) -> Any:
        return SimpleNamespace(
            getValue=lambda at: None if at[0] not in self.blobs else (self.blobs[at[0]],),
            updateValue=lambda at, one: self.blobs.__setitem__(at[0], one[0]),
            removeKey=lambda at: self.blobs.__delitem__(at[0]),
        )


class Pipeline:
    """All buckets of an operator of one input or several; `buckets` may change between two batches."""

    def __init__(self, plan: Any, buckets: int, others: int = 0) -> None:
        self.plan = pickle.loads(dumps(plan))  # noqa: S301  as Spark sends it
        self.kind = "window_join" if isinstance(plan, StagedWindowJoin) else "aggregate"
        self.kind = "process" if isinstance(plan, ProcessPlan) else self.kind
        self.others = (0,) * others
        self.inputs = plan.inputs if hasattr(plan, "inputs") else [getattr(plan, "messages", plan)]
        self.unpack = Unpack(output_schema(plan.result_schema))
        self.begun: Moved | MovedJoin | None = None
        self.open(buckets)

    def open(self, buckets: int) -> None:
        self.layout = BucketLayout(NAME, tuple(bucket_ids(buckets)), 0, self.kind, self.others)
        self.state = {one: State() for one in self.layout.ids}

    def bucket(self) -> Bucket:
        return Bucket(self.plan, self.layout, self.begun)

    def batch(self, *given: tuple[Feed, Batch]) -> list[dict[str, Any]]:
        """Play a batch of each input; return the rows of the result, results and control rows."""
        shipped = pa.Table.from_batches(list(self._shipped(given))).to_pandas()
        made: list[dict[str, Any]] = []
        for bucket in self.layout.ids:
            of_bucket = self.bucket()
            of_bucket.init(self.state[bucket])
            mine = shipped[shipped["bucket"] == bucket]
            emitted = list(of_bucket.handleInputRows((bucket,), iter([mine]), _TIMERS))
            for out in self.unpack([_batch_of(emitted)]):
                assert all(field.nullable for field in out.schema)  # control rows have nothing in most columns
                made += rows_of(out)
        return made

    def _shipped(self, given: Sequence[tuple[Feed, Batch]]) -> Iterator[pa.RecordBatch]:
        for number, (feed, batch) in enumerate(given):
            stage = self.stage(number)
            for task, texts in zip(batch.tasks, batch.control, strict=True):
                table = feed.table(task, [*self.columns(number), CONTROL_TEXT], texts)
                yield from stage(table.to_batches(max_chunksize=7))

    def stage(self, number: int) -> Any:
        return StageOne(self.inputs[number], self.layout.ids, number)

    def columns(self, number: int) -> Sequence[str]:
        return self.inputs[number].columns

    def move(self, buckets: int) -> None:
        """Go on with another number of buckets, as from a savepoint."""
        states = [self.state[one] for one in self.layout.ids]
        notes = tuple(json.loads(one.note[0]) for one in states)
        facts = tuple(json.loads(one.blobs[NOTE]) for one in states)
        blobs = tuple(tuple(name for name in one.blobs if name != NOTE) for one in states)
        self.open(buckets)
        begun, cut = self._moved(notes, facts, blobs)
        self.begun = pickle.loads(dumps(begun))  # noqa: S301
        pieces = [one.to_pandas() for one in cut(self._held(states).to_batches())]
        for bucket in self.layout.ids:
            mine = [piece[piece["bucket"] == bucket] for piece in pieces]
            blank = pd.DataFrame({name: [None] for name in ("name", "blob", *self._counted)}, dtype=object)
            of_bucket = self.bucket()
            of_bucket.init(self.state[bucket])
            for one in [blank, *(one for one in mine if len(one))]:
                of_bucket.handleInitialState((bucket,), one, None)

    _counted: tuple[str, ...] = ("rows", "first_end")

    def _held(self, states: Sequence[State]) -> pa.Table:
        rows = [(number, name, blob) for number, one in enumerate(states) for name, blob in one.blobs.items()]
        held = [dict(zip(("bucket", "name", "blob"), row, strict=True)) for row in rows if row[1] != NOTE]
        return pa.Table.from_pylist(
            held, pa.schema([("bucket", pa.int32()), ("name", pa.string()), ("blob", pa.binary())])
        )

    def _moved(self, notes: tuple, facts: tuple, blobs: tuple) -> tuple[Any, Any]:
        if isinstance(self.plan, ProcessPlan):
            move: Any = ProcessMove(
                who=NAME,
                plan=self.plan,
                count=len(self.layout.ids),
                digest=self.plan.digest(),
                facts=facts,
                blobs=blobs,
            )
        else:
            told = json.loads(json.dumps(self.plan.told()))
            move = Move(who=NAME, plan=self.plan, digest=self.plan.digest(), told=told, facts=facts, blobs=blobs)
        return Moved(move=move, name=NAME, notes=notes, follows={}), CutState(move, self.layout.ids)

    @property
    def can_move(self) -> bool:
        return not isinstance(self.plan, StagedStore | StagedWindowJoin)


def _batch_of(emitted: Sequence[pd.DataFrame]) -> pa.RecordBatch:
    """Frames of one row as one batch, of the columns that unpacking reads: pandas takes its time for each frame."""
    names = [name for name in _UNPACKED if name in emitted[0].columns]
    columns = [[frame[name].iat[0] for frame in emitted] for name in names]
    arrays = [
        pa.array([None if value is pd.NA else value for value in column], _UNPACKED[name])
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names)


class JoinPipeline(Pipeline):
    """The same of a join or `join_latest`."""

    def __init__(self, plan: Any, buckets: int) -> None:
        self.plan = pickle.loads(dumps(plan))  # noqa: S301
        self.unpack = JoinUnpack(join_output(plan), len(plan.result_schema))
        self.begun = None
        self.open(buckets)

    def open(self, buckets: int) -> None:
        self.layout = JoinLayout(NAME, tuple(bucket_ids(buckets)))
        self.state = {one: State() for one in self.layout.ids}

    def bucket(self) -> JoinBucket:
        return JoinBucket(self.plan, self.layout, self.begun)

    def stage(self, number: int) -> JoinStage:
        return JoinStage(self.plan.sides[number], number, self.layout.ids)

    def columns(self, number: int) -> list[str]:
        return [*self.plan.sides[number].schema.names, "__time"]

    _counted = ("fact",)

    def _held(self, states: Sequence[State]) -> pa.Table:
        bits, blobs = {}, []
        for bucket, name, blob in zip(*super()._held(states).to_pydict().values(), strict=True):
            if name.endswith(MATCHED):
                bits[bucket, name.removesuffix(MATCHED)] = blob
            else:
                blobs.append((bucket, name, blob))
        held = [(*one, bits.get(one[:2])) for one in blobs]
        columns = list(zip(*held, strict=True)) or [[]] * 4
        kinds = pa.int32(), pa.string(), pa.binary(), pa.binary()
        return pa.table(
            [pa.array(one, kind) for one, kind in zip(columns, kinds, strict=True)],
            ["bucket", "name", "blob", "matched"],
        )

    def _moved(self, notes: tuple, facts: tuple, blobs: tuple) -> tuple[Any, Any]:
        move = JoinMove(who=NAME, plan=self.plan, digest=self.plan.digest, facts=facts, blobs=blobs)
        return MovedJoin(move=move, name=NAME, notes=notes, follows={}), CutJoin(move, self.layout.ids)
