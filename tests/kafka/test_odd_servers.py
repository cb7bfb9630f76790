"""Servers that speak Kafka's protocol in their own way: they throttle, list no mechanisms, or refuse versions oddly."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.kafka.client import connection
from keyedwm.kafka.client.errors import AccessError, Code
from keyedwm.kafka.client.values import Codec
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import send
from tests.kafka.test_hostile import (
    API_VERSIONS,
    METADATA,
    PATIENT,
    SOME_PATIENCE,
    config_of,
    patient,
    patient_cluster,
)
from tests.kafka.test_hostile_login import PLAIN, SASL_HANDSHAKE
from tests.support.hostile import HostileBroker, Lie, Request, hostile_broker

PRODUCE = 0
pytestmark = pytest.mark.starts


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with hostile_broker() as broker:
        yield broker


def throttling(throttle_ms: int) -> Lie:
    return lambda request, broker: [broker.honest(request, throttle_time_ms=throttle_ms)]


def test_a_broker_that_throttles_every_answer_is_waited_for_and_asked_once_for_each(broker: HostileBroker) -> None:
    broker.lies = dict.fromkeys((METADATA, 2, 9, 10), throttling(20))
    cluster = patient(broker.bootstrap)
    assert cluster.topics() == ("t",)
    broker.counts.clear()
    assert cluster.partitions(["t"]) == {"t": (0,)}
    assert cluster.latest([("t", 0)]) == {("t", 0): 0}
    assert cluster.earliest([("t", 0)]) == {("t", 0): 0}
    assert len(cluster.fetch_offsets("g", [("t", 0)])) == 1
    assert broker.counts == {METADATA: 1, 2: 2, 9: 1, 10: 1}
    cluster.close()


def test_a_throttle_time_without_end_is_waited_for_no_longer_than_a_connection(broker: HostileBroker) -> None:
    broker.lies[METADATA] = throttling(2**31 - 1)
    cluster = Cluster.connect(config_of(broker.bootstrap, request_timeout_ms="30000"), 60_000)
    assert cluster.partitions(["t"]) == {"t": (0,)}
    assert cluster.topics() == ("t",)
    cluster.close()


def test_requests_that_wait_for_a_throttling_broker_fail_with_its_connection(broker: HostileBroker) -> None:
    cluster = patient(broker.bootstrap)
    broker.lies[METADATA] = throttling(60_000)
    cluster.topics()
    waiting = cluster.connection.submit(1, MetadataRequest(topics=[], allow_auto_topic_creation=False, max_version=12))
    cluster.connection._net.call_soon_threadsafe(cluster.connection._manager.drop_connections)
    with pytest.raises(Exception, match="no answer came in time"):
        waiting.result(60)
    cluster.close()


def test_a_login_that_succeeds_goes_on_where_the_server_lists_no_mechanism() -> None:
    with hostile_broker({SASL_HANDSHAKE: lambda r, b: [b.honest(r, mechanisms=[])]}) as broker:
        cluster = Cluster.connect(config_of(broker.bootstrap, **(PLAIN | PATIENT)), 60_000)
        assert cluster.topics() == ("t",)
        cluster.close()


@pytest.mark.parametrize(
    ("code", "mechanisms", "offer"),
    [(33, ["SCRAM-SHA-512", "OAUTHBEARER", "secret"], "OAUTHBEARER, SCRAM-SHA-512"), (33, [], "none that this client"),
     (0, ["SCRAM-SHA-256"], "SCRAM-SHA-256")],
)  # fmt: skip
def test_a_mechanism_that_the_server_does_not_offer_blames_the_mechanism(
    code: int, mechanisms: list[str], offer: str
) -> None:
    lie = lambda r, b: [b.honest(r, error_code=code, mechanisms=mechanisms)]  # noqa: E731
    with hostile_broker({SASL_HANDSHAKE: lie}) as broker, pytest.raises(AccessError) as caught:
        Cluster.connect(config_of(broker.bootstrap, **(PLAIN | PATIENT)), 60_000)
    assert f"do not accept the login PLAIN; they offer {offer}" in str(caught.value)
    assert "set kafka.sasl.mechanism" in str(caught.value)
    assert "jaas" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert broker.counts[SASL_HANDSHAKE] == 1


BODIES = {
    "version 0 with its own range": struct.pack(">hihhh", 35, 1, 18, 0, 2),
    "version 0 without a range": struct.pack(">hi", 35, 0),
    "version 3": struct.pack(">h", 35) + b"\x02" + struct.pack(">hhh", 18, 0, 3) + b"\x00" + bytes(4) + b"\x00",
    "the code alone": struct.pack(">h", 35),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_server_that_refuses_the_version_of_api_versions_is_asked_with_version_0(body: str) -> None:
    def lie(request: Request, broker: HostileBroker) -> list[bytes]:
        if request.version == 0:
            return [broker.honest(request)]
        refusal = struct.pack(">i", request.correlation_id) + BODIES[body]
        return [struct.pack(">i", len(refusal)) + refusal]

    with hostile_broker({API_VERSIONS: lie}) as broker:
        cluster = patient(broker.bootstrap)
        assert cluster.topics() == ("t",)
        cluster.close()


def test_a_server_that_refuses_every_version_is_given_up(
    broker: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "other_protocol", lambda *_: None)
    broker.lies[API_VERSIONS] = lambda r, b: [b.honest(r, error_code=35)]
    with pytest.raises(UnavailableError, match="supports no version of ApiVersions"):
        Cluster.connect(config_of(broker.bootstrap, **SOME_PATIENCE), 300)
    assert broker.counts[API_VERSIONS] <= 2 * broker.connections


@pytest.mark.parametrize("code", [Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, Code.UNSUPPORTED_COMPRESSION_TYPE])
def test_a_codec_that_the_server_does_not_accept_is_named_with_its_option(broker: HostileBroker, code: Code) -> None:
    """Event Hubs accepts gzip only, and rejects the others with the first code."""
    cluster = patient(broker.bootstrap)
    broker.lies[PRODUCE] = lambda request, broker: [broker.failed(request, code)]
    rows = {0: pa.table({"value": [b"x"]})}
    with pytest.raises(InputError, match=r"t-0 rejected a batch .* lz4: set kafka\.compression\.type to gzip or none"):
        send(cluster, "t", rows, Codec.LZ4)
    with pytest.raises(InputError, match=rf"t-0 rejected a batch: .* \({code}\)"):
        send(cluster, "t", rows, Codec.NONE)
    cluster.close()


def test_a_server_that_hangs_up_on_a_large_batch_is_named_with_the_bytes_of_the_batch(broker: HostileBroker) -> None:
    """Event Hubs closes the connection of a request above 1,046,528 bytes, without an answer."""
    cluster = patient_cluster(broker.bootstrap)
    broker.lies[PRODUCE] = lambda _request, _broker: None
    with pytest.raises(UnavailableError, match=r"closed the connection; the batch has 1\d{6} bytes, .* rejects so"):
        send(cluster, "t", {0: pa.table({"value": [bytes(1_100_000)]})})
    cluster.close()
