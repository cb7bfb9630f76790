"""One question to one address of a registry, over the standard library's HTTP.

Rule: a question ends in time whatever the server does: a name that does not resolve, an answer that drips, one that
never ends. A redirect is not followed: the login would be sent to any server that the redirect names.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from keyedwm.core.text import words_of
from keyedwm.registry.options import Address

MOST_BYTES = 16 << 20
_MEDIA = "application/vnd.schemaregistry.v1+json"
_ACCEPTED = f"{_MEDIA}, application/json"
# OpenSSL's messages for an answer that is not TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")

_FAILURES: Mapping[type[Exception], str] = {
    socket.gaierror: "the name does not resolve",
    TimeoutError: "no answer in time",
    http.client.RemoteDisconnected: "it closed the connection without an answer",
}


@dataclass(frozen=True, slots=True)
class Question:
    """A request. path: the path below the address, with a slash before it. headers: may contain the login."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. body: at most MOST_BYTES + 1 bytes; a body above MOST_BYTES is cut off. secrets: of the question."""

    status: int
    media: str
    location: str
    body: bytes
    secrets: tuple[str, ...] = field(default=(), repr=False)


class NoReplyError(Exception):
    """No answer came. The message has the reason, and nothing of the question."""


class DistrustedError(NoReplyError):
    """The server's certificate is not accepted; asking again changes nothing."""


def exchange(address: Address, question: Question, context: ssl.SSLContext | None, limit_s: float) -> Answer:
    """Ask, and return the answer; raises NoReplyError. context: the TLS context of an https address."""
    answers: list[Answer] = []
    failures: list[Exception] = []
    sockets: list[socket.socket] = []
    over = threading.Event()

    def run() -> None:
        try:
            with _open(address, context if address.tls else None, limit_s, sockets, over) as connected:
                answers.append(_answer(connected, address, context, question))
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: of a socket closed meanwhile
            failures.append(error)

    # A look-up of a name, and an answer that comes byte by byte, have no time limit of their own.
    thread = threading.Thread(target=run, name=f"keyedwm: schema registry {address}", daemon=True)
    thread.start()
    thread.join(limit_s)
    if answers:
        return answers[0]
    if failures:
        raise _no_answer(failures[0]) from None
    over.set()
    for some in sockets:
        with suppress(OSError):  # it may be closed meanwhile
            some.shutdown(socket.SHUT_RDWR)
    raise NoReplyError(f"no whole answer within {_ms(limit_s)} ms")


def _open(
    address: Address,
    context: ssl.SSLContext | None,
    limit_s: float,
    sockets: list[socket.socket],
    over: threading.Event,
) -> socket.socket:
    """Connect. Each socket is added to `sockets` first: an HTTPConnection drops its socket, which must be closed."""
    connected = socket.create_connection((address.host, address.port), limit_s)
    sockets.append(connected)
    if context is not None:
        connected = context.wrap_socket(connected, server_hostname=address.host, do_handshake_on_connect=False)
        sockets.append(connected)
    try:
        if over.is_set():
            raise TimeoutError
        if isinstance(connected, ssl.SSLSocket):
            connected.do_handshake()
    except BaseException:
        connected.close()
        raise
    return connected


def _connection(address: Address, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    if address.tls:
        return http.client.HTTPSConnection(address.host, address.port, context=context)
    return http.client.HTTPConnection(address.host, address.port)


def _answer(connected: socket.socket, address: Address, context: ssl.SSLContext | None, question: Question) -> Answer:
    connection = _connection(address, context)
    connection.sock = connected
    headers = {"Accept": _ACCEPTED, "User-Agent": "keyedwm", "Connection": "close", **question.headers}
    if question.body is not None:
        headers["Content-Type"] = _MEDIA
    connection.request(question.method, address.path + question.path, question.body, headers)
    with connection.getresponse() as response:  # the response keeps the socket, which the connection drops
        body = response.read(MOST_BYTES + 1)
        media = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        return Answer(response.status, media, response.getheader("Location") or "", body)


def _no_answer(error: Exception) -> NoReplyError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return DistrustedError(error.verify_message)
    return NoReplyError(_reason(error))


def _reason(error: Exception) -> str:
    """Return why no answer came, as a sentence."""
    if isinstance(error, ssl.SSLError):
        no_tls = any(word in (error.reason or "") for word in _NO_TLS)
        return "it does not answer in TLS: is it http?" if no_tls else f"TLS failed ({error.reason})"
    for kind, reason in _FAILURES.items():
        if isinstance(error, kind):
            return reason
    if isinstance(error, OSError):
        return error.strerror or words_of(error)
    return f"its answer is no HTTP, or is cut off ({type(error).__name__})"


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
