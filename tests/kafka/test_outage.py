from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import Sender, new_producer
from keyedwm.testing import admin
from keyedwm.testing.local import LocalBroker, local_broker

pytestmark = pytest.mark.starts

RECORDS = 5_000


@pytest.fixture
def doomed() -> Iterator[LocalBroker]:
    """A broker of our own, to be killed."""
    with local_broker(extra={"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "300"}) as running:
        yield running


def test_a_killed_broker_costs_no_record_and_doubles_none(doomed: LocalBroker, topic: str) -> None:
    options = {
        "bootstrap.servers": doomed.bootstrap,
        "max.partition.fetch.bytes": "25000",
        "fetch.max.bytes": "50000",
    }
    cluster = Cluster.connect(ClientConfig.from_options(options))
    admin.create_topic(cluster, topic, 2)
    values = [b"%06d" % i + b"x" * 94 for i in range(RECORDS)]
    sender = Sender(cluster, new_producer(cluster))
    sender.send(topic, dict.fromkeys((0, 1), pa.table({"value": values[: RECORDS // 2]})))
    reading = read_ranges(cluster, [OffsetRange(topic, p, 0, RECORDS) for p in (0, 1)])
    values_of_partitions: list[list[bytes]] = [[], []]
    for part in reading:
        values_of_partitions[part.index] += part.records.value.to_pylist()  # type: ignore[union-attr]
        if len(values_of_partitions[0]) > 500:
            break
    doomed.kill()
    cluster.config = ClientConfig.from_options({**options, "default.api.timeout.ms": "300"})
    with pytest.raises(UnavailableError, match="reading the partitions"):
        cluster.partitions([topic])
    cluster.config = cluster.connection.config
    doomed.start()
    sender.send(topic, dict.fromkeys((0, 1), pa.table({"value": values[RECORDS // 2 :]})))
    for part in reading:
        values_of_partitions[part.index] += part.records.value.to_pylist()  # type: ignore[union-attr]
    assert values_of_partitions == [values, values]
    cluster.close()
