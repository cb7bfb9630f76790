"""One upgrade: an old version at work, killed in mid-batch; this checkout continues it; then the exact comparison."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from tests.e2e.brokers import Brokers
from tests.e2e.feed import PARTITIONS
from tests.upgrade.answers import ANSWERS, Row, ShopFeed
from tests.upgrade.environments import python_of
from tests.upgrade.outcome import Outcome
from tests.upgrade.outputs import PARTITIONS as OUTPUT_PARTITIONS
from tests.upgrade.outputs import digest, ends, make_catalog, rows_of
from tests.upgrade.queries import Plan, twin

PROGRAM = Path(__file__).with_name("queries.py")
NEW = "this checkout"
LIMIT_S, LOOK_S, PAUSE_S = 600.0, 0.05, 0.8
ORPHANS_S = 60.0  # that Python processes may outlive their JVM
READ_S = 3.0  # between two readings of all results
BATCHES = 2  # that each version commits before it is stopped
# Python processes write byte code, and are of the version's own environment.
UNSET = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
STATE = "=== Streaming Query ==="  # Spark's plans and offsets follow it in an error


class Trial:
    """A directory, a topic, and the lives of the program on them."""

    def __init__(self, directory: Path, brokers: Brokers, outcome: Outcome, seed: int) -> None:
        self.directory, self.brokers, self.outcome = directory, brokers, outcome
        self.random = random.Random(seed)
        topic = f"upgrade-{directory.name}"
        for name in (topic, twin(topic)):
            brokers.make_topic(name, PARTITIONS)
        for name in outcome.queries if outcome.target == "kafka" else ():
            brokers.make_topic(f"{topic}-{name}", OUTPUT_PARTITIONS)
        for name in outcome.queries if outcome.target == "iceberg" else ():
            make_catalog(directory, name)
        self.feed = ShopFeed(brokers.cluster, topic, self.random)
        self.plan = Plan(bootstrap=brokers.direct, topic=topic, target=outcome.target, queries=outcome.queries)
        self._process: subprocess.Popen | None = None
        self.lives = 0
        self.began_s = time.monotonic()

    def log(self, what: str) -> None:
        """Say where the trial is."""
        print(f"{time.monotonic() - self.began_s:6.0f} s, life {self.lives}: {what}", flush=True)

    def start(self, version: str, **changes: object) -> None:
        """Start the program with a version and a changed plan."""
        self.plan = replace(self.plan, **changes)
        (self.directory / "plan.json").write_text(json.dumps(asdict(self.plan)))
        python = sys.executable if version == NEW else python_of(version)
        self.lives += 1
        self.log(f"keyedwm {version} starts")
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        ours = {name: value for name, value in os.environ.items() if name not in UNSET}
        with (self.directory / f"log-{self.lives}").open("w") as log:
            self._process = subprocess.Popen(
                [python, "-W", "ignore", PROGRAM, self.directory, str(self.lives)], cwd=self.directory,
                env={**ours, "TMPDIR": str(temporary), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL for the driver and its JVM. Their Python processes, in groups of their own, end by themselves."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def wait_for_orphans(self) -> None:
        """Wait until no Python process of the killed program is left."""
        deadline_s = time.monotonic() + ORPHANS_S
        while (orphans := self._orphans()) and time.monotonic() < deadline_s:
            time.sleep(PAUSE_S)
        if orphans:
            self.outcome.unreached.append(f"{len(orphans)} Python processes outlived life {self.lives}")
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _orphans(self) -> list[int]:
        """The processes of the program's session."""
        if self._process is None:
            return []
        command = ["ps", "-s", str(self._process.pid), "-o", "pid="]
        return [int(pid) for pid in subprocess.run(command, capture_output=True, check=False).stdout.split()]

    def batches(self, name: str, log: str) -> int:
        """The newest batch in a log of the query's checkpoint, -1 for none."""
        home = self.directory / self.plan.checkpoints / name / log
        return max((int(path.name) for path in home.glob("*") if path.name.isdigit()), default=-1)

    def in_flight(self) -> list[str]:
        """The queries that have a batch planned and not committed."""
        return [name for name in self.active if self.batches(name, "offsets") > self.batches(name, "commits")]

    @property
    def active(self) -> list[str]:
        """The queries that have not failed."""
        return [name for name in self.outcome.queries if name not in self.outcome.failures]

    def events(self) -> list[dict[str, str]]:
        """What the program reported in its present life."""
        path = self.directory / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["life"] == str(self.lives)]

    def errors(self) -> dict[str, str]:
        """The queries that failed in the present life."""
        events = [event for event in self.events() if event["what"] == "failed"]
        return {event["name"]: event["error"].partition(STATE)[0].strip() for event in events}

    def note_failures(self) -> None:
        for name, error in self.errors().items():
            self.outcome.failures.setdefault(name, f"in life {self.lives}: {error}")

    def wait(self, reached: Callable[[], bool], what: str, look_s: float = LOOK_S) -> bool:
        """Wait for something that the program does, as long as queries commit batches or report events."""
        progress, deadline_s = (self.commits(), len(self.events())), time.monotonic() + LIMIT_S
        while not reached():
            is_over = self._process is not None and self._process.poll() is not None
            if (now := (self.commits(), len(self.events()))) != progress:
                progress, deadline_s = now, time.monotonic() + LIMIT_S
            if is_over or time.monotonic() > deadline_s:
                if reached():
                    return True
                reason = "the program ended" if is_over else f"{LIMIT_S:.0f} s passed without a batch or an event"
                self.outcome.unreached.append(f"life {self.lives}: {reason} before {what}")
                return False
            time.sleep(look_s)
        return True

    def commits(self) -> dict[str, int]:
        """The newest batch that each query has committed."""
        return {name: self.batches(name, "commits") for name in self.active}

    def work(self, batches: int = BATCHES) -> None:
        """Wait until each query has committed so many batches more."""
        before = self.commits()
        self.log(f"works from batches {sorted(before.values())}")

        def reached() -> bool:
            self.note_failures()
            return all(self.batches(name, "commits") >= before[name] + batches for name in self.active)

        self.wait(reached, f"each query committed {batches} batches more")

    def kill_in_a_batch(self) -> None:
        """Kill while at least a third of the queries have a batch in flight."""
        self.wait(lambda: 3 * len(self.in_flight()) >= len(self.active), "a third of the queries planned a batch")
        time.sleep(self.random.uniform(0, 0.5))
        self.kill()
        self.outcome.in_flight += len(self.in_flight())
        self.log(f"killed, {len(self.in_flight())} of {len(self.active)} queries in a batch")

    def finish(self) -> None:
        """Close all windows, wait for the results, and compare."""
        self.feed.send_last()
        self.log(f"all {sum(map(len, self.feed.sent)):,} records are sent")
        answers = {name: ANSWERS[name].exact(self.feed) for name in self.active}
        incomplete = set(answers)

        def complete() -> bool:
            """Two looks after the last missing result is there, in case that a batch brings too many."""
            self.note_failures()
            was_complete = not incomplete & set(self.active)
            incomplete.difference_update([name for name in incomplete if not answers[name] - self.results(name)])
            return was_complete and not self.in_flight()

        self.wait(complete, "all results are there", READ_S)
        self.kill()
        self.outcome.records = sum(map(len, self.feed.sent))
        for name in self.active:
            rows, exact = self.results(name), answers[name]
            self.outcome.count(name, exact, rows)

    def results(self, name: str) -> Counter[Row]:
        columns = ANSWERS[name].columns
        plan = self.plan
        return rows_of(plan.target, self.directory, name, plan.topic, plan.bootstrap, columns)

    def digest(self, name: str) -> dict[str, str]:
        """What identifies everything that a query has written."""
        files = digest(self.directory, name, self.plan.checkpoints)
        is_topic = self.plan.target == "kafka"
        return files | (ends(f"{self.plan.topic}-{name}", self.plan.bootstrap) if is_topic else {})


@contextmanager
def load(feed: ShopFeed) -> Iterator[None]:
    """Send records all the time. An error of a send is raised at the end: without it, records that were not sent would
    count as lost."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(PAUSE_S):
            feed.send(2, 5)

    with ThreadPoolExecutor(1, "load") as executor:
        sends = executor.submit(send)
        try:
            yield
        finally:
            over.set()
    sends.result()


def upgrade(trial: Trial, version: str, how: str, back: str | None) -> None:
    """Run the old version under load, kill it, continue with this checkout; with `back` try the old one once more."""
    with load(trial.feed):
        trial.start(version)
        trial.work()
        trial.kill_in_a_batch()
        if how != "restart":
            _move(trial, version if how == "savepoint" else NEW, version)
        trial.start(NEW)
        trial.work(1)
        if back:
            _downgrade(trial, back)
            trial.start(NEW)
            trial.work(1)
    trial.finish()


def _move(trial: Trial, saver: str, version: str) -> None:
    """Stop between two batches, write savepoints, and continue from them in new checkpoints."""
    trial.start(version, once=True)
    trial.wait(lambda: "over" in _kinds(trial.events()), "the queries stop")
    trial.note_failures()
    trial.kill()
    trial.start(saver, once=False, save_to="savepoints")
    trial.wait(lambda: "over" in _kinds(trial.events()), "savepoints are written")
    trial.note_failures()
    trial.kill()
    trial.plan = replace(
        trial.plan, save_to=None, savepoints="savepoints", checkpoints="moved", queries=tuple(trial.active)
    )


def _kinds(events: Sequence[dict[str, str]]) -> set[str]:
    return {event["what"] for event in events}


def _downgrade(trial: Trial, version: str) -> None:
    """Kill this checkout in mid-batch and start the old version on its checkpoints: each query is rejected before
    anything is written, or it continues."""
    trial.kill_in_a_batch()
    trial.wait_for_orphans()
    outcome, names = trial.outcome, trial.active
    before = {name: trial.digest(name) for name in names}
    commits = trial.commits()
    trial.start(version)

    def continuations() -> list[str]:
        return [name for name in names if trial.batches(name, "commits") > commits[name]]

    trial.wait(lambda: {*continuations(), *trial.errors()} >= set(names), "each query is rejected or continues")
    trial.kill()
    trial.wait_for_orphans()
    errors, continued = trial.errors(), continuations()
    outcome.count_downgrade(continued, errors)
    for name in outcome.rejections:
        after = trial.digest(name)
        if files := sorted(path for path in before[name] | after if before[name].get(path) != after.get(path)):
            outcome.changes[name] = files
