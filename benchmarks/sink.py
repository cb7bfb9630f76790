"""Kafka to Kafka and Kafka to files: keyedwm's source and sinks beside Spark's own, in turn, on one broker.

Run: python -m benchmarks.sink [--case kafka-500k|guarantees|files|commit] [--records 5000000] [--pairs 5]
`kafka`: Spark's connector (at-least-once) against our exactly-once, in batches of a size that suits both best, and
`kafka-500k` in smaller ones; `guarantees`: what exactly-once costs over at-least-once at 100,000 rows a batch (a
million records at most); `files`: Spark's parquet sink against our Delta sink. Each side has its own source, the
columns it needs and an output of its own, whose records are counted before a figure is shown. `commit`: see
`commit.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
from deltalake import DeltaTable

from benchmarks import commit
from benchmarks.measure import Run, Sheet, committed, finished, load_hundred_bytes, new_topic, scratch
from benchmarks.turns import RECORDS, Bench, bench, in_turn
from keyedwm.testing.admin import delete_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = "bench-sink-in"
MILLION = 1_000_000
OUT_TOPIC = "bench-sink-out"
COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Side:
    """A source format, a sink format, the sink's options; `files`: it writes to a directory, not to a topic."""

    source: str
    sink: str
    options: dict[str, str] = field(default_factory=dict)
    files: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Sides by name, the rival first, the rows of a micro-batch, and at most how many records."""

    batch: int
    sides: dict[str, Side]
    records: int = RECORDS


AT_LEAST = Side("keyedwm", "keyedwm", {"guarantee": "at-least-once"})
EXACTLY = Side("keyedwm", "keyedwm", {"guarantee": "exactly-once"})
CASES = {
    "kafka-500k": Case(500_000, {"spark": Side("kafka", "kafka"), "keyedwm exactly-once": EXACTLY}),
    "guarantees": Case(100_000, {"at-least-once": AT_LEAST, "exactly-once": EXACTLY}, MILLION),
    "files": Case(
        500_000,
        {
            "spark parquet": Side("kafka", "parquet", files=True),
            "keyedwm delta": Side("keyedwm", "keyedwm", files=True),
        },
    ),
}


def written_rows(place: str, side: Side) -> int:
    """Count the rows of a directory's table."""
    if side.sink == "parquet":
        return int(pyarrow.dataset.dataset(place, format="parquet", exclude_invalid_files=True).count_rows())
    return int(DeltaTable(place).to_pyarrow_dataset().count_rows())


def topic_of(records: int) -> str:
    """Where so many records lie."""
    return f"{SOURCE}-{records}"


def rows(on: Bench, side: Side, records: int, batch: int) -> DataFrame:
    """Describe the read of one side: key and value, and what our sink needs beside them."""
    reading = {"subscribe": topic_of(records), "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch)}
    if side.source == "keyedwm":
        reading["columns"] = "key,value,control"
    frame = on.reader(side.source).options(**on.where, **reading).load()
    return frame.select("key", "value") if side.source == "kafka" else frame


def copy(on: Bench, side: Side, records: int, batch: int) -> Run:
    """Copy the source once; raises SystemExit if the output does not hold every record once."""
    with scratch() as place:
        target = {"path": str(Path(place, "out"))} if side.files else {"topic": OUT_TOPIC, **on.where}
        if not side.files:
            new_topic(on.cluster, OUT_TOPIC)
        writer = rows(on, side, records, batch).writeStream.format(side.sink).options(**target, **side.options)
        done = finished(writer)
        arrived = written_rows(target["path"], side) if side.files else committed(on.cluster, OUT_TOPIC)
        if not side.files:
            delete_topic(on.cluster, OUT_TOPIC)
    if arrived != records:
        raise SystemExit(f"{side}: {arrived} of {records} records arrived: no figure")
    return done.run(records)


def compare(on: Bench, name: str, loaded: set[int]) -> None:
    """One case: load what its sides read, if an earlier one has not, and run them in turn."""
    case = CASES[name]
    records = on.at_most(case.records)
    if records not in loaded:
        load_hundred_bytes(on.cluster, topic_of(records), records)
        loaded.add(records)
    sheet = Sheet(f"sink-{name}", next(iter(case.sides)), {"records": records, "batch": case.batch})
    in_turn(sheet, {side: partial(copy, on, how, records, case.batch) for side, how in case.sides.items()}, on.pairs)


def main() -> None:
    """Run the cases and write their results."""
    with bench(__doc__, [*CASES, COMMIT]) as on:
        loaded: set[int] = set()
        for name in on.cases:
            if name == COMMIT:
                commit.measure(on)
            else:
                compare(on, name, loaded)


if __name__ == "__main__":
    main()
