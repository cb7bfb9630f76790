"""Kill -9 of the whole driver at random points, restart from the checkpoint, and count what is lost or doubled.

Run: python -m tests.e2e.kill_campaign --kills 100 --seed 7   (KEYEDWM_BOOTSTRAP names a running Kafka)

Everything random comes from the seed; only where exactly a kill falls depends on the machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)

import pyarrow.compute as pc  # noqa: E402
from deltalake import DeltaTable  # noqa: E402

from keyedwm.testing.broker import broker  # noqa: E402
from tests.tools import Record, make_topic, produce  # noqa: E402

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
PARTITIONS = 3
PER_PARTITION = 1_500
STEP_MS = 5 * 60_000
JITTER_MS = 110 * 60_000  # below the pipeline's lag of two hours: nothing is late by its own partition's promise
SPREAD_MS = 6 * HOUR_MS  # how far each partition is ahead of the one before it
START_UP_S = 8.0
RUN_LIMIT_S = 240.0
TABLES = ("events", "hours")


@dataclass
class Outcome:
    """What a campaign found; `told` is the one line."""

    kills: int = 0
    lost: int = 0
    doubled: int = 0
    wrong_hours: list[str] = field(default_factory=list)
    went_back: list[str] = field(default_factory=list)

    def told(self) -> str:
        return f"kills {self.kills}, lost {self.lost}, doubled {self.doubled}"

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.wrong_hours or self.went_back)


class Campaign:
    """One topic, one directory, one seed."""

    def __init__(self, bootstrap: str, directory: Path, seed: int) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.random = random.Random(f"{seed} kills")
        self.topic = f"kills-{uuid.uuid4().hex[:12]}"
        self.records = list(_records(self.random))
        self.outcome = Outcome()

    def run(self, kills: int) -> Outcome:
        """Produce, kill `kills` times, run to the end, and compare."""
        make_topic(self.bootstrap, self.topic, PARTITIONS)
        produce(self.bootstrap, self.topic, self.records)
        for _ in range(kills):
            self._start_and_kill()
            self.outcome.kills += 1
        self._finish()
        self._compare_events()
        self._compare_hours()
        self._look_for_steps_back()
        return self.outcome

    def _start(self, mode: str) -> subprocess.Popen:
        arguments = [self.bootstrap, self.topic, str(self.directory), mode]
        with (self.directory / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.pipeline", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _start_and_kill(self) -> None:
        """Kill during start-up, or some batches later; the place inside the batch is left to chance."""
        batches = self.random.choice([0, 1, 1, 2, 3, 5])
        pause_s = self.random.uniform(0, START_UP_S if batches == 0 else 1.0)
        wanted = self._batches() + batches
        process = self._start("forever")
        try:
            began = time.monotonic()
            while self._batches() < wanted:
                self._expect_alive(process, began)
                time.sleep(0.005)
            time.sleep(pause_s)
            self._expect_alive(process, began)
        finally:
            _kill(process)

    def _finish(self) -> None:
        process = self._start("to-the-end")
        try:
            process.wait(RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the last run did not end within {RUN_LIMIT_S:g} s: {self._log()}") from None
        finally:
            _kill(process)
        assert process.returncode == 0, f"the last run failed: {self._log()}"

    def _expect_alive(self, process: subprocess.Popen, began: float) -> None:
        assert process.poll() is None, f"the pipeline ended by itself: {self._log()}"
        assert time.monotonic() - began < RUN_LIMIT_S, f"no batch within {RUN_LIMIT_S:g} s: {self._log()}"

    def _log(self) -> str:
        """What the pipeline said from its last error on, without the frames of Java."""
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        said = "\n".join(line for line in lines if not line.lstrip().startswith("at "))
        return said[max(0, said.rfind("terminated with error") - 200) :][:6_000]

    def _batches(self) -> int:
        """How many batches both queries have planned."""
        return sum(len(_numbered(self.directory / f"{table}.checkpoint" / "offsets")) for table in TABLES)

    def _compare_events(self) -> None:
        columns = ["partition", "offset", "value"]
        table = DeltaTable(self.directory / "events").to_pyarrow_table(columns=columns)
        found = Counter(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
        offsets = [0] * PARTITIONS
        for record in self.records:
            row = (record.partition, offsets[record.partition], record.value)
            offsets[record.partition] += 1
            self.outcome.lost += row not in found
        self.outcome.doubled += found.total() - len(found)
        # A row that was never sent is a lost one come back changed.
        assert len(found) + self.outcome.lost == len(self.records)

    def _compare_hours(self) -> None:
        table = DeltaTable(self.directory / "hours").to_pyarrow_table()
        starts = pc.cast(table.column("hour"), "int64").to_pylist()
        rows = zip(starts, table.column("partition").to_pylist(), table.column("count").to_pylist(), strict=True)
        found = Counter((start // 1_000, partition, count) for start, partition, count in rows)
        counts = Counter((r.timestamp_ms // HOUR_MS * HOUR_MS, r.partition) for r in self.records)
        # The hours of the last records are open for ever: nothing comes that would close them.
        closed = min(max(r.timestamp_ms for r in self.records if r.partition == p) for p in range(PARTITIONS))
        exact = Counter(
            {(h, p, count): 1 for (h, p), count in counts.items() if h + HOUR_MS <= closed - 2 * HOUR_MS}
        )  # fmt: skip
        self.outcome.wrong_hours += [f"missing {row}" for row in exact - found]
        self.outcome.wrong_hours += [f"too much {row}" for row in found - exact]

    def _look_for_steps_back(self) -> None:
        for table in TABLES:
            logged = list(_logged(self.directory / f"{table}.checkpoint"))
            # Spark adds batches of its own without news of ours (they close windows): these repeat the offset.
            batches = [batch for batch, _ in itertools.groupby(batch for batch, _ in logged)]
            assert batches == list(range(len(batches))), f"{table}: the source's batches are {batches}"
            self._note_steps_back(f"{table}, offset log", [watermark for _, watermark in logged])
        self._note_steps_back("events, commits", list(_published(self.directory / "events")))

    def _note_steps_back(self, where: str, watermarks: list[int | None]) -> None:
        known = [w for w in watermarks if w is not None]
        assert known, f"{where}: there was no watermark"
        first = watermarks.index(known[0])
        steps = zip(watermarks[first:], watermarks[first + 1 :], strict=False)
        self.outcome.went_back += [f"{where}: {a} to {b}" for a, b in steps if b is None or b < a]


def _records(rng: random.Random) -> Iterator[Record]:
    """Each partition in its own order, the next one hours ahead; one last record far ahead closes every hour."""
    start_ms = 1_356_998_400_000
    for partition in range(PARTITIONS):
        for number in range(PER_PARTITION):
            ms = start_ms + partition * SPREAD_MS + number * STEP_MS + rng.randrange(JITTER_MS)
            yield Record(partition, ms, b"%d:%d:%d" % (partition, number, ms))
        end_ms = start_ms + PARTITIONS * SPREAD_MS + PER_PARTITION * STEP_MS
        yield Record(partition, end_ms + 24 * HOUR_MS, b"%d:last" % partition)


def _numbered(directory: Path) -> list[int]:
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit()) if directory.exists() else []


def _logged(checkpoint: Path) -> Iterator[tuple[int, int | None]]:
    """(the source's batch number, coalesced watermark) of every entry of Spark's offset log."""
    for number in _numbered(checkpoint / "offsets"):
        offset = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[2])
        if offset["version"] == 1:
            yield offset["batch"], dict(map(tuple, offset["coalesced"]["emitted"])).get(0)


def _published(table: Path) -> Iterator[int | None]:
    """The coalesced watermark in the metadata of every commit, oldest first."""
    for commit in reversed(DeltaTable(table).history()):
        if "keyedwm" in commit:
            yield json.loads(commit["keyedwm"])["coalesced"].get("0")


def _kill(process: subprocess.Popen) -> None:
    """SIGKILL for the Python driver and its JVM at once; Spark's own Python workers end with the JVM."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("KEYEDWM_SEED") or 20240229))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with broker() as running, tempfile.TemporaryDirectory(prefix="keyedwm-kills-") as directory:
        outcome = Campaign(running.bootstrap, Path(directory), given.seed).run(given.kills)
    for found in (*outcome.wrong_hours, *outcome.went_back):
        print(found)
    print(outcome.told())
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
