"""The targets of a world: how a query writes there, what their disks do wrong, and what a committed reader sees."""

from __future__ import annotations

import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa

from keyedwm.core.inline import HEADER
from keyedwm.kafka.client.values import Isolation
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.testing.simulated_kafka.brokers import Brokers
from pyspark_wm_sink.kafka.ledger import Entry, Ledger
from tests.system.world.faults import Faults
from tests.system.world.feed import PARTITIONS

TOPIC = "out"
# What an older start of a query, or one on a copy of the checkpoint, is told.
RIVALS = ("zombie", "second driver", "copied checkpoint")
_ENDED = "ended by the broker"


class Target(ABC):
    """One output; `options` are the sink's."""

    def __init__(self, directory: Path, brokers: Brokers, faults: Faults, chance: random.Random) -> None:
        self.directory, self.brokers, self.faults, self.chance = directory, brokers, faults, chance
        self.options: dict[str, str] = {}
        self.violations: list[str] = []
        self.decided: Callable[[], None] = lambda: None  # what happens beside a decision that waits for its marker
        self.asked_at_ms = 0.0  # when the commit was asked for

    @abstractmethod
    def seen(self, partition: int) -> list[str]:
        """What a committed reader sees, in its order."""

    @abstractmethod
    def kept(self, query: str) -> int:
        """The bytes that the product keeps here about the batches of a query."""

    @abstractmethod
    def copied_options(self) -> dict[str, str]:
        """The options of a query on a copy of the checkpoint, and of what lies in it."""

    def moved_options(self) -> dict[str, str]:
        """The options of a query that continues from a savepoint of another."""
        return {**self.options, "sharedTable": "true"}

    @abstractmethod
    def before_a_life(self, *, has_published: bool) -> None:
        """What happens to the disk while no driver runs. has_published: each query has, so it misses its batches."""

    @contextmanager
    def faulty(self) -> Iterator[None]:
        """The product over this target's disk."""
        yield

    @abstractmethod
    def settle(self, unused: set[str]) -> None:
        """Wait for what only time ends; `unused`: transactions of speculative attempts that nobody named."""

    @abstractmethod
    def arrive(self) -> None:
        """What was long on its way has its effect now."""

    def may_have_ended(self, sentence: str) -> bool:  # noqa: ARG002 - of a subclass
        """Whether a sentence about ended transactions can be true."""
        return True

    def explains(self, sentence: str) -> bool:
        """Whether something that happened is what the sentence of a query that cannot go on says."""
        return "copies of one checkpoint" in sentence and any(self.faults.struck[name] for name in RIVALS)


class KafkaTarget(Target):
    """A topic, and the ledger's directory on the driver's disk."""

    def __init__(
        self,
        directory: Path,
        brokers: Brokers,
        faults: Faults,
        chance: random.Random,
        connect: Callable[[], Cluster],
    ) -> None:
        super().__init__(directory, brokers, faults, chance)
        self._connect, self._ledger = connect, directory / "ledger"
        brokers.create(TOPIC, PARTITIONS)
        self.options = {
            "kafka.bootstrap.servers": "world:1", "topic": TOPIC, "ledger": str(self._ledger),
            "transactionTimeout": f"{chance.choice([900, 60])} seconds",
        }  # fmt: skip

    def copied_options(self) -> dict[str, str]:
        copy = self.directory / "ledger-of-the-copy"
        if self._ledger.exists():
            shutil.copytree(self._ledger, copy)
        return {**self.options, "ledger": str(copy)}

    def moved_options(self) -> dict[str, str]:
        self._ledger = self._ledger.with_name(f"{self._ledger.name}+")
        return {**self.options, "ledger": str(self._ledger)}

    def before_a_life(self, *, has_published: bool) -> None:  # noqa: ARG002 - each query has a ledger of its own
        """The ledger's directory is lost, or an older copy takes its place."""
        copy = self.directory / "older"
        lost, older = self.faults.strikes("ledger lost"), self.faults.strikes("ledger older")
        if (lost or older) and self._ledger.exists():
            shutil.rmtree(self._ledger)
            if older and copy.exists():
                shutil.copytree(copy, self._ledger)
        if not self.faults.rates["ledger older"]:
            return
        if self._ledger.exists() and (not copy.exists() or self.chance.random() < 0.3):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self._ledger, copy)

    def settle(self, unused: set[str]) -> None:
        """Wait for the brokers to time out what speculative attempts left open.

        No message tells the driver of such an attempt, so only a later sweep or `transactionTimeout` ends its
        transaction, and until then committed readers see nothing behind its first record. What any other attempt left
        open is aborted without waiting.
        """
        left = [self.brokers.transactions[name] for name in sorted(unused)]
        open_ones = [transaction for transaction in left if transaction.state == "Ongoing"]
        if open_ones:
            until_ms = max(one.started_ms + one.timeout_ms for one in open_ones) + 1
            self.faults.note(f"{len(open_ones)} transactions of speculative attempts are left to time out")
            self.brokers.clock.pass_ms(max(until_ms - self.brokers.clock.now_ms, 0))

    def arrive(self) -> None:
        """Nothing comes late: a request of another epoch is refused."""

    def kept(self, query: str) -> int:  # noqa: ARG002 - each query has a ledger of its own
        return sum(path.stat().st_size for path in self._ledger.rglob("*") if path.is_file())

    def seen(self, partition: int) -> list[str]:
        log = self.brokers.logs[TOPIC, partition]
        ranges = [OffsetRange(TOPIC, partition, log.start, log.stable)]
        values: list[str] = []
        wanted = ColumnSelection(control_header=HEADER)
        for fetched in read_ranges(self._connect(), ranges, wanted, Isolation.READ_COMMITTED):
            values += pa.array(fetched.records.value).cast(pa.string()).to_pylist()
        return values

    def explains(self, sentence: str) -> bool:
        forgotten = any(self.faults.struck[name] for name in ("ledger lost", "ledger older", "copied checkpoint"))
        if sentence.startswith("LostTransactionError"):
            return bool(self.brokers.expired_at_ms)
        return super().explains(sentence) or (forgotten and "ledger" in sentence)

    def may_have_ended(self, sentence: str) -> bool:
        """Whether a sentence about ended transactions can be true: one has timed out, or a rival has aborted it."""
        rivals = any(self.faults.struck[name] for name in RIVALS)
        return _ENDED not in sentence or rivals or bool(self.brokers.expired_at_ms)

    @contextmanager
    def faulty(self) -> Iterator[None]:
        """A transaction that had timed out before the commit was asked for must not be in a decision."""
        decide = Ledger.decide

        def watched(ledger: Ledger, entry: Entry) -> None:
            for transaction in entry.transactions:
                name = transaction.transactional_id
                if self.brokers.expired_at_ms.get(name, self.asked_at_ms) < self.asked_at_ms:
                    self.violations.append(f"batch {entry.batch} is decided although {name} has timed out")
            decide(ledger, entry)
            self.decided()

        with mock.patch.object(Ledger, "decide", watched):
            yield

    def fsync(self, handle: int) -> None:
        """The disk keeps what was written, unless the power fails: then what was not synced is as it was before."""
        self.faults.step("at fsync")
        if not self.faults.rates["torn file"]:
            return
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if not path.is_dir():
            return
        kept = self.directory / f"synced-{path.name}"
        if self.faults.strikes("torn file", "the power fails before the directory is synced") and kept.exists():
            shutil.rmtree(path)
            shutil.copytree(kept, path)
            self.faults.kill()
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(path, kept)
