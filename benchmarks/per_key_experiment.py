"""The published experiment on watermarks of keys: elements kept when some of the keys are late as a whole.

Run: python -m benchmarks.per_key_experiment [--records 6000000] [--store]
Tumbling windows of 10 s, a bound of 1 s, delays on 5, 20 and 50 % of the keys; each late key is late by a time of its
own, drawn evenly from 0 to 20 s (the published delays are not known). 1,000 keys in 8 partitions, 10,000 records a
second of event time, micro-batches of one second. Per partition and per key are counted by the product's operators in
this process, Spark's one watermark by its rule: the highest event time of the batches before, less the bound; a row is
dropped if its window ends there or before.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measure import how_many
from benchmarks.per_key import SCHEMA
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore

KEYS, PARTITIONS, RATE = 1_000, 8, 10_000
WINDOW_MS, BOUND_MS, SECOND_MS, MOST_LATE_MS = 10_000, 1_000, 1_000, 20_000
DELAYED = (0.05, 0.2, 0.5)
SPARK, PARTITION, KEY = "spark", "per partition", "per key"
PER_KEY = PerKey(BOUND_MS, 600_000)
NAMES = pa.array([f"key-{number}" for number in range(KEYS)])
RESULTS = Path(__file__).parent / "results"


def batches(records: int, share: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield keys and event times of the records of each micro-batch, in order of arrival."""
    rng = np.random.default_rng(7)
    late = rng.permutation(KEYS)[: round(share * KEYS)]
    delay_ms = np.zeros(KEYS, np.int64)
    delay_ms[late] = rng.integers(0, MOST_LATE_MS, len(late))
    for first in range(0, records, RATE):
        arrival_ms = np.sort(rng.integers(0, SECOND_MS, min(RATE, records - first))) + first // RATE * SECOND_MS
        keys = rng.integers(0, KEYS, len(arrival_ms))
        yield keys, arrival_ms - delay_ms[keys] + 10**9


class Operator:
    """A plan and its state; a fresh operator a batch, as Spark does it."""

    def __init__(self, per_key: PerKey | None) -> None:
        self.plan = WindowPlan(
            schema=SCHEMA, by=("key",), time="time", window=SlidingWindow(WINDOW_MS, WINDOW_MS),
            aggregates=(("rows", count()),), order=("topic", "partition", "offset"), key_watermark=per_key,
        ).trimmed()  # fmt: skip
        self.store, self.late_rows, self.results = MemoryStore(), 0, 0

    def batch(self, rows: pa.Table, watermark_ms: int) -> None:
        """Take the rows of a batch, then the coalesced watermark behind it."""
        operator = operator_of(self.plan, self.store)
        for outputs in (
            operator.on_rows(0, combine_rows(self.plan, rows), None),
            operator.on_watermark(0, 0, watermark_ms),
        ):
            self.results += sum(output.rows.num_rows for output in outputs)
        self.late_rows += operator.late_rows
        self.store.apply(operator.drain())


def lost_rows(records: int, share: float) -> dict[str, int]:
    """Return how many records each way loses."""
    operators = {PARTITION: Operator(None), KEY: Operator(PER_KEY)}
    tops = np.full(PARTITIONS, -(10**15))
    of_spark, dropped_rows = -(10**15), 0
    for keys, times in batches(records, share):
        dropped_rows += int(((times // WINDOW_MS + 1) * WINDOW_MS <= of_spark - BOUND_MS).sum())
        of_spark = max(of_spark, int(times.max()))
        partitions = keys % PARTITIONS
        np.maximum.at(tops, partitions, times)
        rows = pa.table(
            [
                NAMES.take(pa.array(keys)), pa.array(times), pa.repeat("events", len(keys)),
                pa.array(partitions.astype(np.int32)), pa.array(np.arange(len(keys))),
            ],
            schema=SCHEMA,
        )  # fmt: skip
        for operator in operators.values():
            operator.batch(rows, int(tops.min()) - BOUND_MS)
    return {SPARK: dropped_rows, **{name: operator.late_rows for name, operator in operators.items()}}


def main() -> None:
    """Print the table, and store it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=how_many, nargs="*", default=[6_000_000, 20_000_000])
    parser.add_argument("--store", action="store_true", help="write benchmarks/results/per-key-experiment.json")
    options = parser.parse_args()
    path = RESULTS / "per-key-experiment.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    print("records, late keys: elements kept with Spark's one watermark, per partition, per key")
    for records in options.records:
        for share in DELAYED:
            lost_counts = lost_rows(records, share)
            kept_percent = {name: round(100 * (records - number) / records, 2) for name, number in lost_counts.items()}
            print(
                f"{records:,}, {share:.0%}: " + ", ".join(f"{number} %" for number in kept_percent.values()), flush=True
            )
            figures[f"{records}, {share:.0%}"] = {"lost": lost_counts, "kept_percent": kept_percent}
            if options.store:
                path.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
