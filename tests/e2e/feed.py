"""What is sent, and what of it is lost, doubled or out of order in an output: the exact answer to compare with."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import kafka
import pyarrow as pa

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender
from tests.tools import Record

PARTITIONS = 3
HOUR_MS = 3_600_000
START_MS = 1_356_998_400_000
STEP_MS = 5 * 60_000
JITTER_MS = 110 * 60_000  # below the pipeline's lag of two hours: nothing is late behind its own watermark
SPREAD_MS = 6 * HOUR_MS  # how far each partition is ahead of the one before it
LAG_MS = 2 * HOUR_MS
_TIMEOUT_MS = 600_000  # of a transaction: longer than any outage
_READ_S = 120


class Feed:
    """Numbered records of each partition, keyed by it; every round sends some more.

    In transactions: a broker that crashes forgets an idempotent producer of records this old, and what is sent again
    to it because its answer was lost lies there twice (tests/kafka/test_crash.py).
    """

    def __init__(self, cluster: Callable[[], Cluster], topic: str, rng: random.Random) -> None:
        self._cluster, self.topic, self._random = cluster, topic, rng
        self.sent: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self._transactions = 0
        self._hours: Counter = Counter()
        self._highest_ms = [START_MS] * PARTITIONS

    def send(self, least: int, most: int) -> None:
        by_partition: dict[int, list[Record]] = {}
        for record in self.grown(least, most):
            by_partition.setdefault(record.partition, []).append(record)
        self.write({partition: _columns(records) for partition, records in by_partition.items()})

    def offsets(self) -> list[list[int]]:
        """Where the records of each partition lie, as another client than ours reads the topic.

        What a producer is told is not enough: between two batches of a transaction the marker of the one before may
        lie, which comes later if a leader is killed.
        """
        places = [kafka.TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        offsets: list[list[int]] = [[] for _ in places]
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=list(self._cluster().config.bootstrap_servers),
            group_id=None,
            isolation_level="read_committed",
        )
        with closing(consumer):
            consumer.assign(places)
            consumer.seek_to_beginning()
            deadline_s = time.monotonic() + _READ_S
            while any(len(one) < len(sent) for one, sent in zip(offsets, self.sent, strict=True)):
                if time.monotonic() > deadline_s:
                    raise UnavailableError(f"{self.topic} was not read to its end within {_READ_S} s")
                for place, records in consumer.poll(500).items():
                    offsets[place.partition] += [record.offset for record in records]
        return offsets

    def write(self, tables: Mapping[int, pa.Table]) -> None:
        """Write in one transaction; what a crash has cut in two is sent anew."""
        while True:
            cluster = self._cluster()
            self._transactions += 1
            transaction = txn.begin(cluster, f"{self.topic}-{self._transactions}", _TIMEOUT_MS)
            txn.add_partitions(cluster, transaction, [TopicPartition(self.topic, partition) for partition in tables])
            try:
                sender = Sender(cluster, transaction.producer, transactional_id=transaction.transactional_id)
                sender.send(self.topic, tables)
            except UnavailableError:
                txn.end(cluster, [transaction], commit=False)  # raises it, too, if the broker stays away
                continue
            txn.end(cluster, [transaction], commit=True)
            return

    def grown(self, least: int, most: int) -> list[Record]:
        """That many more records for each partition."""
        records = []
        for partition, records_of_partition in enumerate(self.sent):
            new = [
                self._record(partition, len(records_of_partition) + i) for i in range(self._random.randint(least, most))
            ]
            records_of_partition.extend(new)
            records += new
            self._hours.update((record.timestamp_ms // HOUR_MS * HOUR_MS, partition) for record in new)
            self._highest_ms[partition] = max(self._highest_ms[partition], *(r.timestamp_ms for r in new))
        return records

    def _record(self, partition: int, number: int) -> Record:
        ms = START_MS + partition * SPREAD_MS + number * STEP_MS + self._random.randrange(JITTER_MS)
        return Record(partition, ms, b"%d:%d:%d" % (partition, number, ms), b"%d" % partition)

    def closed_hours(self) -> Counter:
        """(hour, partition, count) of every hour that the coalesced watermark has closed."""
        watermark_ms = min(self._highest_ms) - LAG_MS
        return Counter({(h, p, count): 1 for (h, p), count in self._hours.items() if h + HOUR_MS <= watermark_ms})


def _columns(records: list[Record]) -> pa.Table:
    return pa.table({
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "timestamp": pa.array([record.timestamp_ms for record in records], pa.int64()),
    })  # fmt: skip


@dataclass
class Findings:
    """What an output has wrong; `other` says it in words."""

    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    other: list[str] = field(default_factory=list)

    def told(self) -> str:
        return f"lost {self.lost}, doubled {self.doubled}, reordered {self.reordered}"

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.other)


class Tally:
    """Holds every record of an output against what was sent, in the order in which it lies there."""

    def __init__(self, feed: Feed, findings: Findings) -> None:
        self._feed, self._findings = feed, findings
        self._came: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self._highest = [-1] * PARTITIONS

    def take(self, value: bytes) -> tuple[int, int]:
        """Count one record; its partition and number."""
        partition, number = map(int, value.split(b":")[:2])
        records = self._feed.sent[partition]
        if number >= len(records) or records[number].value != value:
            self._findings.other.append(f"{value!r} came and was never sent")
        numbers = self._came[partition]
        if number in numbers:
            self._findings.doubled += 1
        elif number < self._highest[partition]:
            self._findings.reordered += 1
        numbers.add(number)
        self._highest[partition] = max(number, self._highest[partition])
        return partition, number

    def taken(self) -> int:
        return sum(map(len, self._came))

    def missing(self) -> int:
        return sum(len(sent) - len(came) for sent, came in zip(self._feed.sent, self._came, strict=True))


def misplaced(rows: Iterable[tuple[int, int, int, int]], offsets: Sequence[Sequence[int]]) -> list[str]:
    """Say of each record, by its partition and number, that came with another partition or offset than it has.

    offsets: as `Feed.offsets` gives them.
    """
    places = {(of, number): (of, offset) for of, found in enumerate(offsets) for number, offset in enumerate(found)}
    return [
        f"record {number} of partition {of} came as {partition}-{offset}, it lies at {places.get((of, number))}"
        for of, number, partition, offset in rows
        if places.get((of, number)) != (partition, offset)
    ]
