"""The simulated broker on a real socket: any client in any process can use it, as Spark's planner and workers do.

Rule: one lock serialises requests and calls of `append`, so no request sees a part of a call's records.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kafka.protocol.metadata import ApiVersionsResponse

from keyedwm.kafka.records.encode import encode
from keyedwm.kafka.records.record_columns import RecordColumns
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.log import Clock

_LOOPBACK, _NODE = "127.0.0.1", 1
# API key -> the newest version that the broker offers, as Kafka 4.1 does.
_VERSIONS = {
    0: 11, 1: 13, 2: 9, 3: 12, 8: 9, 9: 9, 10: 4, 16: 4, 18: 3, 22: 4, 23: 4, 24: 3, 25: 3, 26: 3, 28: 4, 32: 4, 65: 0,
    66: 1,
}  # fmt: skip
_MODULES = (kafka.protocol.metadata, kafka.protocol.consumer, kafka.protocol.producer, kafka.protocol.admin)
_REQUESTS = {
    one.API_KEY: one
    for module in _MODULES
    for name, one in vars(module).items()
    if name.endswith("Request") and getattr(one, "API_KEY", None) in _VERSIONS
}


class SimulatedKafka:
    """One simulated broker. bootstrap: its host:port."""

    def __init__(self, port: int, clock: Clock) -> None:
        self.bootstrap = f"{_LOOPBACK}:{port}"
        self._brokers = Brokers(clock, {_NODE: (_LOOPBACK, port)})
        self._lock = threading.Lock()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create an empty topic."""
        with self._lock:
            self._brokers.create(topic, partitions)

    def append(self, records: Mapping[tuple[str, int], RecordColumns]) -> None:
        """Append records to partitions; no request sees a part of them."""
        encoded = {tp: [batch.data for batch in encode(columns)] for tp, columns in records.items()}
        with self._lock:
            for tp, batches in encoded.items():
                for batch in batches:
                    self._brokers.logs[tp].append(batch, self._brokers.clock.now_ms)

    def answer(self, frame: bytes) -> bytes:
        """Return the framed response to a request. frame: the request without its length."""
        api, version, correlation_id = struct.unpack_from(">hhi", frame)
        if api == ApiVersionsResponse.API_KEY:
            response, version = _api_versions(), min(version, _VERSIONS[api])
        else:
            request = _REQUESTS[api].decode(frame, version=version, header=True)
            with self._lock:
                response = self._brokers.answer(_NODE, request)
        response.API_VERSION = version
        response.with_header(correlation_id=correlation_id)
        return bytes(response.encode(header=True, framed=True))


@contextmanager
def simulated_kafka(clock: Clock) -> Iterator[SimulatedKafka]:
    """Run a broker on the loopback address for the time of the `with`."""
    with socket.create_server((_LOOPBACK, 0)) as listener:
        broker = SimulatedKafka(listener.getsockname()[1], clock)
        peers: set[socket.socket] = set()
        accepting = threading.Thread(target=_accept, args=(broker, listener, peers), daemon=True)
        accepting.start()
        try:
            yield broker
        finally:
            _close_all([listener, *peers])
            accepting.join()


def _api_versions() -> ApiVersionsResponse:
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=api, min_version=0, max_version=newest)
        for api, newest in _VERSIONS.items()
    ]
    return ApiVersionsResponse(error_code=0, throttle_time_ms=0, api_keys=keys)


def _accept(broker: SimulatedKafka, listener: socket.socket, peers: set[socket.socket]) -> None:
    with suppress(OSError):  # the listener was closed
        while True:
            peer, _ = listener.accept()
            peers.add(peer)
            threading.Thread(target=_serve, args=(broker, peer, peers), daemon=True).start()


def _serve(broker: SimulatedKafka, peer: socket.socket, peers: set[socket.socket]) -> None:
    with suppress(OSError, EOFError), peer:
        while True:
            peer.sendall(broker.answer(_receive(peer, *struct.unpack(">i", _receive(peer, 4)))))
    peers.discard(peer)


def _receive(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _close_all(sockets: Iterable[Any]) -> None:
    for one in sockets:
        with suppress(OSError):  # closed by its peer
            one.shutdown(socket.SHUT_RDWR)
        one.close()
