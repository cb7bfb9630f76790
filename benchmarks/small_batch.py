"""The small batch: where the time of a warm micro-batch of 2,000 rows with one aggregate goes, beside Spark's own.

Run: python -m benchmarks.small_batch [--pairs N]
Tumbling windows of `benchmarks.windows`, sixty batches; the median of those behind the first ten, as Spark's progress
reports them. All sides run once more with `local_checkpoint`, the checkpoint's files through Hadoop's FileSystem in
place of its FileContext, which asks about a local file by starting `readlink`: 33 processes in each of these batches.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from benchmarks.measure import HDFS, Sheet, how_many, median, whole
from benchmarks.turns import PAIRS, Bench, in_turn, running
from benchmarks.windows import CASES as WINDOWS
from benchmarks.windows import DEFAULT, KEYEDWM, PUSHED, Share, keyedwm_counts, native, topic_of
from benchmarks.windows_answer import answer, check_columns, load
from keyedwm.spark.setup.conf import FILE_SYSTEM, MANAGER, PROVIDER, ROCKSDB

CASE = WINDOWS["tumbling"]
SHARE = Share(120_000, 2_000)
WARMING = 10
BATCHES = SHARE.records // SHARE.batch
SIDES = (DEFAULT, KEYEDWM, PUSHED)
RESULTS = {"small-batch": False, "small-batch-local": True}
# What Spark calls the parts of a batch.
PARTS = {
    "batch_ms": ("triggerExecution",),
    "tasks_ms": ("addBatch",),
    "query_planning_ms": ("queryPlanning",),
    "offsets_ms": ("latestOffset", "getBatch"),
    "logs_ms": ("walCommit", "commitOffsets"),
}


def measured(on: Bench, side: str, topic: str, *, is_local: bool) -> Mapping[str, float | None]:
    """Run a query over all records; return the median of each part of a warm batch."""
    on.spark.conf.set(PROVIDER, HDFS if side == DEFAULT else ROCKSDB)
    if is_local:
        on.spark.conf.set(MANAGER, FILE_SYSTEM)
    else:
        on.spark.conf.unset(MANAGER)
    make = {KEYEDWM: partial(keyedwm_counts, pushed=False), PUSHED: partial(keyedwm_counts, pushed=True)}.get(
        side, native
    )
    done = whole(side, make(on, CASE, topic, SHARE), check_columns(), answer(CASE.stream, SHARE.records))
    # By number: of stage one in the source Spark counts the rows that are handed over.
    warm = [one.durationMs for one in done.progress[WARMING:BATCHES]]
    if len(warm) < BATCHES - WARMING:
        raise SystemExit(f"{side}: {len(done.progress)} batches, {BATCHES} are expected: no figure")
    return {name: median([sum(spent[part] for part in parts) for spent in warm]) for name, parts in PARTS.items()}


def main() -> None:
    """Run all sides in turn and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=how_many, default=PAIRS)
    options = parser.parse_args()
    with running() as (cluster, spark):
        on = Bench(cluster, spark, cases=(), asked_records=None, pairs=options.pairs)
        topic = topic_of(CASE.stream, SHARE)
        load(on.cluster, topic, CASE.stream, SHARE.records)
        setting = {"keys": CASE.stream.keys, **asdict(SHARE)}
        for result, is_local in RESULTS.items():
            sides = {side: partial(measured, on, side, topic, is_local=is_local) for side in SIDES}
            in_turn(Sheet(result, DEFAULT, setting | {"local_checkpoint": is_local}), sides, on.pairs)


if __name__ == "__main__":
    main()
