"""Bytes on their way from a socket to the parser: with TLS and without, nothing stays behind."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka.errors as wire_errors
import pytest

from keyedwm.kafka.client.network import _PlainTransport, _TlsTransport
from tests.kafka.test_frames import ANSWERS, answer_bytes, parser
from tests.secured import certificates

PATIENCE_S = 10
RECORD_BYTES = 16 << 10  # of TLS


class Wire:
    """A transport whose peer sends some bytes, in pieces; `answers` takes them as the event loop does."""

    def __init__(self, transport: Any, peer: socket.socket) -> None:
        self.transport, self._peer = transport, peer
        self.calls: list[int] = []
        self.soon: list[Any] = []
        transport._net = SimpleNamespace(call_soon=self.soon.append)
        transport._protocol = SimpleNamespace(parser=parser())

    def send(self, stream_bytes: bytes, piece: int) -> None:
        def sending() -> None:
            for at in range(0, len(stream_bytes), piece):
                self._peer.sendall(stream_bytes[at : at + piece])

        threading.Thread(target=sending, daemon=True).start()

    def answers(self, count: int) -> list[tuple[int, Any]]:
        answers: list[tuple[int, Any]] = []
        while len(answers) < count:
            readable, _, _ = select.select([self.transport._sock], [], [], PATIENCE_S)
            assert readable, f"{len(answers)} of {count} answers came, and the loop would wait for ever"
            received_bytes, failure = self.transport._sock_recv()
            assert failure is None
            self.calls.append(len(received_bytes))
            answers += self.transport._protocol.parser.receive_bytes(received_bytes)
        return answers


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    certificates(directory)
    return directory


@pytest.fixture(params=["plain", "tls"])
def wire(request: pytest.FixtureRequest, home: Path) -> Iterator[Wire]:
    own_socket, peer_socket = socket.socketpair()
    with own_socket, peer_socket:
        if request.param == "plain":
            own_socket.settimeout(0)
            yield Wire(_PlainTransport(None, own_socket), peer_socket)
            return
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(home / "both.pem")
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        transport = _TlsTransport(None, own_socket, ssl_context=client)
        wrapped: list[ssl.SSLSocket] = []
        shaking = threading.Thread(target=lambda: wrapped.append(server.wrap_socket(peer_socket, server_side=True)))
        shaking.start()
        transport._sock.do_handshake()
        shaking.join()
        transport._sock.settimeout(0)
        with wrapped[0] as peer, transport._sock:
            yield Wire(transport, peer)


@pytest.mark.parametrize("most", [1_000, 20_000, 1 << 20])
@pytest.mark.parametrize("direct", [1_500, 1 << 20])
@pytest.mark.parametrize("piece", [700, RECORD_BYTES, 50_000])
def test_answers_come_whole_however_much_is_taken_at_a_time(wire: Wire, most: int, direct: int, piece: int) -> None:
    wire.transport.most_bytes, wire.transport.most_direct_bytes = most, direct
    wire.send(answer_bytes(), piece)
    answers = wire.answers(len(ANSWERS))
    assert answers == parser().receive_bytes(answer_bytes())
    # The rest of the long answer is not passed on, unless a call takes more than all of it.
    passed_on = sum(wire.calls)
    assert (passed_on == len(answer_bytes())) is (most == 1 << 20), passed_on


def test_a_long_answer_is_returned_though_nothing_comes_behind_it(wire: Wire) -> None:
    wire.transport.most_bytes = 1_000
    end, long = 0, 3
    for _ in ANSWERS[: long + 1]:
        end += 4 + int.from_bytes(answer_bytes()[end : end + 4], "big")
    wire.send(answer_bytes()[:end], RECORD_BYTES)
    assert [correlation_id for correlation_id, _ in wire.answers(long + 1)] == [0, 1, 2, long]


def test_the_rest_of_a_tls_record_is_received_though_the_socket_is_empty(wire: Wire) -> None:
    """A record is decrypted as a whole: its rest is in no socket, so nothing would ever wake the loop for it."""
    wire.transport.most_bytes = 8
    wire._peer.sendall(answer_bytes()[:500])  # one record, in which three answers lie
    assert [correlation_id for correlation_id, _ in wire.answers(3)] == [0, 1, 2]


def test_the_end_of_a_stream_that_comes_with_bytes_is_told_behind_them(wire: Wire) -> None:
    """A peer that ends TLS may leave the socket open, which then never wakes the loop."""
    wire._peer.sendall(answer_bytes()[:10])
    if isinstance(wire._peer, ssl.SSLSocket):
        wire._peer.settimeout(0)
        with pytest.raises(ssl.SSLWantReadError):  # the end is sent, and ours is not there yet
            wire._peer.unwrap()
    else:
        wire._peer.close()
    assert select.select([wire.transport._sock], [], [], PATIENCE_S)[0]
    received_bytes, failure = wire.transport._sock_recv()
    assert (bytes(received_bytes), failure) == (answer_bytes()[:10], None)
    aborted: list[Any] = []
    wire.transport.abort = aborted.append
    for step in wire.soon:  # a step can add another one
        step()
    assert [type(one) for one in aborted] == [wire_errors.KafkaConnectionError]


def test_the_end_of_a_stream_alone_is_a_failure(wire: Wire) -> None:
    wire._peer.close()
    assert select.select([wire.transport._sock], [], [], PATIENCE_S)[0]
    received_bytes, failure = wire.transport._sock_recv()
    assert bytes(received_bytes) == b""
    assert isinstance(failure, wire_errors.KafkaConnectionError)
    assert wire.soon == []
