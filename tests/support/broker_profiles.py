"""How servers that are not Apache Kafka answer otherwise, as their documents and bug reports have it.

Rule: a profile is data for the protocol proxy before a real broker, and each fact names its source. What no source says
is answered as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from keyedwm.kafka.client.errors import Code
from tests.support.protocol_proxy import Exchange, ProtocolProxy, Rule, first


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A server. newest_versions: by request, None for one that it lacks; rules: makes its answers by request.

    sources: of each fact. transactions: whether it has all that the exactly-once sink needs. epochs: whether its
    answers about leader epochs are right, None if it gives none.
    """

    newest_versions: Mapping[str, int | None] = field(default_factory=dict)
    rules: Callable[[], Mapping[str, Rule]] = dict
    sources: tuple[str, ...]
    transactions: bool
    epochs: bool | None

    def apply(self, proxy: ProtocolProxy) -> None:
        """Let a proxy answer as this server."""
        proxy.newest_versions, proxy.rules = dict(self.newest_versions), dict(self.rules())


def _each_part(answer: Any, *path: str) -> list[Any]:
    parts = [answer]
    for step in path:
        parts = [part for one in parts for part in getattr(one, step)]
    return parts


def _written_and(code: Code) -> Rule:
    """The rule that writes the records, and answers with a code."""

    def rule(exchange: Exchange) -> Any:
        for part in _each_part(exchange.answer, "responses", "partition_responses"):
            part.error_code, part.base_offset = int(code), -1
        return exchange.answer

    return rule


def _not_fetched(code: Code) -> Rule:
    def rule(exchange: Exchange) -> Any:
        for part in _each_part(exchange.answer, "responses", "partitions"):
            part.error_code, part.records = int(code), b""
        return exchange.answer

    return rule


def _empty_and_throttled(exchange: Exchange) -> Any:
    for part in _each_part(exchange.answer, "responses", "partitions"):
        part.records = b""
    exchange.answer.throttle_time_ms = 20
    return exchange.answer


def _epochs_end_at_0(exchange: Exchange) -> Any:
    for part in _each_part(exchange.answer, "topics", "partitions"):
        part.leader_epoch, part.end_offset = 0, 0
    return exchange.answer


def _group_without_topics(exchange: Exchange) -> Any:
    """A group-level error where a group has committed nothing."""
    for group in getattr(exchange.answer, "groups", ()):
        if not any(part.committed_offset >= 0 for part in _each_part(group, "topics", "partitions")):
            group.error_code, group.topics = int(Code.UNKNOWN_TOPIC_OR_PARTITION), []
    return exchange.answer


_NO_TRANSACTIONS = dict.fromkeys(
    ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "DescribeTransactions", "ListTransactions")
)
PROFILES: Mapping[str, Profile] = {
    "Event Hubs, Standard": Profile(
        newest_versions={
            "Produce": 7, "Fetch": 6, "Metadata": 5, "OffsetCommit": 8, "OffsetFetch": 8, "FindCoordinator": 4,
            "OffsetForLeaderEpoch": 0, "DescribeConfigs": 2, **_NO_TRANSACTIONS,
        },
        rules=lambda: {
            "Produce": first(2, _written_and(Code.POLICY_VIOLATION)),
            "Fetch": first(3, _empty_and_throttled),
            "OffsetFetch": _group_without_topics,
        },
        sources=(
            "versions: https://github.com/oliveigah/klife/issues/13 (a server's own list)",
            "no transactions, DescribeConfigs 2: https://github.com/Azure/azure-event-hubs-for-kafka/issues/209",
            "OffsetForLeaderEpoch 0: https://github.com/Azure/azure-event-hubs-for-kafka/issues/69",
            "POLICY_VIOLATION for Produce: https://github.com/vectordotdev/vector/issues/22026",
            "empty fetches, throttling: https://learn.microsoft.com/azure/event-hubs/apache-kafka-troubleshooting-guide",
            "the error of a new group: https://github.com/twmb/franz-go/issues/1312",
        ),
        transactions=False,
        epochs=None,
    ),
    "Event Hubs, Premium": Profile(
        rules=lambda: {"OffsetForLeaderEpoch": _epochs_end_at_0},
        sources=(
            "epochs reset consumers: https://github.com/open-telemetry/opentelemetry-collector-contrib/issues/42226",
            "an end of 0 for every epoch, of another service: https://github.com/twmb/franz-go/issues/699",
            "transactions as a preview: https://learn.microsoft.com/azure/event-hubs/apache-kafka-transactions",
        ),
        transactions=True,
        epochs=False,
    ),
    "Redpanda": Profile(
        newest_versions={
            "Produce": 7, "Fetch": 11, "ListOffsets": 4, "Metadata": 8, "OffsetCommit": 8, "OffsetFetch": 7,
            "FindCoordinator": 3, "InitProducerId": 3, "AddOffsetsToTxn": 1, "ListTransactions": 0,
        },
        rules=lambda: {
            "Produce": first(2, _written_and(Code.REQUEST_TIMED_OUT)),
            "OffsetForLeaderEpoch": _epochs_end_at_0,
        },
        sources=(
            "versions: src/v/kafka/server/handlers of https://github.com/redpanda-data/redpanda at 1c6cff34 (25.1)",
            "REQUEST_TIMED_OUT for an uncertain write: map_produce_error_code in produce.cc there",
            "wrong ends of epochs of a remote read replica: https://github.com/redpanda-data/redpanda/issues/14402",
        ),
        transactions=True,
        epochs=False,
    ),
    "WarpStream": Profile(
        newest_versions={"OffsetForLeaderEpoch": None},
        rules=lambda: {"Fetch": first(3, _empty_and_throttled)},
        sources=(
            "requests: https://docs.warpstream.com/warpstream/kafka/reference/protocol-and-feature-support",
            "empty fetches are assumed, as WarpStream reads from an object store",
        ),
        transactions=True,
        epochs=None,
    ),
    "AutoMQ": Profile(
        rules=lambda: {
            "Fetch": first(2, _not_fetched(Code.REQUEST_TIMED_OUT)),
            "OffsetForLeaderEpoch": _epochs_end_at_0,
        },
        sources=(
            "Kafka's own code: https://github.com/AutoMQ/automq",
            "REQUEST_TIMED_OUT for Fetch: https://github.com/AutoMQ/automq/issues/616",
            "wrong ends of epochs of a partition read from a snapshot: https://github.com/AutoMQ/automq/pull/2863",
        ),
        transactions=True,
        epochs=False,
    ),
}  # fmt: skip
