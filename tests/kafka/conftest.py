from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from keyedwm.testing.broker import Broker

# Imported late: this file can be loaded before the suite's warning filters stand, and kafka-python warns when imported.
if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

    from keyedwm.kafka.client.config import ClientConfig
    from keyedwm.kafka.requests.cluster import Cluster
    from tests.secured import Secured


@pytest.fixture(scope="session")
def config(kafka: Broker) -> ClientConfig:
    from keyedwm.kafka.client.config import ClientConfig

    return ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture(scope="session")
def cluster(config: ClientConfig) -> Iterator[Cluster]:
    from keyedwm.kafka.requests.cluster import Cluster

    connected = Cluster.connect(config)
    yield connected
    connected.close()


@pytest.fixture
def make_topic(cluster: Cluster, new_topic: Callable[[], str]) -> Iterator[Callable[..., str]]:
    """Creates a topic with so many partitions and these settings; deleted afterwards."""
    from keyedwm.testing import admin

    topics: list[str] = []

    def make(partitions: int = 1, **settings: str) -> str:
        name = new_topic()
        admin.create_topic(cluster, name, partitions, {key.replace("_", "."): value for key, value in settings.items()})
        topics.append(name)
        return name

    yield make
    for name in topics:
        if cluster.partitions([name], missing_ok=True):
            admin.delete_topic(cluster, name)


@pytest.fixture(scope="module")
def their_admin(secured: Secured) -> Iterator[KafkaAdminClient]:
    """kafka-python's own client, as the user who may do everything."""
    from kafka.admin import KafkaAdminClient

    from tests.secured import PASSWORD

    client = KafkaAdminClient(
        bootstrap_servers=secured.bootstrap, security_protocol="SASL_SSL", sasl_mechanism="PLAIN",
        sasl_plain_username="boss", sasl_plain_password=PASSWORD, ssl_cafile=str(secured.home / "cert.pem"),
    )  # fmt: skip
    yield client
    client.close()
