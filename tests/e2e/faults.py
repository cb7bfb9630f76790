"""What is done to a pipeline at work; each ends with everything healed, and the round's drain shows what came of it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from keyedwm.kafka.requests.transactions import Transaction, end, lingering
from tests.e2e.driver import sleep_until
from tests.e2e.world import LIMIT_S, CampaignError, World
from tests.support.proxy import Link
from tests.tools import SPARK_SAW_TWO, wait_until

SHORT = "4 seconds"
LOCAL, CLUSTER = "local", "cluster"


@dataclass(frozen=True)
class Fault:
    """One kind: how often it is drawn, for which targets, what a query may then fail of besides, and on which Spark."""

    strike: Callable[[World], None]
    weight: int
    targets: tuple[str, ...] = ("delta", "iceberg", "iceberg-rest", "kafka")
    expected: str = "$^"
    where: tuple[str, ...] = (LOCAL, CLUSTER)


def driver(world: World) -> None:
    world.some_moment()
    world.driver.kill()
    world.notes["drivers died between staging and publication"] += world.target.halfway()
    world.driver.start()


def worker(world: World) -> None:
    """One of Spark's Python processes: the daemon, a planner, a task or a commit."""
    world.some_moment()
    with suppress(ProcessLookupError):
        os.kill(world.random.choice(wait_until(world.workers, "a Python worker")), signal.SIGKILL)


def executor(world: World) -> None:
    """One of the executors, with its tasks, its Python processes and what it holds of shuffles and of state."""
    world.some_moment()
    with suppress(ProcessLookupError):
        os.kill(world.random.choice(wait_until(world.executors, "an executor")), signal.SIGKILL)


def host(world: World) -> None:
    """A worker's host with its disk; it comes back empty."""
    world.some_moment()
    host_to_lose = world.random.choice(world.hosts)
    host_to_lose.lose()
    time.sleep(world.random.uniform(0, 3))
    host_to_lose.start()


def broker(world: World) -> None:
    """Killed and started again while producers have batches in flight."""
    with world.feeding():
        world.some_moment()
        killed, roles = world.brokers.kill(world.random, world.feed.topic)
        world.notes.update(roles)
        time.sleep(world.random.uniform(0, 0.5 if world.brokers.count == 1 else 5))
        for one in killed:
            one.start()


def cut(world: World) -> None:
    """The network resets every connection, and refuses new ones for a while."""
    world.some_moment()
    world.brokers.link(Link.REFUSED, world.random)
    time.sleep(world.random.uniform(0, 1.5))
    world.brokers.heal()


def half_open(world: World) -> None:
    """Connections stand, but nothing comes through, or no answers; sometimes for longer than a client waits."""
    world.some_moment()
    world.brokers.link(world.random.choice([Link.SILENT, Link.MUTE]), world.random)
    time.sleep(world.random.choice([0.3, 1.0, 4.0]) * world.random.uniform(0.5, 1))
    if world.random.random() < 0.5:
        world.brokers.reset()
    world.brokers.heal()


def disk_full(world: World) -> None:
    """Nothing fits on the disk of the ledger or of the tables: a clear error, and nothing becomes visible."""
    world.some_moment()
    world.disk.fill(world.driver.tree)
    world.feed.send(20, 40)
    try:
        world.refused(_FULL)
        before = world.target.visible()
        world.refused(_FULL)
        if world.target.visible() != before:
            raise CampaignError("something was published on a full disk")
    finally:
        world.disk.free(world.driver.tree)


def damage(world: World) -> None:
    """The newest entry of what was decided is damaged: refused at every start, until the runbook's repair."""
    world.some_moment()
    world.driver.hold()
    if not world.target.memory():
        raise CampaignError("nothing was decided so far")
    newest = world.target.memory()[-1]
    whole = newest.read_bytes()
    newest.write_bytes(world.target.damaged(whole, world.random))
    before = world.target.visible()
    world.feed.send(20, 40)
    world.driver.want(held=False)
    world.refused(_DAMAGED)
    world.driver.hold()
    if world.target.visible() != before:
        raise CampaignError("something was published on a damaged ledger")
    _repair(world, newest, whole)
    world.driver.want(held=False)


def _repair(world: World, newest: Path, whole: bytes) -> None:
    """From a backup, or without one where the runbook has a way."""
    batch = newest.name.partition(".")[0]
    published = newest.name.endswith(".published.json") and int(batch) <= world.target.completed("copy")
    if published and world.random.random() < 0.5:
        for path in world.target.memory():
            path.unlink()
    else:
        newest.write_bytes(whole)


def slow_commit(world: World) -> None:
    """The commit begins when the broker has given up on the batch's transactions: a loud error, never a loss."""
    world.driver.hold()
    with _caught(world, 1, options={"transactionTimeout": SHORT}) as (waiting, open_ones):
        world.driver.want(options={})
        # Not those of a query that came after: they live longer.
        wait_until(lambda: not waiting & open_ones(), "the broker ends the transactions")
    world.refused(_LOST)


def part_expired(world: World) -> None:
    """One of a batch's transactions is ended before the decision, as by its time-out: none of it may be visible."""
    world.drain()
    world.driver.hold()
    with _caught(world, 2, source={"minPartitions": "3"}) as (waiting, _):
        world.driver.want(source={})
        end(world.brokers.cluster(), [world.random.choice(sorted(waiting))], commit=False)
    world.refused(_LOST)


@contextmanager
def _caught(
    world: World, least: int, **wish: Mapping[str, str]
) -> Iterator[tuple[set[Transaction], Callable[[], set[Transaction]]]]:
    """So many transactions of one batch, whose commit waits for the ledger's lock; and which ones are open now."""
    cluster = world.brokers.cluster()
    before = set(lingering(cluster, ""))  # of the batch that was stopped: open for longer

    def open_transactions() -> set[Transaction]:
        return set(lingering(cluster, "")) - before

    world.feed.send(40, 40)
    world.driver.want(held=False, **wish)
    with (world.disk.path / "ledger" / "lock").open() as lock:
        while True:
            # A batch's tasks have begun: now its commit has to wait.
            sleep_until(lambda: len(open_transactions()) >= least, 60)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # A task whose transaction ends while it still writes is run again, and its batch is committed.
            commits = not world.target.halfway() and sleep_until(lambda: world.driver.opens(Path(lock.name)), 60)
            waiting = open_transactions()
            if commits and len(waiting) >= least:
                break
            fcntl.flock(lock, fcntl.LOCK_UN)
            world.feed.send(40, 40)
        yield waiting, open_transactions
        fcntl.flock(lock, fcntl.LOCK_UN)


def large(world: World) -> None:
    """Batches of thousands of rows instead of tens, and a driver that dies in one of them."""
    world.driver.hold()
    world.feed.send(3_000, 6_000)
    world.driver.want(held=False, source={"maxOffsetsPerTrigger": "100000"})
    world.some_moment()
    world.driver.kill()
    world.driver.start()
    world.drain()
    world.driver.hold()
    world.driver.want(held=False, source={})


def duplicate(world: World) -> None:
    """The same query once more on the same checkpoint, from another process: it stops and says why."""
    world.some_moment()
    before = len(world.driver.told())
    second = world.driver.start("second")
    try:
        deadline_s = time.monotonic() + LIMIT_S
        while second.poll() is None:
            if time.monotonic() > deadline_s:
                raise CampaignError("two queries run on one checkpoint")
            world.feed.send(1, 3)
            time.sleep(0.5)
        world.refused(_TWICE, "second")
        errors = [told.error for told in world.driver.told()[before:] if told.who != "second"]
        world.notes["firsts had to start again beside a second"] += any(re.search(_TWICE, error) for error in errors)
    finally:
        world.driver.kill(second)


_FULL = r"No space left|File too large"
_DAMAGED = r"is damaged"
_TWICE = rf"{SPARK_SAW_TWO}|has taken over the ledger|copies of one checkpoint"
_LOST = r"were not committed before the broker ended them|were ended by the broker before the decision"

FAULTS: Mapping[str, Fault] = {
    "driver": Fault(driver, 8),
    "worker": Fault(worker, 16),
    "broker": Fault(broker, 6),
    "cut": Fault(cut, 12),
    "half-open": Fault(half_open, 10),
    "executor": Fault(executor, 16, where=(CLUSTER,)),
    "host": Fault(host, 4, where=(CLUSTER,)),
    "disk-full": Fault(disk_full, 2, expected=_FULL, where=(LOCAL,)),
    "damage": Fault(damage, 2, ("delta", "kafka"), expected=_DAMAGED),
    "slow-commit": Fault(slow_commit, 1, ("kafka",), expected=_LOST, where=(LOCAL,)),
    "part-expired": Fault(part_expired, 2, ("kafka",), expected=_LOST, where=(LOCAL,)),
    "large": Fault(large, 2),
    "duplicate": Fault(duplicate, 1, expected=_TWICE),
}
