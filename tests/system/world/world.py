"""The world of one seed: it is built, things go wrong, it calms down, and what a committed reader sees is compared.

The invariant: what a committed reader sees is what the exact reference pipeline gives, once, in order, never late by
its own partition's promise; or the query has stopped with a sentence that names the fact.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from keyedwm.core.errors import DataLossError, FencedError, KeyedwmError, UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests import cluster as cluster_module
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.log import Clock
from pyspark_wm_sink.kafka.publish import LostTransactionError
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_source.options.source_options import LIMITS
from tests.system.world.compare import difference, late
from tests.system.world.delta_target import DeltaTarget
from tests.system.world.faults import EndlessError, Faults, KilledError, Strike
from tests.system.world.feed import LAG_MS, PARTITIONS, TOPIC, Feeder
from tests.system.world.iceberg_target import IcebergTarget
from tests.system.world.query import Checkpoint, Life, Query, SawTwoError, inside
from tests.system.world.targets import KafkaTarget, Target
from tests.system.world.wire import SimulatedConnection

_TURNS, _CALM_LIVES = 7, 4
_QUIET_TURNS = 2
_LINE = 200  # characters
_TURN_OF = ("delta", "kafka", "iceberg", "kafka")  # seed by seed
TARGETS = {"delta": DeltaTarget, "iceberg": IcebergTarget, "kafka": KafkaTarget}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed; violation None: the invariant holds. stopped: the sentence of a query that had to stop."""

    seed: int
    violation: str | None
    stopped: str | None
    trace: tuple[str, ...]
    strikes: tuple[Strike, ...]
    batches: int
    days: tuple[str, ...] = ()

    def told(self) -> str:
        """The trace, for people."""
        return "\n".join(f"    {line[:_LINE]}" for line in (*self.trace, *self.days))

    def report(self) -> str:
        """What a failing seed shows."""
        return f"{self.violation}\n{self.told()}\n  see python -m tests.system.world --seeds 1 --from {self.seed}"


class World:
    """Everything of one seed."""

    calm_turns = 60
    days: tuple[str, ...] = ()

    def __init__(
        self, seed: int, directory: Path, *, only: frozenset[Strike] | None = None, target: str | None = None
    ) -> None:
        """target: the kind, else the seed's own."""
        self.seed, self.directory = seed, directory
        self._kind = TARGETS[target or _TURN_OF[seed % len(_TURN_OF)]]
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.brokers = Brokers(self.clock)
        self.faults = self.chances(seed, only)
        self.connections: list[SimulatedConnection] = []
        self.source_limits = LIMITS
        self.queries: list[Query] = []
        self.moved: list[Query] = []  # those that others have continued from by savepoints
        self._at_work: Query | None = None  # whose turn it is

    def chances(self, seed: int, only: frozenset[Strike] | None) -> Faults:
        return Faults(seed, self.brokers, only=only)

    def ahead_ms(self) -> float:
        """How far the driver's clock is ahead."""
        return 0

    def offered(self, _node: int) -> tuple[int, int] | None:
        """The version of Kafka whose requests a broker offers; None: all of the simulation."""
        return None

    def build(self) -> Target:
        """Topics, and the query's options by the seed."""
        chance = self.chance
        self.brokers.create(TOPIC, PARTITIONS)
        self.committed = chance.random() < 0.5
        source = {
            "kafka.bootstrap.servers": "world:1", "subscribe": TOPIC, "startingOffsets": "earliest",
            "watermarkLag": f"{LAG_MS} milliseconds", "idleTimeout": "30 seconds",
            "kafka.isolation.level": "read_committed" if self.committed else "read_uncommitted",
        }  # fmt: skip
        if chance.random() < 0.3:
            source["maxOffsetsPerTrigger"] = str(chance.choice([3, 7, 20]))
        self.in_parts = chance.random() < 0.2
        if self.in_parts:
            source["minPartitions"] = "4"
        if self.faults.rates["recreated topic"] and chance.random() < 0.5:
            source["failOnDataLoss"] = "false"
        self.feeder = Feeder(
            self.brokers, random.Random(chance.getrandbits(64)), chance.choice([0.0, 0.3]),
            is_large="maxOffsetsPerTrigger" not in source and chance.random() < 0.2,
        )  # fmt: skip
        given = (self.directory, self.brokers, self.faults, random.Random(chance.getrandbits(64)))
        self.target: Target = KafkaTarget(*given, self._reader) if self._kind is KafkaTarget else self._kind(*given)
        self.target.decided = self._in_between
        sink = self.target.options | {"controlRows": chance.choice(["inline", "drop"])}
        mode = chance.choice([SnapshotMode.BARRIER, SnapshotMode.BATCH])
        self.queries = [
            Query(
                source, sink, mode, self.target, self.faults, chance, Checkpoint(str(uuid.uuid4())), self.brokers.logs,
                self._meanwhile, limits=self.source_limits,
            )
        ]  # fmt: skip
        told = {name: value for name, value in (source | sink).items() if str(self.directory) not in value}
        self.faults.note(f"options {told}, snapshot {mode.value}")
        return self.target

    def connect(self, config: ClientConfig, _timeout_ms: int = 0) -> Cluster:
        """Stands in for Cluster.connect."""
        connection = SimulatedConnection(self.brokers, config, self.faults.travel, self.faults.holds, self.offered)
        self.connections.append(connection)
        return Cluster(connection)  # type: ignore[arg-type]

    def _reader(self) -> Cluster:
        """Who reads the target."""
        return self.connect(ClientConfig.from_options({"bootstrap.servers": "world:1"}))

    def fsync(self, handle: int) -> None:
        if isinstance(self.target, KafkaTarget):
            self.target.fsync(handle)

    def play(self) -> Outcome:
        """Trouble, then calm, then the comparison."""
        stopped = None
        try:
            self.trouble()
            self.faults.active, self.faults.since_ms = False, self.clock.now_ms
            self.faults.note("calm")
            self.target.arrive()
            self.feeder.finish()
            stopped = self._calm()
            self.end_processes()
            self.target.settle(set().union(*(query.unused for query in self.queries)))
            violation = self._compare(stopped)
        except EndlessError as error:
            violation = f"the query does not end: {error}"
        except KeyedwmError:
            raise
        except Exception as error:
            if not self.faults.trace:
                raise
            violation = f"{type(error).__name__}: {error}"
            self.faults.note(_place(error))

        def named(line: str) -> str:
            return line.replace(str(self.directory), "WORLD")  # another directory in each play

        return Outcome(
            self.seed, None if violation is None else named(violation), None if stopped is None else named(stopped),
            tuple(map(named, self.faults.trace)), tuple(self.faults.strikes_so_far),
            sum(len(query.checkpoint.offsets) for query in (*self.moved, self.queries[0])), self.days,
        )  # fmt: skip

    def trouble(self) -> None:
        """The turns in which things go wrong."""
        for _ in range(_TURNS):
            self._turn(self.chance.choice(self.queries))

    @property
    def _have_published(self) -> bool:
        """Whether no query is yet to publish its first batch after a savepoint.

        Until then nobody notices that the table lacks rows of the query before (docs/how-to/move-a-query.md).
        """
        return not self.moved or all(query.checkpoint.committed >= 0 for query in self.queries)

    def _turn(self, query: Query) -> None:
        """One planning and its batch, by the query's life or a new one."""
        life, self._at_work = query.current, query
        try:
            if life is None:
                self.end_processes()
                self.target.before_a_life(has_published=self._have_published)
                life = query.start()
                life.recover()
            self._between_turns(query)
            life.turn()
        except KilledError:
            self.faults.note("the driver is dead")
            if life is None or query.current is life:
                query.end(is_dead=True)
        except KeyedwmError as error:
            self._check_stop(query, error, is_newest=life is None or life.number == query.starts)
            if life is None or query.current is life:
                query.end(is_dead=False)
        self.clock.pass_ms(self.chance.choice([100, 1_000, 20_000, 50_000]))

    def _between_turns(self, query: Query) -> None:
        """What happens to the input, and beside the query."""
        self.feeder.write()
        for _, log in sorted(self.brokers.logs.items()):
            if self.chance.random() < 0.2:
                log.local = self.chance.randint(log.local, log.end)
        self._retain()
        if self.faults.strikes("recreated topic"):
            self.feeder.recreate()
        if self.chance.random() < 0.5:
            self.target.arrive()
        if query.zombie is not None and self.faults.strikes("zombie"):
            self._beside(query.zombie.again, "the zombie")
        if len(self.queries) == 1 and self.faults.strikes("copied checkpoint"):
            self.queries.append(query.copied(query.sink | self.target.copied_options()))

    def _meanwhile(self, life: Life) -> None:
        """The same query is started once more, on the same checkpoint, while a batch waits for its commit."""
        query = life.query
        if query.current is life and self.faults.strikes("second driver"):
            query.owner = ""
            if not self._beside(query.life, "the second driver"):
                query.current = None

    def _in_between(self) -> None:
        """The query on the copy is started, in a driver of its own, while a decision of the other waits for its marker.

        Each has a ledger of its own, so no lock keeps the two apart.
        """
        deciding = self._at_work
        if len(self.queries) == 1 or deciding is not self.queries[0]:
            return
        copy = self.queries[1]
        if self.faults.strikes("copy in between"):
            copy.owner = ""
            if not self._beside(copy.life, "the copy"):
                copy.end(is_dead=True)

    def _beside(self, work: Callable[[], object], who: str) -> bool:
        """Another driver at work; what becomes of it is not what becomes of ours. Says whether it lives on."""
        try:
            with inside(self.faults, None):
                work()
        except KeyedwmError as error:
            self.faults.note(f"{who} stops: {type(error).__name__}: {error}")
        except KilledError:
            self.faults.note(f"{who} is dead")
        else:
            return True
        return False

    def _retain(self) -> None:
        """Records of committed batches are deleted: what was processed is never required again."""
        positions = [query.positions(self.brokers.topic_ids) for query in self.queries]
        for partition in self.feeder.records:
            if self.faults.strikes("retention", f"of partition {partition}"):
                log = self.brokers.logs[TOPIC, partition]
                read = min(log.end, *(known.get(partition, 0) for known in positions))
                log.retain(self.chance.randint(log.start, max(read, log.start)))

    def _calm(self) -> str | None:
        """Run without faults until nothing is new; the sentence of the query if it cannot, and no copy of it can."""
        sentence = None
        for query in self.queries:
            sentence = self._calmed(query)
            if sentence is None:
                return None
            if not self._explained(sentence):
                query.violations.append(f"the query cannot go on, and nothing explains it: {sentence}")
        return sentence

    def _calmed(self, query: Query) -> str | None:
        sentence = None
        for _ in range(_CALM_LIVES):
            self.end_processes()
            try:
                life = query.life()
                quiet = 0
                for _ in range(self.calm_turns):
                    quiet = 0 if life.turn() else quiet + 1
                    self.clock.pass_ms(10_000)
                    if quiet == _QUIET_TURNS and self._is_read(query):
                        return None
            except KeyedwmError as error:
                sentence = f"{type(error).__name__}: {error}"
                self.faults.note(f"the query stops: {sentence}")
                # LostTransactionError is final; anything else is tried again.
                if isinstance(error, LostTransactionError):
                    return sentence
            else:
                sentence = None
        return sentence or "no error, but the input was not read to its end"

    def _is_read(self, query: Query) -> bool:
        positions = query.positions(self.brokers.topic_ids)
        return all(positions.get(p, 0) >= self.brokers.logs[TOPIC, p].end for p in self.feeder.records)

    def end_processes(self) -> None:
        """The driver's process and all executors are gone."""
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        cluster_module._shared.clear()

    def _compare(self, stopped: str | None) -> str | None:
        found = [*self.target.violations, *(one for query in self.queries for one in query.violations)]
        if found:
            return found[0]
        for partition in self.feeder.records:
            expected = self.feeder.expected(partition, committed=self.committed)
            seen = self.target.seen(partition)
            if self.feeder.deleted:
                there = set(seen)
                expected = [value for value in expected if value in there or value not in self.feeder.deleted]
            if self.in_parts:  # the parts of a range are read and written by several tasks at once
                expected, seen = sorted(expected), sorted(seen)
            if stopped is None and seen != expected:
                return f"partition {partition}: {difference(expected, seen)}"
            if stopped is not None and (len(set(seen)) < len(seen) or not set(seen) <= set(expected)):
                return f"partition {partition}, after a stop: {difference(expected, seen)}"
        return next(filter(None, (late(query, self.feeder.late) for query in self.queries)), None)

    def _check_stop(self, query: Query, error: KeyedwmError, *, is_newest: bool) -> None:
        """Whether a query may stop so in trouble, to be started again; only a newer start, or a copy, replaces one."""
        sentence = f"{type(error).__name__}: {error}"
        self.faults.note(f"the query stops: {sentence}")
        replaced = not is_newest or len(self.queries) > 1
        explained = (
            (isinstance(error, UnavailableError) and self.target.may_have_ended(sentence))
            or (isinstance(error, FencedError | SawTwoError) and replaced)
            or self._explained(sentence)
        )
        if not explained:
            query.violations.append(f"the query stops, and nothing explains it: {error}")

    def _explained(self, sentence: str) -> bool:
        """Whether something that happened is what the sentence of a query that cannot go on says."""
        lost = bool(self.faults.struck["recreated topic"]) and (
            "recreated" in sentence
            or "truncated" in sentence  # by stale metadata the topic is the old one
            or sentence.startswith(DataLossError.__name__)
            or "other rows" in sentence
        )
        unknown = "does not exist" in sentence and bool(self.faults.struck["stale metadata"])
        is_gone = "is out of range" in sentence or sentence.startswith(DataLossError.__name__)
        # Who accepts that records are gone has fewer rows in a batch that was published with them, and is replayed.
        accepts_loss = any(query.source.get("failOnDataLoss") == "false" for query in self.queries)
        is_gone = is_gone or (accepts_loss and "other rows" in sentence)
        lost = lost or (bool(self.faults.struck["retention ahead"]) and is_gone)
        # Of a table that was restored, what the two have in common may be gone: then their watermarks tell.
        copied = "a copy of this checkpoint has run" in sentence and bool(self.faults.struck["copied checkpoint"])
        # A late request for a producer id takes it from whoever has it now, as another driver's would.
        overtaken = "writes with another ledger" in sentence and "InitProducerId" in self.faults.overtaken
        return lost or unknown or copied or overtaken or self.target.explains(sentence)


def _place(error: BaseException) -> str:
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(frames[-6:]))
