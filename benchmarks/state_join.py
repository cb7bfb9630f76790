"""A join's batches over much that is held beside the same over little: what a batch does not reach costs nothing.

Run: python -m benchmarks.state_join [--pairs 5] [--batches 20] [--held 10000000]
The left side is hours ahead, so that its rows wait for right ones; batches of 10,000 right rows meet the oldest of
them, one to one within ten seconds. The processor that Spark calls runs in this process over a store that counts bytes;
only it is timed, in CPU seconds. Each batch must give all its pairs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.bucket_drive import START_MS, Blobs, Handle, NoClock
from benchmarks.measure import Sheet, how_many
from benchmarks.turns import in_turn
from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, JoinInputSpec, JoinPlan
from keyedwm.operators.shuffle import shipped
from keyedwm.operators.state.blobs import unpacked
from keyedwm.spark.hosting.bucket import Bucket
from keyedwm.spark.hosting.bucket_batch import BucketLayout

ROWS, KEYS = 10_000, 100_000
PER_MS, WITHIN_MS = 10, 10_000
PIECE = 500_000  # rows of a batch that fills the state
LITTLE, ALL_HELD = "little held", "all held"
LAYOUT = BucketLayout("load", (0,), ((0,), (0,)), "join")
SCHEMA = pa.schema([("k", pa.string()), ("value", pa.binary())])


def plan_of() -> JoinPlan:
    """Rows of 100 bytes, matched by key within ten seconds."""
    sides = [JoinInputSpec(name, SCHEMA, ("k",), (Axis(name, 0),)) for name in ("left", "right")]
    return JoinPlan(left=sides[LEFT], right=sides[RIGHT], bounds=(Bound(0, 0, 0, WITHIN_MS - 1),))


class DrivenJoin:
    """One bucket of the join, a fresh processor for every batch."""

    def __init__(self) -> None:
        self.plan, self.state = plan_of(), Blobs()
        self._batch = 0
        self._names = pa.array(np.char.add("key-", np.char.zfill(np.arange(KEYS).astype(str), 8)))

    def shipped(self, side: int, first: int, count: int) -> pd.DataFrame:
        """Return rows `first` to `first + count` of a side as they are shipped, with the side's watermark."""
        number = np.arange(first, first + count)
        one = self.plan.sides[side]
        times = START_MS + number // PER_MS
        columns = [self._names.take(pa.array(number % KEYS)), pa.repeat(pa.scalar(b"x" * 100), count), pa.array(times)]
        rows = pa.table(columns, schema=one.shipped.schema)
        control = [
            ControlRow(kind=ControlKind.WATERMARK, channel=one.name, offset=self._batch, key=0,
                       watermark_ms=int(times[-1])),
            ControlRow(kind=ControlKind.BARRIER, channel=one.name, offset=self._batch, snapshot=self._batch,
                       channels=1),
        ]  # fmt: skip
        self._batch += 1
        pieces = shipped({side: one.shipped}, LAYOUT.ids, 0, [[rows]], control)
        return pa.Table.from_batches(list(pieces)).to_pandas()

    def batch(self, shipped: pd.DataFrame) -> tuple[float, int]:
        """Run the processor over one batch; return its CPU seconds and how many pairs left."""
        processor = Bucket(self.plan, LAYOUT)
        processor.init(Handle(self.state))
        began = time.process_time()
        frames = list(processor.handleInputRows((0,), iter([shipped]), NoClock()))
        seconds = time.process_time() - began
        results = [one for frame in frames for one in frame["results"] if one is not None]
        return seconds, sum(unpacked(one).num_rows for one in results)


def filled(rows: int) -> DrivenJoin:
    """Return a bucket that holds so many left rows."""
    join = DrivenJoin()
    for first in range(0, rows, PIECE):
        join.batch(join.shipped(LEFT, first, min(PIECE, rows - first)))
    return join


def measured(join: DrivenJoin, shipped: list[pd.DataFrame]) -> Mapping[str, float | None]:
    """Run batches over what is held; the state is put back afterwards."""
    state = join.state
    blob_values, value = dict(state.blob_values), state.value
    before = state.read_bytes, state.put_bytes, state.note_bytes
    spent = [join.batch(one) for one in shipped]
    after = state.read_bytes, state.put_bytes, state.note_bytes
    size = sum(len(blob) for (blob,) in blob_values.values())
    state.blob_values, state.value = blob_values, value
    if any(pairs != ROWS for _, pairs in spent):
        raise SystemExit(f"{sorted({pairs for _, pairs in spent})} pairs of a batch, {ROWS} are the answer: no figure")
    byte_counts = dict(zip(("read_bytes", "put_bytes", "note_bytes"), zip(before, after, strict=True), strict=True))
    return {
        "ms": 1_000 * sum(seconds for seconds, _ in spent) / len(spent),
        "median_ms": 1_000 * float(np.median([seconds for seconds, _ in spent])),
        **{figure: (then - first) / len(spent) for figure, (first, then) in byte_counts.items()},
        "state_bytes": size,
    }


def main() -> None:
    """Fill both buckets, and run the same batches over them in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=how_many, default=5)
    parser.add_argument("--batches", type=how_many, default=20)
    parser.add_argument("--held", type=how_many, default=10_000_000)
    options = parser.parse_args()
    reached_rows = PIECE * -(-options.batches * ROWS // PIECE)
    joins = {LITTLE: filled(reached_rows), ALL_HELD: filled(max(reached_rows, options.held))}
    setting = {"held": max(reached_rows, options.held), "little": reached_rows, "keys": KEYS, "batch": ROWS}
    sides = {}
    for side, one in joins.items():
        shipped = [one.shipped(RIGHT, number * ROWS, ROWS) for number in range(options.batches)]
        sides[side] = partial(measured, one, shipped)
    in_turn(Sheet("state-join", LITTLE, setting), sides, options.pairs)


if __name__ == "__main__":
    main()
