"""The proxy that answers otherwise: rules see decoded requests, and what has no rule comes as the server said it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from tests.support.hostile import HostileBroker, hostile_broker
from tests.support.protocol_proxy import Exchange, Instead, ProtocolProxy, changed, first, protocol_proxy

pytestmark = pytest.mark.starts

PLACE = TopicPartition("t", 0)
OPTIONS = {"retry.backoff.ms": "1", "reconnect.backoff.ms": "1", "request.timeout.ms": "300"}


@pytest.fixture
def server() -> Iterator[HostileBroker]:
    with hostile_broker() as broker:
        yield broker


@pytest.fixture
def proxy(server: HostileBroker) -> Iterator[ProtocolProxy]:
    with protocol_proxy(server.bootstrap) as proxy:
        yield proxy


def _connect(proxy: ProtocolProxy) -> Cluster:
    return Cluster.connect(ClientConfig.from_options({"bootstrap.servers": proxy.bootstrap, **OPTIONS}))


def test_clients_are_told_the_proxy_s_address_and_no_other(server: HostileBroker, proxy: ProtocolProxy) -> None:
    with closing(_connect(proxy)) as cluster:
        assert cluster.latest([PLACE]) == {PLACE: 0}
        assert cluster.fetch_offsets("g", [PLACE])[PLACE].next_offset == 0
        assert [f"{host}:{port}" for _, host, port in cluster.connection.advertised] == [proxy.bootstrap]
    assert proxy.counts["ListOffsets"] == server.counts[2] == 1
    assert proxy.counts["FindCoordinator"] == server.counts[10] == 1


def test_a_rule_sees_the_request_and_changes_the_answer(proxy: ProtocolProxy) -> None:
    def end_at_seven(exchange: Exchange) -> object:
        assert exchange.request.topics[0].partitions[0].timestamp == -1
        exchange.answer.topics[0].partitions[0].offset = 7
        return exchange.answer

    with closing(_connect(proxy)) as cluster:
        proxy.rules["ListOffsets"] = end_at_seven
        assert cluster.latest([PLACE]) == {PLACE: 7}


@pytest.mark.parametrize("instead", Instead)
def test_what_comes_instead_of_an_answer_lasts_as_long_as_is_said(
    server: HostileBroker, proxy: ProtocolProxy, instead: Instead
) -> None:
    with closing(_connect(proxy)) as cluster:
        proxy.rules["ListOffsets"] = first(1, lambda _: instead)
        assert cluster.latest([PLACE]) == {PLACE: 0}
    assert proxy.counts["ListOffsets"] > server.counts[2] > 0


def test_no_newer_version_is_offered_than_is_said(proxy: ProtocolProxy) -> None:
    proxy.newest_versions |= {"ListOffsets": 2, "OffsetForLeaderEpoch": None}
    versions = []

    def rule(exchange: Exchange) -> object:
        versions.append(exchange.version)
        return exchange.answer

    with closing(_connect(proxy)) as cluster:
        proxy.rules["ListOffsets"] = rule
        cluster.latest([PLACE])
        assert versions == [2]
        assert cluster.epoch_ends({PLACE: 0}) == {PLACE: None}
    assert not proxy.counts["OffsetForLeaderEpoch"]


def test_a_rule_that_fails_fails_its_test(server: HostileBroker) -> None:
    def use(proxy: ProtocolProxy) -> None:
        with closing(_connect(proxy)) as cluster:
            proxy.rules["ListOffsets"] = first(1, changed(lambda answer: answer.no_such_field))
            cluster.latest([PLACE])

    with pytest.raises(AttributeError, match="no_such_field"), protocol_proxy(server.bootstrap) as proxy:
        use(proxy)
