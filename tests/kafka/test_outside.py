"""Names, tokens and tickets from services that never answer: each wait ends, and holds up nobody else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import kafka.errors as wire_errors
import pytest
from kafka.net.inet import KafkaNetSocket

from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.kafka.client.blocking_calls import BlockingCalls, DidNotAnswerError
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.client.network import _TlsTransport
from keyedwm.kafka.requests.cluster import Cluster
from tests.kafka.test_hostile import (
    API_VERSIONS,
    METADATA,
    PATIENT,
    config_of,
    connected,
)
from tests.kafka.test_hostile_login import PLAIN, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.hostile import TOPIC_ID, HostileBroker, hostile_broker

pytestmark = pytest.mark.starts
HERE = "tests.kafka.test_outside"


class Silence:
    """Calls that do not return before the test ends."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.calls: Counter[str] = Counter()

    def __call__(self, who: str) -> None:
        self.calls[who] += 1
        assert self.over.wait(300)


SILENCE = Silence()


def silent_token() -> str:
    SILENCE("a token")
    return "a-token"


@pytest.fixture(autouse=True)
def silence() -> Iterator[Silence]:
    SILENCE.__init__()  # type: ignore[misc]
    yield SILENCE
    SILENCE.over.set()


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with hostile_broker() as broker:
        yield broker


@pytest.fixture
def silent_names(monkeypatch: pytest.MonkeyPatch, silence: Silence) -> None:
    """A resolver that never answers for names under `.silent`."""
    honest = socket.getaddrinfo

    def lookup(host: Any, *rest: Any, **kwargs: Any) -> Any:
        if str(host).endswith(".silent"):
            silence(str(host))
        return honest(host, *rest, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


# Long enough for a busy machine to get as far as what never answers, and for a second attempt.
WAITED = {"default_api_timeout_ms": "4000", "socket_connection_setup_timeout_ms": "3000",
          "request_timeout_ms": "3000"}  # fmt: skip
OAUTH = WAITED | {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
         "sasl_oauthbearer_token_provider": f"{HERE}:silent_token"}  # fmt: skip
KERBEROS = WAITED | {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


class FakeGSSError(Exception):
    """An error of the library `gssapi`, with the code that Kerberos gave."""

    maj_code = 851968

    def __init__(self, min_code: int) -> None:
        super().__init__(min_code)
        self.min_code = min_code

    def get_all_statuses(self, code: int, *, is_maj: bool) -> list[str]:
        return [f"status {code}", "of GSSAPI" if is_maj else "of Kerberos"]


def kerberos(silent: str = "", error: int = 0) -> Any:
    """A stand-in for the library `gssapi`, one of whose calls does not return, or whose login fails with `error`."""

    def answers(call: str, value: Any) -> Any:
        if call == silent:
            SILENCE("a ticket")
        if error:
            raise FakeGSSError(error)
        return value

    name = SimpleNamespace(canonicalize=lambda _kind: answers("a name", "name"))
    context = SimpleNamespace(step=lambda _token: answers("a step", b"token"), complete=False)
    return SimpleNamespace(
        Name=lambda *_, **_kwargs: name,
        SecurityContext=lambda **_: context,
        NameType=SimpleNamespace(hostbased_service=1),
        MechType=SimpleNamespace(kerberos=1),
        exceptions=SimpleNamespace(GSSError=FakeGSSError),
    )


@pytest.mark.parametrize(
    ("library", "kind", "sentence"),
    [
        (
            None,
            AccessError,
            r"GSSAPI needs the package gssapi, .*pip install 'keyedwm\[kerberos\]', on the driver and on",
        ),
        (
            kerberos(error=2529639053),
            AccessError,
            "for the service kafka@127.0.0.1: status 2529639053, of Kerberos: check",
        ),
        (
            kerberos(error=2529639068),
            UnavailableError,
            "for the service kafka@127.0.0.1: status 2529639068, of Kerberos",
        ),
    ],
    ids=["no package", "no ticket", "no KDC"],
)
def test_a_kerberos_login_that_fails_is_one_sentence_and_only_a_silent_kdc_is_asked_again(
    broker: HostileBroker, library: Any, kind: type[KeyedwmError], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", library)
    broker.lies[SASL_HANDSHAKE] = lambda r, b: [b.honest(r, mechanisms=["GSSAPI"])]
    with pytest.raises(kind, match=sentence):
        Cluster.connect(config_of(broker.bootstrap, **KERBEROS), 1_500)
    assert (broker.counts[SASL_HANDSHAKE] == 1) is (kind is AccessError)


@pytest.mark.usefixtures("silent_names")
def test_a_name_that_is_never_looked_up_is_given_up_and_asked_for_once(silence: Silence) -> None:
    with pytest.raises(UnavailableError, match=r"the lookup of the name kafka\.silent did not answer in time"):
        Cluster.connect(config_of("kafka.silent:9092", **WAITED), 5_000)
    assert silence.calls == {"kafka.silent": 1}


@pytest.mark.usefixtures("silent_names")
def test_a_name_that_is_never_looked_up_holds_up_nobody_else(broker: HostileBroker) -> None:
    patient = {"default_api_timeout_ms": "60000"}
    cluster = Cluster.connect(config_of(f"kafka.silent:9092,{broker.bootstrap}", **patient), 60_000)
    assert cluster.topics() == ("t",)
    cluster.close()


@pytest.mark.usefixtures("silent_names")
def test_a_broker_whose_name_is_never_looked_up_is_given_up_later(broker: HostileBroker, silence: Silence) -> None:
    cluster = connected(broker.bootstrap)
    there = {"error_code": 0, "partition_index": 0, "leader_id": 2, "leader_epoch": 1, "replica_nodes": [2],
             "isr_nodes": [2], "offline_replicas": []}  # fmt: skip
    topics = [{"error_code": 0, "name": "t", "topic_id": TOPIC_ID, "is_internal": False, "partitions": [there]}]
    brokers = [{"node_id": 1, "host": "127.0.0.1", "port": broker.port, "rack": None},
               {"node_id": 2, "host": "moved.silent", "port": 9092, "rack": None}]  # fmt: skip
    broker.lies[METADATA] = lambda r, b: [b.honest(r, brokers=brokers, topics=topics)]
    with pytest.raises(UnavailableError):
        cluster.latest([("t", 0)])
    assert silence.calls == {"moved.silent": 1}
    cluster.close()


def test_a_token_provider_that_never_returns_is_given_up_and_named(broker: HostileBroker, silence: Silence) -> None:
    with pytest.raises(UnavailableError, match=rf"the token provider {HERE}:silent_token did not answer in time"):
        Cluster.connect(config_of(broker.bootstrap, **OAUTH), 5_000)
    assert silence.calls == {"a token": 1}
    assert broker.counts[SASL_AUTHENTICATE] == 0


@pytest.mark.parametrize("silent", ["a name", "a step"])
def test_a_kerberos_library_that_never_returns_is_given_up_and_named(
    broker: HostileBroker, silence: Silence, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", kerberos(silent))
    broker.lies[SASL_HANDSHAKE] = lambda r, b: [b.honest(r, mechanisms=["GSSAPI"])]
    with pytest.raises(UnavailableError, match=r"Kerberos for 127\.0\.0\.1 did not answer in time"):
        Cluster.connect(config_of(broker.bootstrap, **KERBEROS), 5_000)
    assert silence.calls == {"a ticket": 1}


def test_what_a_call_raises_in_its_thread_is_raised_where_it_was_waited_for(broker: HostileBroker) -> None:
    failing = OAUTH | {"sasl_oauthbearer_token_provider": "tests.tokens:failing"}
    with pytest.raises(AccessError, match=r"the token provider tests\.tokens:failing raised ConnectionError"):
        Cluster.connect(config_of(broker.bootstrap, **failing), 5_000)


@pytest.mark.parametrize("options", [PLAIN, OAUTH | {"sasl_oauthbearer_token_provider": "tests.tokens:good"}])
def test_a_login_whose_steps_ran_in_threads_is_one_as_before(broker: HostileBroker, options: dict[str, str]) -> None:
    cluster = Cluster.connect(config_of(broker.bootstrap, **(options | PATIENT)), 30_000)
    assert cluster.topics() == ("t",)
    assert broker.counts[SASL_AUTHENTICATE] == 2  # the bootstrap's connection, and the broker's own
    cluster.close()


@pytest.mark.parametrize(("left_s", "names_it"), [(60, True), (0.01, False)])
def test_a_call_is_blamed_only_if_it_had_time_to_answer(left_s: float, names_it: bool) -> None:
    class NobodyAnswers:
        closed = True

        async def wait_for(self, _ended: object, _left_ms: float) -> None:
            raise wire_errors.KafkaTimeoutError

    outside = BlockingCalls(NobodyAnswers())  # type: ignore[arg-type]
    with pytest.raises(wire_errors.KafkaTimeoutError, match="a lookup") as error:
        asyncio.run(outside.call("a lookup", lambda: None, time.monotonic() + left_s))
    assert isinstance(error.value, DidNotAnswerError) is names_it


@pytest.mark.parametrize("then", ["no connection", "no answer"])
def test_a_last_attempt_without_time_does_not_hide_why_the_others_failed(
    broker: HostileBroker, silence: Silence, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", kerberos("a name"))
    broker.lies[SASL_HANDSHAKE] = lambda r, b: [b.honest(r, mechanisms=["GSSAPI"])]
    honest = KafkaNetSocket.sock_connect

    async def only_once(self: KafkaNetSocket, *arguments: Any, **how: Any) -> Any:
        if silence.calls:
            raise wire_errors.KafkaTimeoutError("Connection timed out")
        return await honest(self, *arguments, **how)

    if then == "no connection":
        monkeypatch.setattr(KafkaNetSocket, "sock_connect", only_once)
    else:
        broker.lies[API_VERSIONS] = lambda r, b: [] if silence.calls else [b.honest(r)]
    with pytest.raises(UnavailableError, match=r"Kerberos for 127\.0\.0\.1 did not answer in time"):
        Cluster.connect(config_of(broker.bootstrap, **KERBEROS), 5_000)


@pytest.mark.parametrize(("left_s", "blamed"), [(60, "a port without TLS"), (0.01, "no time was left")])
def test_a_tls_handshake_is_blamed_only_if_it_had_time_to_end(left_s: float, blamed: str) -> None:
    async def never(*_: object) -> None:
        raise wire_errors.KafkaTimeoutError

    def waits() -> None:
        raise ssl.SSLWantReadError

    peer = SimpleNamespace(_sock=SimpleNamespace(do_handshake=waits), _net=SimpleNamespace(wait_read=never))
    peer._shake_hands = lambda timeout_at: _TlsTransport._shake_hands(peer, timeout_at)  # type: ignore[arg-type]
    with pytest.raises(wire_errors.KafkaError, match=blamed):
        asyncio.run(_TlsTransport.handshake_until(peer, time.monotonic() + left_s))  # type: ignore[arg-type]
