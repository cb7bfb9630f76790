"""What a broker that crashed and came back still knows of its producers: of each the newest batch, if that is not old.

It keeps a producer for `producer.id.expiration.ms`, a day, after the newest timestamp of its records, not after the
moment when they were written; the producer of an open transaction for as long as that is open. Hence exactly-once never
rests on an idempotent producer alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.encode import Producer
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender, new_producer
from keyedwm.testing import admin
from keyedwm.testing.local import local_broker

pytestmark = pytest.mark.starts

LONG_AGO_MS = 1_356_998_400_000
FIRST, SECOND = ["a", "b"], ["c", "d"]  # the batches


class Writer:
    """Writes the two batches to a topic of its own as one producer, in a transaction or not, now or long ago."""

    def __init__(self, cluster: Cluster, topic: str, *, transactional: bool, old: bool) -> None:
        self.place = TopicPartition(topic, 0)
        self._cluster, self._id = cluster, topic if transactional else None
        self._stamps = {"timestamp": pa.array([LONG_AGO_MS] * 2, pa.int64())} if old else {}
        admin.create_topic(cluster, topic, 1)
        self._producer = self._new_transaction() if transactional else new_producer(cluster)

    def _new_transaction(self) -> Producer:
        transaction = txn.begin(self._cluster, self.place.topic, 600_000)
        txn.add_partitions(self._cluster, transaction, [self.place])
        return transaction.producer

    def write(self, values: list[str]) -> int:
        """Write a batch, or write it again; the end of the partition afterwards."""
        sender = Sender(self._cluster, self._producer, transactional_id=self._id)
        sender.sequences[self.place] = 0 if values is FIRST else len(FIRST)
        sender.send(self.place.topic, {0: pa.table({"value": values, **self._stamps})})
        return self._cluster.latest([self.place], Isolation.READ_UNCOMMITTED)[self.place]


@pytest.fixture(scope="module")
def writers() -> Iterator[dict[str, Writer]]:
    """They have written both batches to a broker that has crashed since."""
    quick = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "300"}
    with local_broker(extra=quick) as broker:
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": broker.bootstrap}))
        writers_by_name = {
            f"{kind}-{age}": Writer(cluster, f"{kind}-{age}", transactional=kind == "transaction", old=age == "old")
            for kind in ("transaction", "idempotent")
            for age in ("old", "new")
        }
        for writer in writers_by_name.values():
            assert [writer.write(FIRST), writer.write(SECOND), writer.write(FIRST)] == [2, 4, 4]
        broker.kill()
        broker.start()
        yield writers_by_name
        cluster.close()


@pytest.mark.parametrize("name", ["transaction-old", "transaction-new", "idempotent-new"])
def test_the_newest_batch_is_taken_once_and_the_one_before_is_refused_to_be_tried_anew(
    writers: dict[str, Writer], name: str
) -> None:
    with pytest.raises(UnavailableError, match=rf"{name}-0 no longer remembers which batches .* OutOfOrder.*\[retry"):
        writers[name].write(FIRST)
    assert writers[name].write(SECOND) == 4


def test_an_idempotent_producer_of_old_records_is_forgotten_and_its_batches_are_taken_again(
    writers: dict[str, Writer],
) -> None:
    assert [writers["idempotent-old"].write(FIRST), writers["idempotent-old"].write(SECOND)] == [6, 8]
