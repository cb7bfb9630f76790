"""What is done to a pipeline at work; each ends with everything healed, and the round's drain shows what came of it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from keyedwm.kafka.transactions import Transaction, lingering
from keyedwm.testing.proxy import Link
from tests.e2e.driver import sleep_until
from tests.e2e.world import LIMIT_S, CampaignError, World
from tests.tools import SPARK_SAW_TWO, cluster_at, wait_until

SHORT = "4 seconds"


@dataclass(frozen=True)
class Fault:
    """One kind: how often it is drawn, for which targets, and what a query may then fail of besides."""

    strike: Callable[[World], None]
    weight: int
    targets: tuple[str, ...] = ("delta", "kafka")
    expected: str = "$^"


def driver(world: World) -> None:
    world.some_moment()
    world.driver.kill()
    world.notes["drivers died between staging and publication"] += world.target.halfway()
    world.driver.start()


def worker(world: World) -> None:
    """One of Spark's Python processes: the daemon, a planner, a task or a commit."""
    world.some_moment()
    with suppress(ProcessLookupError):
        os.kill(world.random.choice(wait_until(world.driver.workers, "a Python worker")), signal.SIGKILL)


def broker(world: World) -> None:
    world.some_moment()
    world.broker.kill()
    time.sleep(world.random.uniform(0, 0.5))
    world.broker.start()


def cut(world: World) -> None:
    """The network resets every connection, and refuses new ones for a while."""
    world.some_moment()
    world.proxy.set(Link.REFUSED)
    time.sleep(world.random.uniform(0, 1.5))
    world.proxy.set(Link.OPEN)


def half_open(world: World) -> None:
    """Connections stand, but nothing comes through, or no answers; sometimes for longer than a client waits."""
    world.some_moment()
    world.proxy.set(world.random.choice([Link.SILENT, Link.MUTE]))
    time.sleep(world.random.choice([0.3, 1.0, 4.0]) * world.random.uniform(0.5, 1))
    if world.random.random() < 0.5:
        world.proxy.reset()
    world.proxy.set(Link.OPEN)


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
    cluster = cluster_at(world.broker.bootstrap)
    before = set(lingering(cluster, ""))  # of the batch that was stopped: open for longer
    world.driver.want(held=False, options={"transactionTimeout": SHORT})

    def begun() -> set[Transaction]:
        return set(lingering(cluster, "")) - before

    with (world.disk.path / "ledger" / "lock").open() as lock:
        while True:
            world.feed.send(20, 40)
            # A batch's tasks have begun: now its commit has to wait for the ledger, until the broker loses patience.
            sleep_until(begun, 60)
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = begun()
            if waiting and not world.target.halfway():
                break
            fcntl.flock(lock, fcntl.LOCK_UN)
        world.driver.want(options={})
        # Not those of a query that came after: they live longer.
        wait_until(lambda: not waiting & begun(), "the broker ends the transactions")
    world.refused(_LOST)


def duplicate(world: World) -> None:
    """The same query once more on the same checkpoint, from another process: it stops and says why."""
    world.some_moment()
    before = len(world.driver.told())
    second = world.driver.start("second")
    try:
        over_at = time.monotonic() + LIMIT_S
        while second.poll() is None:
            if time.monotonic() > over_at:
                raise CampaignError("two queries run on one checkpoint")
            world.feed.send(1, 3)
            time.sleep(0.5)
        world.refused(_TWICE, "second")
        heard = [told.error for told in world.driver.told()[before:] if told.who != "second"]
        world.notes["firsts had to start again beside a second"] += any(re.search(_TWICE, error) for error in heard)
    finally:
        world.driver.kill(second)


_FULL = r"No space left|File too large"
_DAMAGED = r"is damaged"
_TWICE = rf"{SPARK_SAW_TWO}|has taken over the ledger|copies of one checkpoint"
_LOST = r"were not committed before the broker ended them"

FAULTS: Mapping[str, Fault] = {
    "driver": Fault(driver, 8),
    "worker": Fault(worker, 16),
    "broker": Fault(broker, 6),
    "cut": Fault(cut, 12),
    "half-open": Fault(half_open, 10),
    "disk-full": Fault(disk_full, 2, expected=_FULL),
    "damage": Fault(damage, 2, expected=_DAMAGED),
    "slow-commit": Fault(slow_commit, 1, ("kafka",), expected=_LOST),
    "duplicate": Fault(duplicate, 1, expected=_TWICE),
}
