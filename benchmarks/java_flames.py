"""Where the CPU time of Java goes in a join, a full-state median and small batches over a million keys, side by side.

Run: python -m benchmarks.java_flames [--case join] [--into build/flames]
Each side runs twice to warm up and once more under Java's flight recorder. Printed: where CPU seconds per million rows
were spent (`cpu.py`), and the shares of Java's own work; drawn: a flame graph (SVG) of each side.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import cloudpickle

from benchmarks import join, state_spark, store, store_native
from benchmarks.flame import by_part, draw
from benchmarks.measure import Run, new_topic, scratch
from benchmarks.profiles import jvm_stacks, recorded
from benchmarks.turns import Bench, running

Sides = Mapping[str, Callable[[], Run | Mapping[str, Any]]]
WARMING = 2
SMALL_BATCHES = 30
# A stack belongs to the first part that one of its frames names.
PARTS = {
    "state store (RocksDB)": ("org.rocksdb.",),
    "state of streaming operators": (".streaming.state.", "TransformWithState", "StateMessage"),
    "joining and aggregating": ("StreamingSymmetricHashJoin", ".aggregate.", "SymmetricHash"),
    "rows and Arrow": ("org.apache.arrow.", ".execution.arrow.", ".vectorized."),
    "rows and pickles": ("net.razorvine.", ".EvaluatePython", "PythonForeachWriter"),
    "handing over to Python and back": (".api.python.", ".execution.python."),
    "shuffle and sort": (".shuffle.", ".unsafe.sort.", "UnsafeExternalRowSorter", "org.apache.spark.storage."),
    "Kafka": ("org.apache.kafka.", ".sql.kafka010."),
    "logs of a batch": (".streaming.checkpointing.", "org.apache.hadoop."),
    "planning, compiling generated code": (".catalyst.", "org.codehaus.janino.", ".QueryExecution"),
    "listeners and progress": (".scheduler.AsyncEventQueue", ".status.", "com.fasterxml.jackson.", "json4s"),
}


@contextmanager
def joins(on: Bench) -> Iterator[Sides]:
    """One to one."""
    case, topics = join.CASES["one-to-one"], ("flames-left", "flames-right")
    join.load(on.cluster, topics, case)
    yield {side: partial(join.measured, on, side, case, topics) for side in (join.DEFAULT, join.KEYEDWM, join.PUSHED)}


@contextmanager
def medians(on: Bench) -> Iterator[Sides]:
    """Full-state medians."""
    cloudpickle.register_pickle_by_value(store_native)
    share = store.SHARES[store.PUSHED]
    store.load(on.cluster, store._topic(share.records), store.STREAM, share.records)  # noqa: SLF001 - ours
    yield {side: partial(store.measured, on, side, share) for side in (store.BUCKETS, store.KEYEDWM, store.PUSHED)}


@contextmanager
def small_batches(on: Bench) -> Iterator[Sides]:
    """Batches of 10,000 rows over a million open keys."""
    keys, records, topic = state_spark.KEYS, SMALL_BATCHES * state_spark.BATCH, f"flames-{time.time_ns()}"
    new_topic(on.cluster, topic)
    state_spark.produce(on, topic, np.arange(keys), 0)
    with scratch() as place:
        checkpoints = {side: f"{place}/{number}" for number, side in enumerate((state_spark.ROCKS, state_spark.PUSHED))}
        for side, checkpoint in checkpoints.items():
            state_spark.drained(on, side, topic, keys, checkpoint)
        random = np.random.default_rng(3).integers(0, keys, records)
        state_spark.produce(on, topic, random, keys // state_spark.BATCH)
        yield {side: partial(state_spark.measured, on, side, topic, records, one) for side, one in checkpoints.items()}


CASES = {"join": joins, "median": medians, "small-batches": small_batches}


def profile(on: Bench, name: str, into: Path) -> None:
    """Run the sides of a case, tell and draw."""
    with CASES[name](on) as sides:
        for side, run in sides.items():
            for _ in range(WARMING):
                run()
            recording = into / "side.jfr"
            with recorded(on.spark, recording):
                done = run()
            figures = done.figures() if isinstance(done, Run) else done
            print(f"\n{name}, {side}: {figures['rate']:,.0f} rows/s, {figures['cpu_s']:.2f} CPU s per M", flush=True)
            for part, seconds in figures["cpu_parts"].items():
                print(f"  {part:45} {seconds:8.2f} s", flush=True)
            stacks = jvm_stacks(recording)
            total = sum(stacks.values())
            for part, frame_weights in by_part(stacks, PARTS, "other Java").items():
                if weight := sum(frame_weights.values()):
                    print(f"  Java: {part:45} {weight / total:6.1%}", flush=True)
            svg_path = into / f"{name}-{side.replace(', ', '-').replace(' ', '-')}.svg"
            draw(stacks, f"{name}, {side}: Java code on a CPU, {total:,.0f} samples", svg_path)
            print(f"  {svg_path}", flush=True)


def main() -> None:
    """Profile the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--into", type=Path, default=Path("build", "flames"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    with running() as (cluster, spark):
        on = Bench(cluster, spark, tuple(options.case or CASES), None, 1)
        for name in on.cases:
            print(f"{name}: loading", file=sys.stderr)
            profile(on, name, options.into)


if __name__ == "__main__":
    main()
