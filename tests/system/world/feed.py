"""What is written to the input: records in disorder up to the lag, plain and in transactions that stay open a while.

Rule: the feeder keeps what the exact reference pipeline gives: every partition's readable records, in order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from keyedwm.kafka.records.encode import Producer, encode
from keyedwm.kafka.records.record_columns import RecordColumns
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.coordinators import NODES
from keyedwm.testing.simulated_kafka.log import START_MS, Log

TOPIC, PARTITIONS, LAG_MS = "in", 3, 1_000
_FIRST_PRODUCER = 500_000


@dataclass(slots=True)
class Fed:
    """One record of the input."""

    offset: int
    value: str
    event_ms: int
    producer_id: int  # -1: not in a transaction


@dataclass(slots=True)
class Feeder:
    """Writes to the leaders' logs directly: the input's producers are not under test.

    ahead_ms: how far the clock of each partition's producer is ahead; None: event times do not follow the clock.
    late: the values of records that are late because their producer's clock was set back.
    """

    brokers: Brokers
    chance: random.Random
    transactional: float = 0.0
    is_large: bool = False
    records: dict[int, list[Fed]] = field(default_factory=lambda: {p: [] for p in range(PARTITIONS)})
    aborted: set[int] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    ahead_ms: dict[int, int] | None = None
    silent: frozenset[int] = frozenset()  # partitions
    _generation: int = 0
    _tops: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), START_MS))
    _highest: dict[int, int] = field(default_factory=dict)  # event time in each partition
    _open: dict[int, tuple[int, float]] = field(default_factory=dict)  # partition -> producer, when it ends
    _producers: int = _FIRST_PRODUCER

    def write(self) -> None:
        """Some records to some partitions; a transaction begins, or ends when its time has come."""
        for partition in self.records:
            self._end_due(partition)
            if partition in self.silent:
                continue
            if self.chance.random() < 0.5:
                continue
            if partition not in self._open and self.chance.random() < self.transactional:
                self._producers += 1
                self._open[partition] = (
                    self._producers,
                    self.brokers.clock.now_ms + self.chance.choice([10, 2_000, 90_000]),
                )
            inside = partition in self._open and self.chance.random() < 0.7
            self._append(partition, self._open[partition][0] if inside else -1)

    def add_partition(self) -> None:
        """A partition more."""
        partition = len(self.records)
        self.brokers.logs[TOPIC, partition] = Log(leader=NODES[partition % len(NODES)])
        self.records[partition], self._tops[partition] = [], START_MS

    def set_clock(self, partition: int, ahead_ms: int) -> None:
        """The producer's clock jumps, and event times with it."""
        self.ahead_ms = (self.ahead_ms or {}) | {partition: ahead_ms}
        self._tops[partition] = START_MS

    def delete_before(self, partition: int, start: int) -> None:
        """Delete records that may not be read yet."""
        log = self.brokers.logs[TOPIC, partition]
        self.deleted |= {fed.value for fed in self.records[partition] if log.start <= fed.offset < start}
        log.retain(start)

    def recreate(self) -> None:
        """Delete the topic and create it anew; what was in it may be lost."""
        self.deleted |= {fed.value for records in self.records.values() for fed in records}
        self._generation += 1
        self._open.clear()
        self.brokers.recreate(TOPIC, len(self.records))
        for _ in range(self.chance.choice([0, 0, 20])):
            self.write()

    def finish(self) -> None:
        """End every transaction."""
        for partition in list(self._open):
            self._end(partition)

    def expected(self, partition: int, *, committed: bool) -> list[str]:
        """The values that a reader of this isolation is to be given."""
        hidden = self.aborted if committed else set()
        return [fed.value for fed in self.records[partition] if fed.producer_id not in hidden]

    def _end_due(self, partition: int) -> None:
        if partition in self._open and self.brokers.clock.now_ms > self._open[partition][1]:
            self._end(partition)

    def _end(self, partition: int) -> None:
        producer_id, _ = self._open.pop(partition)
        commit = self.chance.random() < 0.6
        if not commit:
            self.aborted.add(producer_id)
        self.brokers.logs[TOPIC, partition].finish(producer_id, 0, commit=commit, now_ms=self.brokers.clock.now_ms)

    def _append(self, partition: int, producer_id: int) -> None:
        log, count = self.brokers.logs[TOPIC, partition], self.chance.randint(1, 5)
        if self.is_large and self.chance.random() < 0.2:
            count *= 40
        if self.ahead_ms is not None:
            now_ms = int(self.brokers.clock.now_ms) + self.ahead_ms.get(partition, 0)
            self._tops[partition] = max(self._tops[partition], now_ms)
        times = []
        for number in range(count):
            self._tops[partition] += self.chance.randint(0, 600)
            event_ms = self._tops[partition] - self.chance.randint(0, LAG_MS)
            times.append(event_ms)
            offset = log.end + number
            value = f"{partition}:{self._generation}:{offset}"
            self.records[partition].append(Fed(offset, value, event_ms, producer_id))
            if event_ms < self._highest.get(partition, event_ms) - LAG_MS:
                self.late.add(value)
            self._highest[partition] = max(event_ms, self._highest.get(partition, event_ms))
        columns = RecordColumns(
            np.array(times, np.int64),
            value=pa.array([fed.value for fed in self.records[partition][-count:]], pa.string()),
            key=None,
            headers=None,
        )
        producer = Producer(producer_id, 0, transactional=True) if producer_id >= 0 else Producer()
        for batch in encode(columns, producer=producer):
            log.append(batch.data, self.brokers.clock.now_ms)
