"""Servers that are not Apache Kafka, by the profiles of `tests/support/broker_profiles.py`: each row comes once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import keyedwm.kafka.requests.cluster as cluster_module
from keyedwm.cli.main import main
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import UnsupportedRequestError
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster, close_shared
from keyedwm.kafka.requests.produce import send
from keyedwm.kafka.requests.transactional_offsets import commit_as
from keyedwm.kafka.requests.versions import Use
from keyedwm.testing.broker import Broker
from tests.support import kafka_versions
from tests.support.broker_profiles import PROFILES, Profile
from tests.support.protocol_proxy import ProtocolProxy, protocol_proxy
from tests.tools import Stream, events

pytestmark = [pytest.mark.starts, kafka_versions.since("3.1", "the requests of all profiles")]
RETRIES = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "1"}


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> Profile:
    return PROFILES[request.param]


@pytest.fixture
def proxy(kafka: Broker, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProtocolProxy]:
    monkeypatch.setattr(cluster_module, "_warned", set())
    with protocol_proxy(kafka.bootstrap) as proxy:
        profile.apply(proxy)
        yield proxy
        close_shared()  # or it would try to reach the closed proxy


@pytest.fixture
def cluster(proxy: ProtocolProxy) -> Iterator[Cluster]:
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": proxy.bootstrap, **RETRIES}))
    yield cluster
    cluster.close()


def test_every_row_is_written_and_read_once_and_what_is_lost_is_said(
    profile: Profile, proxy: ProtocolProxy, cluster: Cluster, topic_of: Callable[..., str],
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    topic = topic_of(2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    values = [b"%d" % n for n in range(200)]
    counts_by_partition = send(cluster, topic, {n: pa.table({"value": values[n::2]}) for n in (0, 1)})
    assert counts_by_partition == dict.fromkeys(places, 100)
    assert cluster.fetch_offsets(f"g-{topic}", places) == {}

    stream = Stream(**{
        "kafka.bootstrap.servers": proxy.bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        **{f"kafka.{name}": value for name, value in RETRIES.items()},
    })  # fmt: skip
    rows = [row["value"] for batch in stream.drain() for row in events(batch)]
    assert sorted(rows, key=int) == values
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert any("truncated between two batches" in one for one in warnings) is (profile.epochs is None)

    ends = cluster.log_ends(places)
    reads = {tp: (end.offset, end.leader_epoch or 0) for tp, end in ends.items()}
    assert cluster.lost_records(reads) == set()  # whatever the server answers about epochs
    if profile.transactions:
        transaction = txn.begin(cluster, f"x-{topic}", 60_000)
        commit_as(cluster, transaction, f"g-{topic}", places[0], Committed(7, "marker"), timeout_ms=60_000)
        assert cluster.fetch_offsets(f"g-{topic}", places) == {places[0]: Committed(7, "marker")}
    else:
        with pytest.raises(UnsupportedRequestError, match=r"needs .*EndTxn 0"):
            cluster.require(Use.EXACTLY_ONCE)

    profile.apply(proxy)
    code = main(["doctor", "--bootstrap", proxy.bootstrap, "--topic", topic, "--target", topic])
    lines = capsys.readouterr().out.splitlines()
    cells = {line[6:].partition(": ")[0]: line[:4].strip() for line in lines}
    assert code == (0 if profile.transactions else 1)
    assert cells["the source"] == cells["the sink to Kafka"] == cells["tiered storage"] == "ok"
    assert cells["the exactly-once sink to Kafka"] == ("ok" if profile.transactions else "FAIL")
    about_epochs = [line[:4].strip() for line in lines if "where leader epochs end" in line]
    assert about_epochs == {None: [], True: ["ok"], False: ["WARN"]}[profile.epochs]
