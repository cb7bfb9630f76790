"""The small batch: where the time of a warm micro-batch of 2,000 rows with one aggregate goes, beside Spark's own.

Run: python -m benchmarks.small_batch [--case default|file-system] [--pairs N]
Tumbling windows of `benchmarks.windows`, sixty batches; the median of those behind the first ten, as Spark's progress
reports them. `file-system`: the checkpoint's files go through Hadoop's FileSystem in place of its FileContext, which
asks about a file on a local disk by starting `readlink`: 33 processes in each of these batches, of either side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from benchmarks.measure import HDFS, Sheet, median, whole
from benchmarks.turns import Bench, bench, in_turn
from benchmarks.windows import CASES as WINDOWS
from benchmarks.windows import DEFAULT, OURS, PUSHED, ROCKS, Share, native, ours, topic_of
from benchmarks.windows_answer import answer, check_columns, load
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

CASE = WINDOWS["tumbling"]
SHARE = Share(120_000, 2_000)
WARMING = 10
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
CASES = {
    "default": None,
    "file-system": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}  # fmt: skip
# What Spark calls the parts of a batch.
PARTS = {
    "batch_ms": ("triggerExecution",),
    "tasks_ms": ("addBatch",),
    "query_planning_ms": ("queryPlanning",),
    "offsets_ms": ("latestOffset", "getBatch"),
    "logs_ms": ("walCommit", "commitOffsets"),
}


def measured(on: Bench, side: str, topic: str) -> Mapping[str, float | None]:
    """Run a query over all records; return the median of each part of a warm batch."""
    on.spark.conf.set(PROVIDER, HDFS if side == DEFAULT else ROCKSDB)
    make = {OURS: partial(ours, pushed=False), PUSHED: partial(ours, pushed=True)}.get(side, native)
    frame = make(on, CASE, topic, SHARE)
    done = whole(side, frame, check_columns(), answer(CASE.stream, SHARE.records))
    full = max(one.numInputRows for one in done.progress)
    warm = [one.durationMs for one in done.progress if one.numInputRows > full * 0.9][WARMING:]
    return {
        name: median([sum(spent.get(part, 0) for part in parts) for spent in warm]) for name, parts in PARTS.items()
    }


def compare(on: Bench, name: str) -> None:
    """One way to write a checkpoint."""
    topic, manager = topic_of(CASE.stream, SHARE), CASES[name]
    load(on.cluster, topic, CASE.stream, SHARE.records)
    if manager is None:
        on.spark.conf.unset(MANAGER)
    else:
        on.spark.conf.set(MANAGER, manager)
    setting = {"checkpoint_files": name, "keys": CASE.stream.keys, **asdict(SHARE)}
    sheet = Sheet("small-batch" if manager is None else f"small-batch-{name}", DEFAULT, setting)
    in_turn(sheet, {side: partial(measured, on, side, topic) for side in (DEFAULT, ROCKS, OURS, PUSHED)}, on.pairs)


def main() -> None:
    """Run the cases and write their results."""
    with bench(__doc__, CASES) as on:
        for name in on.cases:
            compare(on, name)


if __name__ == "__main__":
    main()
