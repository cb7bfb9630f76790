"""A proxy before a real server of Kafka's protocol whose rules see decoded requests and answer otherwise.

Rule: what has no rule passes byte for byte, but for addresses, which lead to the proxy, and for the versions offered,
which are those that kafka-python can decode. A rule that fails is an error of the test, raised when the proxy closes.
"""

from __future__ import annotations

import functools
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl

LOOPBACK = "127.0.0.1"
_MODULES = (
    kafka.protocol.metadata, kafka.protocol.consumer, kafka.protocol.producer, kafka.protocol.admin,
    kafka.protocol.sasl,
)  # fmt: skip
_START = struct.Struct(">hhi")  # of a request: API key, version, correlation id


class Instead(Enum):
    """What is sent instead of an answer: nothing, for ever, on this connection, or the connection's end."""

    SILENCE = "silence"
    CLOSE = "close"


# What answers a request: a message, the bytes of one without its length, or one of Instead.
Rule: TypeAlias = "Callable[[Exchange], Any]"
Place = tuple[str, int]


class _Api(NamedTuple):
    name: str
    request: Any
    response: Any

    def most(self, newest: int) -> int:
        """The newest version that can be decoded."""
        return min(newest, self.request.max_version, self.response.max_version)


@functools.cache
def _apis() -> dict[int, _Api]:
    apis = {}
    for module in _MODULES:
        for name, kind in vars(module).items():
            if name.endswith("Request") and isinstance(getattr(kind, "API_KEY", None), int):
                short = name.removesuffix("Request")
                apis[kind.API_KEY] = _Api(short, kind, getattr(module, f"{short}Response"))
    return apis


class Exchange:
    """One request on its way. node: the address of the broker that it goes to.

    frame: its bytes, without their length. forward: sends such bytes to the broker, and returns its answer.
    """

    def __init__(self, api: _Api, frame: bytes, node: Place, forward: Callable[[bytes], bytes]) -> None:
        self.api, self.node = api.name, node
        _, self.version, self.correlation_id = _START.unpack_from(frame)
        self._kinds, self.frame, self.forward = api, frame, forward

    @functools.cached_property
    def request(self) -> Any:
        """The request, decoded."""
        return self._kinds.request.decode(self.frame, version=self.version, header=True)

    @functools.cached_property
    def answer(self) -> Any:
        """The broker's answer, decoded; the broker is asked when this is first read."""
        return self._kinds.response.decode(self.forward(self.frame), version=self.version, header=True)

    def encoded(self, message: Any) -> bytes:
        """The bytes of an answer, without their length."""
        if isinstance(message, bytes):
            return message
        if message.API_VERSION is None:
            message.API_VERSION = self.version
        message.with_header(correlation_id=self.correlation_id)
        return bytes(message.encode(header=True))


def changed(change: Callable[[Any], object]) -> Rule:
    """The rule that changes a broker's answer in place."""

    def rule(exchange: Exchange) -> Any:
        change(exchange.answer)
        return exchange.answer

    return rule


def first(count: int, rule: Rule) -> Rule:
    """The rule for so many requests; those that follow are answered honestly."""
    left, lock = [count], threading.Lock()

    def limited(exchange: Exchange) -> Any:
        with lock:
            left[0] -= 1
            applies = left[0] >= 0
        return rule(exchange) if applies else exchange.answer

    return limited


class ProtocolProxy:
    """Listens for each broker that its clients are told of, each connection in a thread of its own.

    rules: by the name of the request, as "Fetch"; may be changed at any time. newest_versions: the newest version of a
    request, None to offer none. counts: requests that came.
    """

    def __init__(self, bootstrap: str) -> None:
        self.rules: dict[str, Rule] = {}
        self.newest_versions: dict[str, int | None] = {}
        self.counts: Counter[str] = Counter()
        self.failures: list[Exception] = []
        self._lock = threading.Lock()
        self._listeners: dict[Place, socket.socket] = {}
        self._open: set[socket.socket] = set()
        host, _, port = bootstrap.partition(":")
        self.bootstrap = "{}:{}".format(*self._place(host, int(port)))

    def drop(self) -> None:
        """Break every connection; clients connect anew."""
        with self._lock:
            connections = list(self._open)
        for one in connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Break every connection and listen no more."""
        for listener in self._listeners.values():
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.drop()

    def _place(self, host: str, port: int) -> Place:
        """Where clients reach a broker."""
        node = (host, port)
        with self._lock:
            if node not in self._listeners:
                listener = self._listeners[node] = socket.create_server((LOOPBACK, 0))
                threading.Thread(target=self._accept, args=(listener, node), daemon=True).start()
            return LOOPBACK, self._listeners[node].getsockname()[1]

    def _accept(self, listener: socket.socket, node: Place) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, node), daemon=True).start()

    def _serve(self, client: socket.socket, node: Place) -> None:
        with suppress(OSError), client, socket.create_connection(node) as broker:
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, broker}
            try:
                while self._pass_one(client, broker, node):
                    pass
            finally:
                with self._lock:
                    self._open -= {client, broker}

    def _pass_one(self, client: socket.socket, broker: socket.socket, node: Place) -> bool:
        """Answer one request; false ends the connection."""
        frame = _read(client)

        def forward(request: bytes) -> bytes:
            broker.sendall(struct.pack(">i", len(request)) + request)
            return _read(broker)

        api = _apis().get(_START.unpack_from(frame)[0])
        if api is None:
            _send(client, forward(frame))
            return True
        self.counts[api.name] += 1
        exchange = Exchange(api, frame, node, forward)
        rule = self.rules.get(api.name)
        try:
            answer = exchange.answer if rule is None and api.name in _REWRITTEN else rule and rule(exchange)
            if answer is None:
                answer = forward(frame)
            elif not isinstance(answer, Instead | bytes):
                _REWRITTEN.get(api.name, lambda *_: None)(self, answer)
                answer = exchange.encoded(answer)
        except OSError:
            raise
        except Exception as failure:  # noqa: BLE001 (raised when the proxy closes)
            self.failures.append(failure)
            return False
        if answer is Instead.SILENCE:
            client.recv(1)  # until the client gives up, or the proxy closes
            return False
        if answer is not Instead.CLOSE:
            _send(client, answer)
        return answer is not Instead.CLOSE

    def _limit(self, answer: Any) -> None:
        """Offer what can be decoded, and of that no more than is said."""
        api_keys = []
        for one in answer.api_keys:
            api = _apis().get(one.api_key)
            newest = one.max_version if api is None else api.most(one.max_version)
            limit = self.newest_versions.get(api.name, newest) if api else newest
            if limit is not None:
                one.max_version = min(newest, limit)
                api_keys.append(one)
        answer.api_keys = api_keys

    def _redirect(self, answer: Any) -> None:
        """Name the proxy's places instead of the brokers'."""
        many = getattr(answer, "brokers", None) or getattr(answer, "coordinators", None) or []
        for one in many or [answer]:
            if getattr(one, "host", ""):
                one.host, one.port = self._place(one.host, one.port)


_REWRITTEN: Mapping[str, Callable[[ProtocolProxy, Any], None]] = {
    "ApiVersions": ProtocolProxy._limit,
    "Metadata": ProtocolProxy._redirect,
    "FindCoordinator": ProtocolProxy._redirect,
    "DescribeCluster": ProtocolProxy._redirect,
}


def _read(end: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(end, 4))
    return _exactly(end, size)


def _exactly(end: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = end.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError
        data += part
    return bytes(data)


def _send(end: socket.socket, answer: bytes) -> None:
    end.sendall(struct.pack(">i", len(answer)) + answer)


@contextmanager
def protocol_proxy(bootstrap: str, **rules: Rule) -> Iterator[ProtocolProxy]:
    """A proxy before the brokers that this address leads to, with rules by request: `Fetch=...`."""
    proxy = ProtocolProxy(bootstrap)
    proxy.rules |= rules
    try:
        yield proxy
    finally:
        proxy.close()
    if proxy.failures:
        raise proxy.failures[0]
