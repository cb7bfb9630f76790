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
from tests.sink.iceberg_sink import how, numbers, staged, table_of
from tests.tools import wait_until

_TURNS = 6  # batches for each turn of the neighbour, at the most


@dataclass
class Played:
    """conflicts: commits that another one came before. turns: of the neighbour. lost, doubled: rows of batches."""

    batches: int
    turns: int = 0
    conflicts: int = 0
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)

    def told(self) -> str:
        return (
            f"{self.batches} batches, each published twice, beside {self.turns} compactions with expiry: "
            f"lost {len(self.lost)}, doubled {len(self.doubled)}, {self.conflicts} conflicts, "
            f"{len(self.failed)} failures of the neighbour"
        )


def play(place: Path, batches: int) -> Played:
    """Publish batch after batch, each a second time by another attempt, and count what a reader finds."""
    to, played, stop = how(place), Played(batches), threading.Event()
    publish(to, [staged(to, [0])], batch=0)
    neighbour = threading.Thread(target=_upkeep, args=(place, played, stop), name="neighbour")
    real = iceberg.append
    iceberg.append = _counted(real, played)
    neighbour.start()
    try:
        for batch in range(1, batches):
            publish(to, [staged(to, [batch], batch)], batch=batch)
            publish(to, [staged(to, [batch], batch)], batch=batch)
            wait_until(lambda: played.turns >= batch // _TURNS, "a turn of the neighbour", 600)  # noqa: B023 - at once
    finally:
        stop.set()
        neighbour.join()
        iceberg.append = real
    found = numbers(place)
    played.lost = sorted(set(range(batches)) - set(found))
    played.doubled = sorted({one for one, after in itertools.pairwise(found) if one == after})
    return played


def _counted(real, played: Played):
    def append(*given, **named) -> None:
        try:
            real(*given, **named)
        except iceberg.ConflictError:
            played.conflicts += 1
            raise

    return append


def _upkeep(place: Path, played: Played, stop: threading.Event) -> None:
    while not stop.is_set():
        table = table_of(place)
        try:
            table.overwrite(table.scan().to_arrow())
            table = table_of(place)
            head = table.current_snapshot().snapshot_id
            older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != head]
            table.maintenance.expire_snapshots().by_ids(older).commit()
            played.turns += 1
        except (CommitFailedException, ValidationException, ValueError):
            stop.wait(0.02)
        except FileNotFoundError as error:
            played.failed.append(error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sink.iceberg_neighbour", description=__doc__)
    parser.add_argument("batches", type=int, nargs="?", default=1_000)
    with tempfile.TemporaryDirectory(prefix="keyedwm-neighbour-") as place:
        played = play(Path(place), parser.parse_args().batches)
    print(played.told())
    return 1 if played.lost or played.doubled or played.failed else 0


if __name__ == "__main__":
    sys.exit(main())
