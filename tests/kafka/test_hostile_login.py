"""A broker that lies before a client has logged in: no memory, no second try, no secret in a log."""

from __future__ import annotations

import base64
import logging
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.client.framing import LOGIN_BYTES
from keyedwm.kafka.client.network import _PlainTransport
from keyedwm.kafka.requests.cluster import Cluster
from tests.kafka.test_hostile import API_VERSIONS, METADATA, MOST_INT32, PATIENT, SOME_PATIENCE, config_of
from tests.support.hostile import HostileBroker, Lie, Request, hostile_broker, silent_listener

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
pytestmark = pytest.mark.starts


def test_a_long_frame_from_a_peer_without_a_login_takes_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    def announce(_request: Request, _broker: HostileBroker) -> Iterable[bytes]:
        return [struct.pack(">i", MOST_INT32)]

    with hostile_broker({API_VERSIONS: announce}) as broker:
        tracemalloc.start()
        try:
            with pytest.raises(UnavailableError):
                Cluster.connect(config_of(broker.bootstrap, **SOME_PATIENCE), 2_000)
            assert f"{MOST_INT32} bytes was announced, above {LOGIN_BYTES} before the login" in caplog.text
            assert tracemalloc.get_traced_memory()[1] < 16 * LOGIN_BYTES  # the log of the attempts is in it
        finally:
            tracemalloc.stop()


SILENT_AT = {"the versions": API_VERSIONS, "the mechanisms": SASL_HANDSHAKE, "the login": SASL_AUTHENTICATE,
             "the metadata": METADATA}  # fmt: skip
PLAIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
         "sasl_jaas_config": 'x required username="u" password="p";'}  # fmt: skip


@pytest.mark.parametrize("where", SILENT_AT)
def test_a_broker_that_falls_silent_while_connecting_is_given_up(where: str) -> None:
    with hostile_broker({SILENT_AT[where]: lambda _r, _b: []}) as broker, pytest.raises(UnavailableError):
        Cluster.connect(config_of(broker.bootstrap, **PLAIN), 500)


def test_a_rejected_login_is_reported_though_the_connection_ends_with_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka sends this answer and closes at once: a busy client receives both together."""
    receive = _PlainTransport._sock_recv

    def busy(transport: _PlainTransport) -> object:
        time.sleep(0.05)
        return receive(transport)

    def rejected(request: Request, broker: HostileBroker) -> Iterable[bytes]:
        yield broker.failed(request, 58)
        raise OSError("closed behind the answer")

    monkeypatch.setattr(_PlainTransport, "_sock_recv", busy)
    with hostile_broker({SASL_AUTHENTICATE: rejected}) as broker:
        with pytest.raises(AccessError, match="rejected the login with PLAIN"):
            Cluster.connect(config_of(broker.bootstrap, **(PLAIN | SOME_PATIENCE)), 2_000)
        assert broker.counts[SASL_AUTHENTICATE] == 1


def test_a_tls_handshake_with_a_silent_listener_ends() -> None:
    with silent_listener() as port, pytest.raises(UnavailableError, match="TLS handshake was not answered in time"):
        Cluster.connect(config_of(f"127.0.0.1:{port}", security_protocol="SSL", **SOME_PATIENCE), 2_000)


def scram(message: Callable[[str], bytes]) -> Lie:
    """A server that answers the first message of SCRAM, given the client's nonce, and the second with a signature."""

    def answer(request: Request, broker: HostileBroker) -> Iterable[bytes]:
        _, _, nonce = request.body.partition(b",r=")
        if nonce and b",p=" not in request.body:
            return [broker.honest(request, auth_bytes=message(nonce.split(b"\x00")[0].decode()))]
        return [broker.honest(request, auth_bytes=b"v=" + base64.b64encode(b"wrong"))]

    return answer


SCRAM = PLAIN | {"sasl_mechanism": "SCRAM-SHA-256"}


@pytest.mark.parametrize("iterations", [1, 4_095, 1_000_001])
def test_scram_with_too_few_or_too_many_iterations_is_refused_at_once(iterations: int) -> None:
    lie = scram(lambda nonce: f"r={nonce}x,s=c2FsdA==,i={iterations}".encode())
    with hostile_broker({SASL_AUTHENTICATE: lie}) as broker:
        with pytest.raises(AccessError, match=f"asks for {iterations} SCRAM iterations, 4096 to 1000000 are accepted"):
            Cluster.connect(config_of(broker.bootstrap, **(SCRAM | PATIENT)), 60_000)
        assert broker.counts[SASL_AUTHENTICATE] == 1


def test_a_wrong_server_signature_ends_the_login_at_once_with_the_reason() -> None:
    lie = scram(lambda nonce: f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    with hostile_broker({SASL_AUTHENTICATE: lie}) as broker:
        with pytest.raises(AccessError, match="signature is wrong, so it does not know the password") as caught:
            Cluster.connect(config_of(broker.bootstrap, **(SCRAM | PATIENT)), 60_000)
        assert broker.counts[SASL_AUTHENTICATE] == 2
    assert "nothing was lost" not in str(caught.value)


@pytest.mark.parametrize("message", [b"", b"r=x", b"\xff\xfe", b"r=other,s=c2FsdA==,i=4096", b"v=%%%"])
def test_an_unreadable_scram_message_ends_the_login_at_once(message: bytes) -> None:
    with hostile_broker({SASL_AUTHENTICATE: lambda r, b: [b.honest(r, auth_bytes=message)]}) as broker:
        with pytest.raises(AccessError, match="the login at"):
            Cluster.connect(config_of(broker.bootstrap, **(SCRAM | PATIENT)), 60_000)
        assert broker.counts[SASL_AUTHENTICATE] == 1


def test_a_broker_that_echoes_the_token_ends_the_login_and_gets_it_into_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    oauth = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
             "sasl_oauthbearer_token_provider": "tests.kafka.test_hostile_login:token"}  # fmt: skip
    echo = lambda r, b: [b.honest(r, auth_bytes=token().encode())]  # noqa: E731
    with hostile_broker({SASL_AUTHENTICATE: echo}) as broker:
        with pytest.raises(AccessError) as caught:
            Cluster.connect(config_of(broker.bootstrap, **(oauth | PATIENT)), 60_000)
        assert broker.counts[SASL_AUTHENTICATE] == 1
    assert token() not in caplog.text
    assert token() not in str(caught.value)


def test_a_broker_that_words_its_refusal_with_the_password_gets_it_into_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    message = "wrong password: hunter2hunter2"
    lie = lambda r, b: [b.honest(r, error_code=58, error_message=message)]  # noqa: E731
    with hostile_broker({SASL_AUTHENTICATE: lie}) as broker, pytest.raises(AccessError) as caught:
        Cluster.connect(config_of(broker.bootstrap, **(PLAIN | PATIENT)), 60_000)
    assert "hunter2" not in caplog.text
    assert "hunter2" not in str(caught.value)


def token() -> str:
    return "a-token-that-must-stay-secret"
