"""Commits to an Iceberg table beside a neighbour that compacts and expires it as often as it can: none is lost.

Run: python -m tests.sink.iceberg_neighbour 1000   (so many batches, each also published a second time)

The neighbour rewrites all rows as one file and expires what is older. A commit that it is in the way of is retried.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.exceptions import CommitFailedException, ValidationException

from pyspark_wm_sink.iceberg import table as iceberg
from pyspark_wm_sink.tables.publish import publish
from tests.sink.iceberg_sink import how, numbers, stage_rows, table_of
from tests.tools import wait_until

_TURNS = 6  # batches for each turn of the neighbour, at the most


@dataclass
class NeighbourRun:
    """conflicts: commits that another one came before. turns: of the neighbour. lost, doubled: rows of batches."""

    batches: int
    turns: int = 0
    conflicts: int = 0
    lost_numbers: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)

    def summary(self) -> str:
        return (
            f"{self.batches} batches, each published twice, beside {self.turns} compactions with expiry: "
            f"lost {len(self.lost_numbers)}, doubled {len(self.doubled)}, {self.conflicts} conflicts, "
            f"{len(self.failed)} failures of the neighbour"
        )


def play(place: Path, batches: int) -> NeighbourRun:
    """Publish batch after batch, each a second time by another attempt, and count what a reader finds."""
    to, run, stop = how(place), NeighbourRun(batches), threading.Event()
    publish(to, [stage_rows(to, [0])], batch=0)
    neighbour = threading.Thread(target=_upkeep, args=(place, run, stop), name="neighbour")
    real = iceberg.append
    iceberg.append = _count_conflicts(real, run)
    neighbour.start()
    try:
        for batch in range(1, batches):
            publish(to, [stage_rows(to, [batch], batch)], batch=batch)
            publish(to, [stage_rows(to, [batch], batch)], batch=batch)
            wait_until(lambda: run.turns >= batch // _TURNS, "a turn of the neighbour", 600)  # noqa: B023 - at once
    finally:
        stop.set()
        neighbour.join()
        iceberg.append = real
    table_numbers = numbers(place)
    run.lost_numbers = sorted(set(range(batches)) - set(table_numbers))
    run.doubled = sorted({one for one, after in itertools.pairwise(table_numbers) if one == after})
    return run


def _count_conflicts(real, run: NeighbourRun):
    def append(*args, **kwargs) -> None:
        try:
            real(*args, **kwargs)
        except iceberg.ConflictError:
            run.conflicts += 1
            raise

    return append


def _upkeep(place: Path, run: NeighbourRun, stop: threading.Event) -> None:
    while not stop.is_set():
        table = table_of(place)
        try:
            table.overwrite(table.scan().to_arrow())
            table = table_of(place)
            head = table.current_snapshot().snapshot_id
            older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != head]
            table.maintenance.expire_snapshots().by_ids(older).commit()
            run.turns += 1
        except (CommitFailedException, ValidationException, ValueError):
            stop.wait(0.02)
        except FileNotFoundError as error:
            run.failed.append(error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sink.iceberg_neighbour", description=__doc__)
    parser.add_argument("batches", type=int, nargs="?", default=1_000)
    with tempfile.TemporaryDirectory(prefix="keyedwm-neighbour-") as place:
        run = play(Path(place), parser.parse_args().batches)
    print(run.summary())
    return 1 if run.lost_numbers or run.doubled or run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
