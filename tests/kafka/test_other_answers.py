"""A real broker behind a proxy that answers otherwise: what a client does when an answer says less than it could."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keyedwm.kafka.requests.cluster import close_shared
from keyedwm.testing.broker import Broker
from tests.support.protocol_proxy import Exchange, ProtocolProxy, Rule, first, protocol_proxy
from tests.tools import Record, Stream, events, produce

RECORDS = 900
RETRIES = {"kafka.retry.backoff.ms": "1", "kafka.retry.backoff.max.ms": "1"}


@pytest.fixture
def proxy(kafka: Broker) -> Iterator[ProtocolProxy]:
    with protocol_proxy(kafka.bootstrap) as proxy:
        yield proxy
        close_shared()  # or it would try to reach the closed proxy


@pytest.fixture(scope="module")
def filled(kafka: Broker, topic_of: Callable[..., str]) -> str:
    topic = topic_of(3)
    produce(kafka.bootstrap, topic, [Record(i % 3, 1_000 + i, b"%d" % i) for i in range(RECORDS)])
    return topic


def _without_records(exchange: Exchange) -> Any:
    for topic in exchange.answer.responses:
        for part in topic.partitions:
            part.records = b""
    return exchange.answer


def _without_partitions(exchange: Exchange) -> Any:
    exchange.answer.responses = []
    return exchange.answer


def _without_one_partition(exchange: Exchange) -> Any:
    for topic in exchange.answer.responses:
        topic.partitions = topic.partitions[1:]
    return exchange.answer


def _every_other(rule: Rule) -> Rule:
    turn, lock = [0], threading.Lock()

    def alternating(exchange: Exchange) -> Any:
        with lock:
            turn[0] += 1
            applies = turn[0] % 2
        return rule(exchange) if applies else exchange.answer

    return alternating


RULES: dict[str, Callable[[], Rule]] = {
    "two empty answers": lambda: first(2, _without_records),
    "five empty answers": lambda: first(5, _without_records),
    "every other answer without a partition": lambda: _every_other(_without_one_partition),
    "answers without any partition": lambda: first(5, _without_partitions),
}


@pytest.mark.parametrize("rule", RULES)
def test_all_records_are_read_however_often_a_broker_answers_with_nothing(
    proxy: ProtocolProxy, filled: str, rule: str
) -> None:
    proxy.rules["Fetch"] = RULES[rule]()
    stream = Stream(
        **{"kafka.bootstrap.servers": proxy.bootstrap, "subscribe": filled, "startingOffsets": "earliest"}, **RETRIES
    )
    rows = [row for batch in stream.drain() for row in events(batch)]
    assert sorted(int(row["value"]) for row in rows) == list(range(RECORDS))
    assert proxy.counts["Fetch"] < 40
