"""Everything that a fault can touch, and the rounds: send, strike, heal, drain, compare."""

from __future__ import annotations

import random
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from keyedwm.core.errors import KeyedwmError
from tests.e2e.brokers import Brokers, running
from tests.e2e.disk import Disk, disk, keep
from tests.e2e.driver import Driver, Told, python_of_spark, sleep_until
from tests.e2e.feed import PARTITIONS, Feed, Findings
from tests.e2e.pipeline import LOCAL, REGISTRY_ADDRESS, REST_ADDRESS, Wanted
from tests.e2e.targets import TARGETS, IcebergRestTarget, KafkaAvroTarget, Target
from tests.support.fake_registry import FakeRegistry, fake_registry, reply
from tests.support.iceberg_server import iceberg_server
from tests.support.standalone import Standalone, Worker, of_session, standalone
from tests.tools import wait_until

LIMIT_S = 240.0
# What a query may fail of when processes and networks die: our own word for it, or a Python process that is gone. Of a
# planner that is, Spark has nothing to say at all.
RECOVERABLE = (
    r"retry: nothing was lost|Python worker (exited unexpectedly|failed to connect back)"
    r"|terminated with exception:\s+SQLSTATE|worker .{0,40}(died|crashed|terminated)|EOFException|SocketException"
    r"|Connection reset|Broken pipe|ClosedChannelException"
)
_SHOWN_LINES = 20
_STATE = "=== Streaming Query ==="  # what follows it in Spark's errors is plans and offsets


class CampaignError(AssertionError):
    """A round that went wrong otherwise than by a wrong output."""


class World:
    """One target, brokers behind proxies, one small disk, one directory, one seed; `spark` unless it is local."""

    def __init__(
        self, directory: Path, target: str, seed: int, brokers: Brokers, full: Disk, spark: Standalone | None = None,
        registry: FakeRegistry | None = None,
    ) -> None:  # fmt: skip
        self.spark, self.registry = spark, registry
        self.directory, self.brokers, self.disk = directory, brokers, full
        self.name, self.random = f"{seed} {target}", random.Random()
        topic = brokers.make_topic(f"kills-{uuid.uuid4().hex[:12]}", PARTITIONS)
        self.feed = Feed(brokers.cluster, topic, random.Random(f"{self.name} feed"))
        self.target: Target = TARGETS[target](brokers, directory, full.path, self.feed)
        self.driver = Driver(
            directory,
            Wanted(
                target=target, bootstrap=brokers.behind, topic=topic, disk=str(full.path),
                master=spark.url if spark else LOCAL,
            ),
        )  # fmt: skip
        self.allowed = RECOVERABLE
        self._heard = 0
        self.notes: Counter = Counter()

    def workers(self) -> list[int]:
        """Spark's Python processes, the driver's and those on the hosts of a cluster."""
        there = (pid for host in self.hosts if host.pid for pid in of_session(host.pid))
        return self.driver.workers() + python_of_spark(there)

    def executors(self) -> list[int]:
        """The executors on the hosts of a cluster."""
        return [pid for host in self.hosts for pid in host.executors]

    @property
    def hosts(self) -> list[Worker]:
        """Those of a cluster; none where Spark is local."""
        return self.spark.workers if self.spark else []

    def begin(self) -> None:
        """Start the pipeline and see a first piece through."""
        self.feed.send(20, 40)
        self.driver.start()
        self.drain()
        if self.registry is not None:  # it does not come back: whoever asks it now fails
            self.registry.rule = lambda _method, _path: reply(503, {"message": "away"})

    def round(self, number: int, strike: Callable[[World], None], expected: str) -> None:
        """Send, strike, heal, drain; the chances of a round do not depend on how long the ones before it took."""
        self.random = random.Random(f"{self.name} {number}")
        self.feed.send(30, 90)
        self.allowed = f"{RECOVERABLE}|{expected}"
        strike(self)
        self.drain()
        self.allowed = RECOVERABLE

    def some_moment(self) -> None:
        """Wait for a moment by chance: any, after a batch was planned, or right when it is staged or decided."""
        kind = self.random.choice(["any", "planned", "staged", "staged"])
        if kind == "any":
            time.sleep(self.random.uniform(0, 1.5))
        elif kind == "planned":
            before = self.target.planned()
            sleep_until(lambda: self.target.planned() != before, 3)
            time.sleep(self.random.uniform(0, 0.5))
        else:
            before = self.target.staged()
            sleep_until(lambda: self.target.staged() != before, 3)
            time.sleep(self.random.choice([0, self.random.uniform(0, 0.02), self.random.uniform(0, 0.2)]))

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Send on and on meanwhile: batches are in flight whenever something breaks."""
        over, failed = threading.Event(), []

        def send() -> None:
            try:
                while not over.wait(0.05):
                    self.feed.send(1, 20)
            except KeyedwmError as error:
                failed.append(error)

        thread = threading.Thread(target=send, name="feed")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failed:
            raise CampaignError(f"the feed could not be written: {failed[0]}")

    def drain(self) -> None:
        """Wait until everything sent is visible; what is not by then is lost."""
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s:
            self.news()
            if not self.driver.alive:
                raise CampaignError("the pipeline's process ended by itself")
            self.target.read()
            if not self.target.missing():
                return
            time.sleep(0.05)
        self.target.findings.lost = self.target.missing()
        raise CampaignError(f"not everything came within {LIMIT_S:g} s: {self.target.findings.told()}")

    def news(self) -> list[Told]:
        """What the pipeline has told since the last time; refuses an error that none of the faults explains."""
        events = self.driver.told()[self._heard :]
        self._heard += len(events)
        for one in events:
            if one.what == "failed" and not re.search(self.allowed, one.error):
                raise CampaignError(f"query {one.name} failed of what no fault explains: {one.error}")
        return events

    def refused(self, pattern: str, who: str | None = None) -> None:
        """Wait until a query fails saying this."""

        def has_failed() -> bool:
            return any(re.search(pattern, t.error) for t in self.news() if who is None or t.who == who)

        wait_until(has_failed, f"a query fails saying {pattern!r}", LIMIT_S)

    def finish(self) -> Findings:
        """Stop, and take the last look."""
        self.drain()
        self.driver.hold()
        self.target.read()
        return self.target.judge()

    def post_mortem(self) -> str:
        """What the queries failed of last, what they do now, where their threads stand, and where all of it is kept."""
        self.driver.dump()
        keep(self.disk.path)
        (self.directory / "broker.log").write_text(self.brokers.log)
        failed = [told for told in self.driver.told() if told.what == "failed"][-3:]
        failures = "\n".join(f"{told.name}: {told.error.partition(_STATE)[0].strip()}" for told in failed)
        status = "".join(path.read_text() for path in sorted(self.directory.glob("status-*.jsonl"))[-1:])
        return (
            f"{failures}\n{status}{last_lines(self.directory / 'log')}\nkept: {self.directory}: threads of all "
            f"processes are at the end of log, the last progress of each life in status-LIFE.jsonl"
        )


def last_lines(log: Path, count: int = _SHOWN_LINES) -> str:
    """The last lines before the dumps of threads: what planner, tasks and commits said."""
    text = log.read_text(errors="replace") if log.exists() else ""
    before_dumps = re.split(r"^(?:Full thread dump|Fatal Python error: Aborted)", text, maxsplit=1, flags=re.MULTILINE)[
        0
    ]
    return "\n".join(before_dumps.splitlines()[-count:])


@contextmanager
def world(directory: Path, target: str, seed: int, brokers: int = 1, spark_workers: int = 0) -> Iterator[World]:
    """A world that leaves no process and no mount behind; without workers Spark is local."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running(brokers))
        full = stack.enter_context(disk(directory / "disk"))
        if target == IcebergRestTarget.name:
            (full.path / REST_ADDRESS).write_text(stack.enter_context(iceberg_server(full.path)))
        registry = None
        if target == KafkaAvroTarget.name:
            registry = stack.enter_context(fake_registry())
            (full.path / REGISTRY_ADDRESS).write_text(registry.url)
        # Room for two applications: a second driver must not wait for executors.
        room = standalone(spark_workers, cores=2, memory_mb=2_048)
        spark = stack.enter_context(room) if spark_workers else None
        new_world = World(directory, target, seed, cluster, full, spark, registry)
        stack.callback(new_world.driver.close)
        yield new_world
