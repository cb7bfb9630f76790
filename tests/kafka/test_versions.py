"""Brokers that offer older versions of requests: what works, what is lost, and what a page says of both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import keyedwm.kafka.requests.cluster as cluster_module
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import Code, UnsupportedRequestError
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests import reactions
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import send
from keyedwm.kafka.requests.transactional_offsets import commit_as
from keyedwm.kafka.requests.versions import LOSSES, VERSIONS, Use
from keyedwm.testing.broker import Broker
from tests.support import kafka_versions
from tests.support.protocol_proxy import ProtocolProxy, changed, first, protocol_proxy

PAGE = Path(__file__).parents[2] / "docs/reference/versions.md"
Connect = Callable[..., Cluster]
exactly_once = kafka_versions.since("3.0", "DescribeTransactions and ListTransactions")


@pytest.fixture
def proxy(kafka: Broker) -> Iterator[ProtocolProxy]:
    with protocol_proxy(kafka.bootstrap) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: ProtocolProxy) -> Iterator[Connect]:
    """Connects through the proxy; given the newest versions that are offered, by request."""
    clusters: list[Cluster] = []

    def connect(newest_versions: Mapping[str, int | None] | None = None, **options: str) -> Cluster:
        proxy.newest_versions = dict(newest_versions or {})
        settings = {name.replace("_", "."): value for name, value in options.items()}
        config = ClientConfig.from_options({"bootstrap.servers": proxy.bootstrap, **settings})
        clusters.append(Cluster.connect(config, 60_000))
        return clusters[-1]

    yield connect
    for cluster in clusters:
        cluster.close()


def use_all(cluster: Cluster, topic: str) -> None:
    """Write, read, keep states and commit a transaction with a marker."""
    place, group = TopicPartition(topic, 0), f"g-{topic}"
    assert topic in cluster.topics()
    assert cluster.partitions([topic]) == {topic: (0,)}
    assert send(cluster, topic, {0: pa.table({"value": [b"a", b"b"]})}) == {place: 2}
    transaction = txn.begin(cluster, f"x-{topic}", 60_000)
    commit_as(cluster, transaction, group, place, Committed(7, "marker"), timeout_ms=60_000)
    assert txn.lingering(cluster, f"x-{topic}") == []
    assert cluster.earliest([place]) == {place: 0}
    assert cluster.latest([place])[place] == 2
    assert cluster.by_timestamp({place: 0}) == {place: 0}
    read = [value for one in read_ranges(cluster, [OffsetRange(topic, 0, 0, 2)]) for value in one.records.value]
    assert [value.as_py() for value in read] == [b"a", b"b"]
    assert cluster.fetch_offsets(group, [place]) == {place: Committed(7, "marker")}
    assert cluster.fetch_offsets(group, None) == {place: Committed(7, "marker")}
    assert cluster.commit_offsets(group, {place: (8, "state")}) == {place: Code.NONE}
    assert cluster.fetch_offsets(group, [place]) == {place: Committed(8, "state")}
    assert cluster.fetch_offsets(f"new-{topic}", [place]) == {}


@exactly_once
def test_the_oldest_version_of_every_request_works(through: Connect, topic_of: Callable[..., str]) -> None:
    oldest = {api.kafka_name: versions.oldest for api, versions in VERSIONS.items()}
    use_all(through(oldest), topic_of(1))


@pytest.mark.parametrize("version", [2, 5, 7, 8])
def test_committed_offsets_are_read_with_every_version(
    through: Connect, topic_of: Callable[..., str], version: int
) -> None:
    topic = topic_of(1)
    cluster = through({"OffsetFetch": version})
    cluster.commit_offsets(f"g-{topic}", {(topic, 0): (8, "state")})
    assert cluster.fetch_offsets(f"g-{topic}", [(topic, 0)]) == {(topic, 0): Committed(8, "state")}
    assert cluster.fetch_offsets(f"new-{topic}", [(topic, 0)]) == {}


EVENT_HUBS = {"OffsetForLeaderEpoch": None, "Fetch": 11, "DescribeTransactions": None, "ListTransactions": None}


def test_a_server_without_epoch_requests_is_read_without_a_check_and_with_one_warning(
    through: Connect, topic_of: Callable[..., str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_warned", set())
    cluster, topic = through(EVENT_HUBS), topic_of(1)
    for _ in range(2):
        cluster.warn_of_losses(Use.SOURCE)
        (end,) = cluster.log_ends([(topic, 0)]).values()
        assert end.leader_epoch is not None
        assert cluster.epoch_ends({TopicPartition(topic, 0): end.leader_epoch}) == {(topic, 0): None}
    (warning,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING and "older" in one.msg]
    assert "truncation check: no check for a log truncated between two batches" in warning


def test_a_sink_that_cannot_start_says_which_requests_it_lacks(through: Connect) -> None:
    cluster = through(EVENT_HUBS)
    cluster.require(Use.SOURCE)
    cluster.require(Use.SINK)
    with pytest.raises(UnsupportedRequestError, match=r"needs DescribeTransactions 0 or newer.*\(KWM-1002\)"):
        cluster.require(Use.EXACTLY_ONCE)
    with pytest.raises(UnsupportedRequestError, match="DescribeTransactions"):
        txn.fate(cluster, txn.Transaction("x", 1, 0))


def test_a_broker_that_throttles_metadata_costs_its_time_and_no_more(
    through: Connect, proxy: ProtocolProxy, topic_of: Callable[..., str]
) -> None:
    topic = topic_of(1)
    throttled = changed(lambda answer: setattr(answer, "throttle_time_ms", 50))
    proxy.rules = dict.fromkeys(("Metadata", "ListOffsets"), throttled)
    cluster = through()
    proxy.counts.clear()
    assert send(cluster, topic, {0: pa.table({"value": [b"a"]})}) == {(topic, 0): 1}
    assert cluster.latest([(topic, 0)]) == {(topic, 0): 1}
    assert proxy.counts["Metadata"] <= 2
    assert proxy.counts["ListOffsets"] == 1


def _as_new_group(answer: object) -> None:
    (group,) = answer.groups  # type: ignore[attr-defined]
    group.error_code, group.topics = int(Code.GROUP_ID_NOT_FOUND), []


@exactly_once
def test_errors_that_pass_cost_no_result_of_a_real_broker(
    through: Connect, proxy: ProtocolProxy, topic_of: Callable[..., str]
) -> None:
    def failing(path: str, name: str) -> Callable[[object], None]:
        def change(answer: object) -> None:
            results = [answer]
            for step in path.split("."):
                results = [part for one in results for part in getattr(one, step)] if step else results
            for one in results:
                setattr(one, name, -1)

        return change

    places = {
        "Metadata": ("topics", "error_code"), "ListOffsets": ("topics.partitions", "error_code"),
        "FindCoordinator": ("coordinators", "error_code"), "OffsetFetch": ("groups", "error_code"),
        "OffsetCommit": ("topics.partitions", "error_code"), "InitProducerId": ("", "error_code"),
        "Produce": ("responses.partition_responses", "error_code"), "AddOffsetsToTxn": ("", "error_code"),
        "TxnOffsetCommit": ("topics.partitions", "error_code"), "EndTxn": ("", "error_code"),
        "DescribeTransactions": ("transaction_states", "error_code"), "ListTransactions": ("", "error_code"),
    }  # fmt: skip
    topic = topic_of(1)
    cluster = through(retry_backoff_ms="5")
    proxy.rules = {name: first(1, changed(failing(*place))) for name, place in places.items()}
    use_all(cluster, topic)
    proxy.rules = {"OffsetFetch": changed(_as_new_group)}
    assert cluster.fetch_offsets(f"g-{topic}", [(topic, 0)]) == {}


def test_the_page_has_the_versions_the_losses_and_the_errors() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for api, versions in VERSIONS.items():
        uses = [use.value.removeprefix("the ").removesuffix(" to Kafka") for use in Use if use in versions.needed_by]
        needed_by = "all" if len(uses) == len(Use) else ", ".join(uses)
        losses = "; ".join(
            f"{f'below {loss.since}' if loss.since else 'without it'}: {loss.consequence}"
            for loss in LOSSES
            if loss.api is api
        )
        assert f"| {api.kafka_name} | {versions.newest} | {versions.oldest} | {needed_by} | {losses} |\n" in page
    for codes in (reactions._REFRESH, reactions._RETRY):
        assert ", ".join(f"{code.name} ({int(code)})" for code in sorted(codes)) in " ".join(page.split())
