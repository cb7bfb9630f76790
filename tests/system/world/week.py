"""A week of one query: deployments, upgrades of the brokers, new partitions, clocks that jump, retention, quiet nights.

Rule: a world as the others, with the same invariant. A day has a few episodes of planning, and hours between them in
which only time passes; so faults of a moment are rarer here, and what grows from day to day is seen.
"""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

from keyedwm.core.errors import DataLossError, KeyedwmError
from keyedwm.testing.simulated_kafka.coordinators import NODES
from keyedwm.testing.simulated_kafka.log import START_MS, Log
from pyspark_wm_sink.kafka.ledger import Ledger
from pyspark_wm_sink.kafka.publish import LostTransactionError
from tests.system.world import sizes
from tests.system.world.compare import late
from tests.system.world.faults import Faults, Strike
from tests.system.world.feed import LAG_MS, TOPIC
from tests.system.world.query import Query
from tests.system.world.targets import TOPIC as OUT
from tests.system.world.targets import KafkaTarget, Target
from tests.system.world.world import World

DAYS, EPISODES, TURNS = 7, 4, 3
_HOUR_MS, _MORNING = 3_600_000, 6
_PART = 0.06  # of the rates of a short history, which has a twelfth of the turns
# The highest rate of each event, per turn.
RATES = {
    "deployment": 0.2,
    "rolling upgrade": 0.05,
    "partition added": 0.05,
    "leaders return": 0.1,
    "producer clock": 0.08,
    "driver clock": 0.08,
    "broker clock": 0.03,
    "retention ahead": 0.01,
    "burst": 0.2,
    "quiet night": 0.8,
}
# What may change at a restart (docs/how-to/move-a-query.md); None: the option is left out.
_CHANGES: dict[str, tuple[str | None, ...]] = {
    "maxOffsetsPerTrigger": ("20", "100", None),
    "idleTimeout": ("10 seconds", "30 seconds", "10 minutes"),
    "watermarkLag": (f"{LAG_MS} milliseconds", f"{2 * LAG_MS} milliseconds"),
}
_JUMPS_MS = (-24 * _HOUR_MS, -_HOUR_MS, -5_000, 5_000, _HOUR_MS, 0)
_KAFKAS = ((3, 1), (3, 5), (3, 9), (4, 1))
_MOST_PARTITIONS = 6
_LEDGER_ENTRIES = 10
_MOST_STOPS = 3  # in a row, after which nobody starts the query again


class Week(World):
    """Seven days."""

    calm_turns = 400

    def __init__(
        self, seed: int, directory: Path, *, only: frozenset[Strike] | None = None, target: str | None = None
    ) -> None:
        self._versions = dict.fromkeys(NODES, 0)
        self._to_upgrade: list[int] = []
        self._ahead_ms = self._stops = 0
        self._accepts_loss = random.Random(f"{seed} loss").random() < 0.7
        super().__init__(seed, directory, only=only, target=target)

    def chances(self, seed: int, only: frozenset[Strike] | None) -> Faults:
        return Faults(seed, self.brokers, only=only, part=_PART, more=RATES, lines=400)

    def ahead_ms(self) -> float:
        return self._ahead_ms

    def offered(self, node: int) -> tuple[int, int] | None:
        return _KAFKAS[self._versions[node]]

    def build(self) -> Target:
        target = super().build()
        self.feeder.ahead_ms = {}
        for query in self.queries:
            if "maxOffsetsPerTrigger" in query.source:
                query.source["maxOffsetsPerTrigger"] = "20"
        return target

    def trouble(self) -> None:
        """Episodes of some turns, with hours between them."""
        # As if a week had thousands of batches: the ledger has reached its bound after the first days.
        delete_old = Ledger.delete_old
        with mock.patch.object(Ledger, "delete_old", lambda ledger, _most: delete_old(ledger, _LEDGER_ENTRIES)):
            self._week(sizes.Table())

    def _week(self, table: sizes.Table) -> None:
        for day in range(DAYS):
            for hour in sorted(random.Random(f"{self.seed} {day}").sample(range(24), EPISODES)):
                self.clock.pass_ms(max(START_MS + (24 * day + hour) * _HOUR_MS - self.clock.now_ms, 0))
                self._evening(hour)
                for _ in range(TURNS):
                    self._events()
                    self.faults.since_ms = self.clock.now_ms
                    self._turn(self.chance.choice(self.queries))
                    if self._stops >= _MOST_STOPS:
                        return
            table.add(self)
            self.days = table.lines()
        self.queries[0].violations += table.growth()

    def _evening(self, hour: int) -> None:
        """At night all partitions, or all but one, may have no news."""
        is_quiet = hour < _MORNING and self.faults.strikes("quiet night")
        awake = self.faults.of("quiet night", (-1, 0, 1)) if is_quiet else None
        self.feeder.silent = frozenset(set(self.feeder.records) - {awake} if is_quiet else ())

    def _events(self) -> None:
        """What happens to the brokers, the clocks and the query between two turns."""
        self._of_brokers()
        self._of_clocks()
        if self.faults.strikes("burst"):
            for _ in range(self.faults.of("burst", (5, 10, 20))):
                self.feeder.write()
        if self.faults.strikes("retention ahead"):
            self._delete_ahead()
        if self.faults.strikes("deployment"):
            self._deploy()

    def _of_brokers(self) -> None:
        if self._to_upgrade:
            self._upgrade(self._to_upgrade.pop(0))
        elif self.faults.strikes("rolling upgrade"):
            self._to_upgrade = list(NODES)
        if self.faults.strikes("leaders return"):
            for (topic, partition), log in sorted(self.brokers.logs.items()):
                if log.leader != (node := NODES[partition % len(NODES)]):
                    self.brokers.move_leader((topic, partition), node)
        if self.faults.strikes("partition added") and len(self.feeder.records) < _MOST_PARTITIONS:
            self._add_partition()

    def _of_clocks(self) -> None:
        """Set the clock of a producer, of the driver, or of the brokers (an hour ahead: open transactions expire)."""
        strikes, of = self.faults.strikes, self.faults.of
        if strikes("producer clock"):
            partition = of("producer clock", list(self.feeder.records))
            self.feeder.set_clock(partition, of("producer clock", _JUMPS_MS))
        if strikes("driver clock"):
            self._ahead_ms = of("driver clock", _JUMPS_MS)
        if strikes("broker clock"):
            for transaction in self.brokers.transactions.values():
                transaction.started_ms -= _HOUR_MS

    def _upgrade(self, node: int) -> None:
        """A broker leaves, the others take its place, and it returns with the requests of another version."""
        self.brokers.silent_until_ms[node] = self.clock.now_ms + self.faults.of("rolling upgrade", (5_000, 60_000))
        self.brokers.replace(node)
        self._versions[node] = (self._versions[node] + 1) % len(_KAFKAS)
        self.faults.note(f"broker {node} returns with {_KAFKAS[self._versions[node]]}")

    def _add_partition(self) -> None:
        """To the output first, which has as many as the input."""
        partition = len(self.feeder.records)
        if isinstance(self.target, KafkaTarget):
            self.brokers.logs[OUT, partition] = Log(leader=NODES[partition % len(NODES)])
        self.feeder.add_partition()

    def _delete_ahead(self) -> None:
        """The oldest records of a partition, and some that no committed batch has read."""
        partition = self.faults.of("retention ahead", list(self.feeder.records))
        read = min(query.positions(self.brokers.topic_ids).get(partition, 0) for query in self.queries)
        log = self.brokers.logs[TOPIC, partition]
        self.feeder.delete_before(partition, max(log.start, (max(read, log.start) + log.end + 1) // 2))

    def _deploy(self) -> None:
        """The query stops between two turns, and the next start is in another driver, maybe with other options."""
        query, of = self.queries[0], self.faults.of
        query.end(is_dead=True)
        option = of("deployment", (*_CHANGES, "savepoint"))
        value = of("deployment", _CHANGES.get(option, (None,)))
        is_whole = query.checkpoint.committed == len(query.checkpoint.offsets) - 1 >= 0
        if option in _CHANGES:
            known = {name: text for name, text in query.source.items() if name != option}
            query.source = known | ({} if value is None else {option: value})
            if option == "watermarkLag":  # a batch that was not committed is read again with other watermarks
                query.rows = {key: rows for key, rows in query.rows.items() if key[0] <= query.checkpoint.committed}
            self.faults.note(f"{option} is {value} from now on")
        elif is_whole and len(self.queries) == 1:
            place = self.directory / f"savepoint-{query.starts}"
            self.moved.append(query)
            self.queries[0] = query.continued(place, query.sink | self.target.moved_options())
            self.faults.note("another query continues from a savepoint")

    def _turn(self, query: Query) -> None:
        stops = self._stops
        super()._turn(query)
        self._stops = 0 if self._stops == stops else self._stops

    def _check_stop(self, query: Query, error: KeyedwmError, *, is_newest: bool) -> None:
        """Somebody may accept that records are lost."""
        super()._check_stop(query, error, is_newest=is_newest)
        self._stops += self._explained(f"{type(error).__name__}: {error}")
        if isinstance(error, LostTransactionError):
            self._stops = _MOST_STOPS
        elif isinstance(error, DataLossError) and self._accepts_loss:
            query.source = query.source | {"failOnDataLoss": "false"}
            self.faults.note("the loss is accepted")

    def _compare(self, stopped: str | None) -> str | None:
        """And no event of a query that was moved was late."""
        before = (late(query, self.feeder.late) for query in self.moved)
        return super()._compare(stopped) or next(filter(None, before), None)
