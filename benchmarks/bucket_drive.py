"""A bucket in one process: the processor that Spark calls, over state in memory that counts what is read and written.

Rule: only the processor is timed; rows are made, combined and shipped before. It also drives the engine of 0.1 (of
another checkout, in a process of its own), whose modules have other names.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

CHANNEL = "load-0"
START_MS = 1_731_000_000_000 // 3_600_000 * 3_600_000
IS_FIRST_ENGINE = find_spec("keyedwm.windows.shipping") is not None


@dataclass
class Blobs:
    """Spark's map state and value state, as far as a bucket uses them."""

    blob_values: dict[tuple, tuple] = field(default_factory=dict)
    value: tuple | None = None
    read_bytes: int = 0
    put_bytes: int = 0
    note_bytes: int = 0

    def getValue(self, key: tuple) -> tuple:
        """Read one blob; the operator's note is read in every batch, and counted with the bucket's."""
        (blob,) = self.blob_values[key]
        if key == ("note",):
            self.note_bytes += len(blob)
        else:
            self.read_bytes += len(blob)
        return self.blob_values[key]

    def updateValue(self, key: tuple, value: tuple) -> None:
        """Write one blob."""
        self.put_bytes += len(value[0])
        self.blob_values[key] = value

    def removeKey(self, key: tuple) -> None:
        """Remove one blob."""
        del self.blob_values[key]

    def exists(self) -> bool:
        """Whether there is a note."""
        return self.value is not None

    def get(self) -> tuple | None:
        """Read the note."""
        return self.value

    def update(self, value: tuple) -> None:
        """Write the note."""
        self.note_bytes += len(value[0])
        self.put_bytes += len(value[0])
        self.value = value


class Handle:
    """The handle that a processor asks for its state."""

    def __init__(self, state: Blobs) -> None:
        self._state = state

    def getValueState(self, name: str, schema: object) -> Blobs:  # noqa: ARG002
        """Return the note."""
        return self._state

    def getMapState(self, name: str, key: object, value: object) -> Blobs:  # noqa: ARG002
        """Return the blobs."""
        return self._state


class NoClock:
    """A query without wall-clock time."""

    def getCurrentProcessingTimeInMs(self) -> int:
        """Return Spark's word for none."""
        return -1


@dataclass(frozen=True)
class Spent:
    """One batch. seconds: of CPU of the processor. put_bytes: with both notes. rows: pieces of results."""

    seconds: float
    read_bytes: int
    put_bytes: int
    note_bytes: int
    rows: int
    partial_bytes: int


class DrivenBucket:
    """One bucket of a plan, a fresh processor for every batch."""

    def __init__(self, kind: str, *arguments: int, aggregates: str = "sums") -> None:
        """kind: tumbling, sliding or session, with its lengths in ms."""
        self.plan = plan_of(kind, arguments, aggregates)
        self.state = Blobs()
        self._batch = 0

    def shipped(self, rows: pa.Table | None, watermark_ms: int) -> pd.DataFrame:
        """Return what stage one ships of these rows, with a watermark and a barrier of the one channel."""
        channel_row = {"channel": CHANNEL, "offset": self._batch}
        control = [
            channel_row | {"kind": "watermark", "key": 0, "watermark_ms": watermark_ms},
            channel_row | {"kind": "barrier", "snapshot": self._batch, "channels": 1},
        ]
        self._batch += 1
        ship, control_args = shipping(control)
        pieces = ship(self.plan, [0], 0, [] if rows is None else [rows], control_args)
        return pa.Table.from_batches(list(pieces)).to_pandas()

    def batch(self, shipped: pd.DataFrame) -> Spent:
        """Run the processor over one batch."""
        state = self.state
        before = state.read_bytes, state.put_bytes, state.note_bytes
        processor = bucket(self.plan)
        processor.init(Handle(state))
        began = time.process_time()
        results = 0
        for frame in processor.handleInputRows((0,), iter([shipped]), NoClock()):
            results += sum(1 for one in frame["results"] if one is not None)
        seconds = time.process_time() - began
        after = state.read_bytes, state.put_bytes, state.note_bytes
        read_bytes, put_bytes, note_bytes = (new - old for new, old in zip(after, before, strict=True))
        partials = sum(len(one) for one in shipped["partials"] if one is not None)
        return Spent(seconds, read_bytes, put_bytes, note_bytes, results, partials)

    def run_rows(self, rows: pa.Table | None, watermark_ms: int) -> Spent:
        """Ship and run one batch."""
        return self.batch(self.shipped(rows, watermark_ms))

    @property
    def state_bytes(self) -> int:
        """The bytes of all blobs."""
        return sum(len(blob) for (blob,) in self.state.blob_values.values())


def plan_of(kind: str, arguments: tuple[int, ...], aggregates: str) -> Any:
    """Return a plan over rows of `rows_of`: how many rows, and with `sums` the sum of a column."""
    plans = importlib.import_module("keyedwm.operators.frames.plan")
    functions = importlib.import_module(
        "keyedwm.operators.aggregates" if IS_FIRST_ENGINE else "keyedwm.operators.aggregates.functions"
    )
    sliding, session = (plans.Sliding, plans.Session) if IS_FIRST_ENGINE else (plans.SlidingWindow, plans.SessionWindow)
    window = session(*arguments) if kind == "session" else sliding(*arguments)
    asked_aggregates = (("n", functions.count()), *((("total", functions.sum("v")),) if aggregates == "sums" else ()))
    make = plans.Plan if IS_FIRST_ENGINE else plans.WindowPlan
    return make(schema=SCHEMA, by=("k",), window=window, aggregates=asked_aggregates, time="__time")


def shipping(control: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Return stage one's function, and control rows as it takes them."""
    if IS_FIRST_ENGINE:
        return importlib.import_module("keyedwm.windows.shipping").shipped, [json.dumps(one) for one in control]
    from keyedwm.core.control_row import ControlRow
    from keyedwm.core.rows import ControlKind
    from keyedwm.operators.frames.partials import ExchangePartials
    from keyedwm.operators.shuffle import shipped

    def ship(plan: Any, ids: list[int], task: int, events: list[pa.Table], control: list[ControlRow]) -> Any:
        return shipped({0: ExchangePartials(plan)}, ids, task, [[rows] for rows in events], control)

    return ship, [ControlRow(**{**one, "kind": ControlKind(one["kind"])}) for one in control]


def bucket(plan: Any) -> Any:
    """Return a fresh processor."""
    bucket_module = importlib.import_module("keyedwm.spark.hosting.bucket")
    if IS_FIRST_ENGINE:
        return bucket_module.Bucket(plan, importlib.import_module("keyedwm.spark.round").Placing("load", (0,), 0))
    return bucket_module.Bucket(plan, bucket_module.BucketLayout("load", (0,), ((0,),)))


SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("__time", pa.int64())])


def rows_of(keys: np.ndarray, times: np.ndarray) -> pa.Table:
    """Rows with keys of 12 letters."""
    names = pa.array(np.char.add("key-", np.char.zfill(np.unique(keys).astype(str), 8)))
    places = np.unique(keys, return_inverse=True)[1]
    return pa.table([names.take(pa.array(places)), pa.array(keys % 1000), pa.array(times)], schema=SCHEMA)


def small_batches(window: str, batches: int, rows: int, keys: int) -> Iterator[Spent]:
    """Yield batches of a second after one in which every key came: what a stream of small batches costs."""
    rng = np.random.default_rng(11)
    driven_bucket = DrivenBucket(*WINDOWS[window])
    driven_bucket.run_rows(rows_of(np.arange(keys), np.full(keys, START_MS)), START_MS - 2)
    driven_bucket.run_rows(rows_of(rng.integers(0, keys, rows), np.full(rows, START_MS)), START_MS - 1)  # compiled
    for number in range(batches):
        at_ms = START_MS + 1_000 * number
        times = at_ms + np.sort(rng.integers(0, 1_000, rows))
        yield driven_bucket.run_rows(rows_of(rng.integers(0, keys, rows), times), at_ms)


HOUR_MS = 3_600_000
WINDOWS: dict[str, tuple] = {
    "tumbling": ("tumbling", HOUR_MS, HOUR_MS),
    "sliding": ("sliding", HOUR_MS, 60_000),
    "session": ("session", HOUR_MS // 2),
}


def main() -> None:
    """Run `small_batches` of the engine that is imported, and print its figures as JSON, a line for each batch."""
    window, *numbers = sys.argv[1:]
    for spent in small_batches(window, *map(int, numbers)):
        print(json.dumps([spent.seconds, spent.read_bytes, spent.put_bytes, spent.partial_bytes]), flush=True)


if __name__ == "__main__":
    main()
