"""The network between a client and a server of ours: cut, half-open, healed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from keyedwm.testing.local import free_ports
from tests.support.proxy import LOOPBACK, Link, Proxy, broker_behind_proxy
from tests.tools import PATIENCE_S, wait_until

pytestmark = pytest.mark.starts

SOON_S = 0.2


class Echo:
    """A server that gives back what it gets, and remembers it."""

    def __init__(self, port: int) -> None:
        self.received = b""
        self._server = socket.create_server((LOOPBACK, port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1024):
                    self.received += data
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def network() -> Iterator[tuple[Echo, Proxy, int]]:
    advertised, behind = free_ports(2)
    with closing(Echo(behind)) as server, closing(Proxy(advertised, behind)) as proxy:
        yield server, proxy, advertised


def _client(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)


def test_an_open_network_passes_both_ways(network):
    _, _, port = network
    with _client(port) as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"


def test_a_cut_resets_old_and_new_connections_until_it_is_healed(network):
    _, proxy, port = network
    with _client(port) as old:
        old.sendall(b"a")
        assert old.recv(10) == b"a"
        proxy.set(Link.REFUSED)
        with pytest.raises(ConnectionResetError):
            old.recv(10)
    with pytest.raises(ConnectionResetError), _client(port) as new:
        new.recv(10)
    proxy.set(Link.OPEN)
    with _client(port) as healed:
        healed.sendall(b"b")
        assert healed.recv(10) == b"b"


@pytest.mark.parametrize("link", [Link.SILENT, Link.MUTE])
def test_a_half_open_network_holds_bytes_back_and_loses_none(network, link):
    server, proxy, port = network
    with _client(port) as client:
        client.sendall(b"a")
        assert client.recv(10) == b"a"
        proxy.set(link)
        client.sendall(b"b")
        client.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            client.recv(10)
        # The server heard it only where requests pass.
        if link is Link.MUTE:
            wait_until(lambda: server.received == b"ab", "the server heard it")
        assert server.received == (b"ab" if link is Link.MUTE else b"a")
        client.settimeout(PATIENCE_S)
        proxy.set(Link.OPEN)
        assert client.recv(10) == b"b"


def test_clients_of_a_broker_behind_a_proxy_are_told_the_proxy(new_topic):
    from keyedwm.core.errors import UnavailableError
    from keyedwm.kafka.client.config import ClientConfig
    from keyedwm.kafka.requests.cluster import Cluster
    from tests.tools import Record, make_topic, produce

    topic = new_topic()
    with broker_behind_proxy() as (broker, proxy):
        make_topic(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, [Record(0, 0)])
        options = {"bootstrap.servers": proxy.bootstrap, "default.api.timeout.ms": "5000"}
        with closing(Cluster.connect(ClientConfig.from_options(options))) as cluster:
            assert cluster.latest([(topic, 0)])[topic, 0] == 1
            proxy.set(Link.REFUSED)
            with pytest.raises(UnavailableError):
                cluster.latest([(topic, 0)])
            produce(broker.bootstrap, topic, [Record(0, 0)])  # past the proxy
            proxy.set(Link.OPEN)
            assert cluster.latest([(topic, 0)])[topic, 0] == 2
