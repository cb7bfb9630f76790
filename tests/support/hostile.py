"""A broker that lies as it is told: for tests of what the client does then, counted in requests and bytes.

Rule: it speaks the real wire format on a real socket. What is not scripted is answered honestly: one topic `t` with one
empty partition 0, led and coordinated by this broker.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kafka.protocol.api_header import ResponseClassRegistry

LOOPBACK = "127.0.0.1"
TOPIC, TOPIC_ID = "t", UUID(int=1)
# Newest version that is offered, by API key: those of Kafka 4.1 that the client uses.
VERSIONS = {
    0: 11, 1: 13, 2: 9, 3: 12, 8: 9, 9: 9, 10: 4, 17: 1, 18: 3, 19: 5, 20: 5, 22: 4, 23: 4, 24: 3, 25: 3, 26: 3, 28: 3,
    16: 4, 32: 2, 37: 3, 36: 1, 65: 0, 66: 1,
}  # fmt: skip


class Request(NamedTuple):
    """One request as it came: which API, its version, the correlation id, and the bytes after the header's start."""

    api: int
    version: int
    correlation_id: int
    body: bytes


# What is sent instead: whole frames or any bytes; None closes the connection, an empty sequence is silence.
Lie = Callable[[Request, "HostileBroker"], Iterable[bytes] | None]


@dataclass
class HostileBroker:
    """A listening broker; `lies` by API key, `counts` of requests by API key, and the bytes that went each way."""

    port: int
    lies: dict[int, Lie] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    connections: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    cluster_id: str = "one"

    @property
    def bootstrap(self) -> str:
        """Its host:port."""
        return f"{LOOPBACK}:{self.port}"

    def fields(self, api: int) -> dict[str, Any]:
        """The fields of a truthful answer."""
        return _ANSWERS[api](self)

    def honest(self, request: Request, **changes: Any) -> bytes:
        """The frame of a truthful answer; `changes` replace fields of its top level."""
        return framed(request, {**self.fields(request.api), **changes})

    def failed(self, request: Request, code: int) -> bytes:
        """The frame of an answer that has an error code wherever it can have one."""
        return framed(request, _with_code(self.fields(request.api), code))

    def answer(self, request: Request) -> Iterable[bytes] | None:
        """What is sent for a request."""
        self.counts[request.api] += 1
        lie = self.lies.get(request.api)
        return [self.honest(request)] if lie is None else lie(request, self)


def _with_code(value: Any, code: int) -> Any:
    if isinstance(value, list):
        return [_with_code(one, code) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: code if name.endswith("error_code") else _with_code(of, code) for name, of in value.items()}


def framed(request: Request, fields: Mapping[str, Any]) -> bytes:
    """Encode an answer from plain values: dictionaries for structures, lists for arrays."""
    known = ResponseClassRegistry._response_class_registry[request.api]
    message = _built(known[request.version], fields)
    message.API_VERSION = request.version
    message.with_header(correlation_id=request.correlation_id)
    return bytes(message.encode(header=True, framed=True))


def _built(kind: Any, fields: Mapping[str, Any]) -> Any:
    of = kind._struct.fields
    return kind(**{name: _value(of[name], value) for name, value in fields.items() if name in of})


def _value(kind: Any, value: Any) -> Any:
    structures = isinstance(value, list) and value and isinstance(value[0], Mapping)
    return [_built(kind.data_class, one) for one in value] if structures else value


_PARTITION = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [1],
              "isr_nodes": [1], "offline_replicas": []}  # fmt: skip
_ANSWERS: dict[int, Callable[[HostileBroker], dict[str, Any]]] = {
    0: lambda _: {"responses": [{"name": TOPIC, "partition_responses": [
        {"index": 0, "error_code": 0, "base_offset": 0, "log_append_time_ms": -1, "log_start_offset": 0}]}],
        "throttle_time_ms": 0},
    1: lambda _: {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": [
        {"topic": TOPIC, "topic_id": TOPIC_ID, "partitions": [
            {"partition_index": 0, "error_code": 0, "high_watermark": 0, "last_stable_offset": 0, "log_start_offset": 0,
             "aborted_transactions": [], "preferred_read_replica": -1, "records": b""}]}]},
    2: lambda _: {"throttle_time_ms": 0, "topics": [{"name": TOPIC, "partitions": [
        {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 0, "leader_epoch": 0}]}]},
    3: lambda broker: {"throttle_time_ms": 0, "cluster_id": broker.cluster_id, "controller_id": 1,
        "brokers": [{"node_id": 1, "host": LOOPBACK, "port": broker.port, "rack": None}],
        "topics": [{"error_code": 0, "name": TOPIC, "topic_id": TOPIC_ID, "is_internal": False,
                    "partitions": [_PARTITION]}]},
    8: lambda _: {"throttle_time_ms": 0, "topics": [{"name": TOPIC, "partitions": [
        {"partition_index": 0, "error_code": 0}]}]},
    9: lambda _: {"throttle_time_ms": 0, "groups": [{"group_id": "g", "error_code": 0, "topics": [
        {"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1,
                                        "metadata": "", "error_code": 0}]}]}]},
    10: lambda broker: {"throttle_time_ms": 0, "coordinators": [
        {"key": "k", "node_id": 1, "host": LOOPBACK, "port": broker.port, "error_code": 0, "error_message": None}]},
    17: lambda _: {"error_code": 0, "mechanisms": ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]},
    18: lambda _: {"error_code": 0, "throttle_time_ms": 0, "api_keys": [
        {"api_key": api, "min_version": 0, "max_version": newest} for api, newest in VERSIONS.items()]},
    22: lambda _: {"throttle_time_ms": 0, "error_code": 0, "producer_id": 1, "producer_epoch": 0},
    23: lambda _: {"throttle_time_ms": 0, "topics": [{"topic": TOPIC, "partitions": [
        {"error_code": 0, "partition": 0, "leader_epoch": 0, "end_offset": 0}]}]},
    24: lambda _: {"throttle_time_ms": 0, "results_by_topic_v3_and_below": [
        {"name": TOPIC, "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}]},
    25: lambda _: {"throttle_time_ms": 0, "error_code": 0},
    26: lambda _: {"throttle_time_ms": 0, "error_code": 0},
    28: lambda _: {"throttle_time_ms": 0, "topics": [{"name": TOPIC, "partitions": [
        {"partition_index": 0, "error_code": 0}]}]},
    32: lambda _: {"throttle_time_ms": 0, "results": [
        {"error_code": 0, "error_message": None, "resource_type": 4, "resource_name": "1", "configs": []}]},
    36: lambda _: {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0},
    65: lambda _: {"throttle_time_ms": 0, "transaction_states": [
        {"error_code": 0, "transactional_id": "x", "transaction_state": "Ongoing", "transaction_timeout_ms": 1,
         "transaction_start_time_ms": 0, "producer_id": 1, "producer_epoch": 0, "topics": []}]},
    16: lambda _: {"throttle_time_ms": 0, "error_code": 0, "groups": []},
    66: lambda _: {"throttle_time_ms": 0, "error_code": 0, "unknown_state_filters": [], "transaction_states": []},
}  # fmt: skip


def _read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = peer.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionError
        data += part
    return data


def _serve(broker: HostileBroker, peer: socket.socket) -> None:
    with suppress(OSError), peer:
        while True:
            frame = _read(peer, struct.unpack(">i", _read(peer, 4))[0])
            broker.received_bytes += len(frame) + 4
            api, version, correlation_id = struct.unpack_from(">hhi", frame)
            answer = broker.answer(Request(api, version, correlation_id, frame[8:]))
            if answer is None:
                return
            for part in answer:
                broker.sent_bytes += len(part)
                peer.sendall(part)


def _accept(broker: HostileBroker, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        broker.connections += 1
        if tls is not None:
            try:
                peer = tls.wrap_socket(peer, server_side=True)
            except OSError:  # the client does not trust this broker
                continue
        threading.Thread(target=_serve, args=(broker, peer), daemon=True).start()


@contextmanager
def hostile_broker(
    lies: Mapping[int, Lie] | None = None, *, tls: ssl.SSLContext | None = None
) -> Iterator[HostileBroker]:
    """A broker on the loopback, for the time of the `with`."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        broker = HostileBroker(listener.getsockname()[1], dict(lies or {}))
        threading.Thread(target=_accept, args=(broker, listener, tls), daemon=True).start()
        yield broker


@contextmanager
def silent_listener() -> Iterator[int]:
    """A port that takes connections and never says a word; gives its number."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]
