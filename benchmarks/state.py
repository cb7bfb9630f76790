"""State that costs what changes: batches over much open state beside the same over none, and beside 0.1.

Run: python -m benchmarks.state [--case NAME] [--pairs 5] [--seconds 20] [--scale 1.0]
Cases: entries, sessions, small, small-sessions, restart, spark, join, curves.
The processor that Spark calls runs in this process over a store that counts bytes (`bucket_drive.py`); only it is
timed, in CPU seconds. Both sides of a case take the very same batches, so many that the quicker one runs for the asked
seconds over all pairs. The engine of 0.1 runs in a checkout of its own. `--scale`: of the state, for a trial.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.bucket_drive import HOUR_MS, START_MS, DrivenBucket, Spent, rows_of
from benchmarks.measure import Sheet, how_many
from benchmarks.turns import in_turn

ROWS = 10_000
LEAST_BATCHES = 10
FIRST_ENGINE = "73a656b"
MINUTE_MS = 60_000
Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    pairs: int
    seconds: float
    scale: float

    def batches(self, first: Spent) -> int:
        """Return how many batches a side runs in one pair, of which one takes this long."""
        return max(LEAST_BATCHES, int(self.seconds / self.pairs / max(first.seconds, 1e-4)))


def filled(kind: tuple, entries: int, keys: int, step_ms: int) -> DrivenBucket:
    """Return a bucket with so many open entries: all keys once a step, while the watermark stands before all."""
    bucket = DrivenBucket(*kind)
    for number in range(entries // keys):
        at_ms = START_MS + number * step_ms
        bucket.run_rows(rows_of(np.arange(keys), np.full(keys, at_ms)), START_MS - 1_000 + number)
    return bucket


def batches_of(bucket: DrivenBucket, count: int, keys: int, at_ms: int, rows: int = ROWS) -> list[pd.DataFrame]:
    """Return batches as they are shipped: random keys, times that rise by 10 ms a batch; the watermark rises, too."""
    rng = np.random.default_rng(5)
    batches = []
    for number in range(count):
        times = np.full(rows, at_ms + 10 * number)
        batches.append(bucket.shipped(rows_of(rng.integers(0, keys, rows), times), START_MS + 10 * number))
    return batches


def measured(bucket: DrivenBucket, shipped: list[pd.DataFrame]) -> Figures:
    """Run batches over what is open; the state is put back afterwards."""
    blob_values, value = dict(bucket.state.blob_values), bucket.state.value
    spent = [bucket.batch(one) for one in shipped]
    bucket.state.blob_values, bucket.state.value = blob_values, value
    partials = sum(one.partial_bytes for one in spent)
    if any(one.rows for one in spent):
        raise SystemExit("a batch closed windows: no figure")
    return {
        "ms": 1_000 * sum(one.seconds for one in spent) / len(spent),
        "median_ms": 1_000 * float(np.median([one.seconds for one in spent])),
        "put_of_partials": sum(one.put_bytes for one in spent) / partials,
        "read_bytes": sum(one.read_bytes for one in spent) / len(spent),
        "median_read_bytes": float(np.median([one.read_bytes for one in spent])),
        "note_bytes": sum(one.note_bytes for one in spent) / len(spent),
        "batches": len(spent),
    }


def over_open(name: str, kind: tuple, entries: int, keys: int, options: Options) -> None:
    """The same batches over nothing and over so many open entries."""
    step_ms = MINUTE_MS if kind[0] != "session" else 1
    entries, keys = (max(1_000, int(options.scale * size)) for size in (entries, keys))
    full, empty = filled(kind, entries, keys, step_ms), DrivenBucket(*kind)
    at_ms = START_MS + (entries // keys - 1) * step_ms
    before = dict(full.state.blob_values), full.state.value
    count = options.batches(full.batch(batches_of(full, 1, keys, at_ms)[0]))
    full.state.blob_values, full.state.value = before
    shipped = batches_of(full, count, keys, at_ms)
    setting = {"entries": entries, "keys": keys, "batch": ROWS, "state_MB": full.state_bytes // 1_000_000}
    sides = {"none open": partial(measured, empty, shipped), "all open": partial(measured, full, shipped)}
    in_turn(Sheet(name, "none open", setting), sides, options.pairs)


def entries(options: Options) -> None:
    """10 million (key, frame) in windows of an hour by the minute."""
    over_open("state-entries", ("sliding", 100 * MINUTE_MS, MINUTE_MS), 10_000_000, 100_000, options)


def sessions(options: Options) -> None:
    """A million sessions of half an hour."""
    over_open("state-sessions", ("session", HOUR_MS // 2), 1_000_000, 1_000_000, options)


def small(options: Options) -> None:
    """Batches of 1,000 rows over a million keys, and the engine of 0.1 in turn."""
    beside_first_engine("tumbling", options)


def small_sessions(options: Options) -> None:
    """The same over sessions of half an hour."""
    beside_first_engine("session", options)


def beside_first_engine(kind: str, options: Options) -> None:
    """The small batches of one kind of window, by the engine of 0.1 in a checkout of its own and by this one."""
    keys = max(1_000, int(1_000_000 * options.scale))
    with tempfile.TemporaryDirectory() as place:
        root = Path(__file__).parents[1]
        subprocess.run(["git", "-C", str(root), "worktree", "add", "--detach", place, FIRST_ENGINE], check=True)
        try:
            sides = {
                "0.1": partial(figures_of, Path(place), kind, keys),
                "keyedwm": partial(figures_of, root, kind, keys),
            }
            in_turn(Sheet(f"state-small-{kind}", "0.1", {"keys": keys, "batch": 1_000}), sides, options.pairs)
        finally:
            subprocess.run(["git", "-C", str(root), "worktree", "remove", "--force", place], check=True)


def figures_of(checkout: Path, kind: str, keys: int) -> Figures:
    """Run the small batches in a process of the engine of this checkout."""
    script = Path(__file__).with_name("bucket_drive.py")
    done = subprocess.run(
        [sys.executable, str(script), kind, "20", "1000", str(keys)],
        env={**os.environ, "PYTHONPATH": str(checkout)}, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    seconds, read, put_bytes, partials = (sum(column) for column in zip(*lines, strict=True))
    return {
        "rate": 1_000 * len(lines) / seconds, "steady": None, "cpu_s": seconds / len(lines) * 1_000,
        "put_of_partials": put_bytes / partials, "read_bytes": read / len(lines),
    }  # fmt: skip


def restart(options: Options) -> None:
    """The first batch of a new processor over 10 million entries, and over none: nothing is read before it is due."""
    keys, frames = max(1_000, int(options.scale * 100_000)), 100
    kind = ("sliding", frames * MINUTE_MS, MINUTE_MS)
    full, empty = filled(kind, keys * frames, keys, MINUTE_MS), DrivenBucket(*kind)
    shipped = batches_of(full, 1, keys, START_MS + (frames - 1) * MINUTE_MS)
    sides = {"none open": partial(measured, empty, shipped), "all open": partial(measured, full, shipped)}
    in_turn(Sheet("state-restart", "none open", {"entries": keys * frames, "keys": keys}), sides, options.pairs)


def spark(options: Options) -> None:
    """Through Spark, beside its own operator over RocksDB (`state_spark.py`)."""
    module("benchmarks.state_spark", "--pairs", str(options.pairs))


def join(options: Options) -> None:
    """10 million held rows of a join (`state_join.py`)."""
    module("benchmarks.state_join", "--pairs", str(options.pairs), "--held", str(int(10_000_000 * options.scale)))


def curves(options: Options) -> None:
    """What docs/explanation/scaling.md shows (`state_curves.py`)."""
    module("benchmarks.state_curves", "--most", str(int(10_000_000 * options.scale)))


def module(name: str, *arguments: str) -> None:
    """Run a benchmark with a command line of its own."""
    subprocess.run([sys.executable, "-W", "ignore", "-m", name, *arguments], check=True)


CASES: Mapping[str, Callable[[Options], None]] = {
    "entries": entries, "sessions": sessions, "small": small, "small-sessions": small_sessions, "restart": restart,
    "spark": spark, "join": join, "curves": curves,
}  # fmt: skip


def main() -> None:
    """Run the cases and write their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--pairs", type=how_many, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    for name in options.case or CASES:
        CASES[name](Options(options.pairs, options.seconds, options.scale))


if __name__ == "__main__":
    main()
