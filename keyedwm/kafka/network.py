"""What kafka-python's connection manager leaves to be wished for.

Rule: this file and `connection` are the only ones that touch kafka-python's network internals, which move between its
versions.
"""

from __future__ import annotations

import logging
import socket
import ssl
from typing import Any

import kafka.errors as wire_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from keyedwm.kafka.config import ClientConfig

MAX_ANSWER_BYTES = 2**31 - 1
RECEIVE_BYTES = 256 << 10
LOGIN_REFUSED = (wire_errors.SaslAuthenticationFailedError, wire_errors.UnsupportedSaslMechanismError)

# At debug level these two write whole requests into the log, the login with its password among them.
for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).addFilter(lambda record: record.levelno > logging.DEBUG)


class _Receiving:
    """Takes more than 4 KiB a call, and hands out what came before the end of the stream: a refused login says why."""

    _sock: socket.socket

    def _sock_recv(self) -> tuple[bytes, wire_errors.KafkaConnectionError | None]:
        parts: list[bytes] = []
        failure = None
        try:
            while failure is None:
                parts.append(self._sock.recv(RECEIVE_BYTES))
                failure = None if parts[-1] else wire_errors.KafkaConnectionError("the broker closed the connection")
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass  # that is all for now
        except OSError as error:
            failure = wire_errors.KafkaConnectionError(error)
        data = b"".join(parts)
        return data, None if data else failure


class _PlainTransport(_Receiving, KafkaTCPTransport):
    pass


class _TlsTransport(_Receiving, KafkaSSLTransport):
    pass


class Manager(KafkaConnectionManager):
    """Closes the sockets of failed attempts, and remembers why the last one failed while connecting."""

    last_failure: str | None = None

    _login_refused: BaseException | None = None

    def get_connection(self, node_id: Any, **how: Any) -> Any:
        """A connection to a broker; while connecting a refused login is final, as repeating it can lock the account."""
        if self._login_refused and self.cluster.is_bootstrap(node_id):
            raise self._login_refused
        connection = super().get_connection(node_id, **how)
        if self.cluster.is_bootstrap(node_id):
            connection.init_future.add_errback(self._remember)
        return connection

    def _remember(self, error: BaseException) -> None:
        self.last_failure = str(error)
        if isinstance(error, LOGIN_REFUSED):
            self._login_refused = error

    def drop_connections(self) -> None:
        """Close all connections, in the loop's thread; the next request opens a new one."""
        for connection in list(self._conns.values()):
            connection.close(wire_errors.KafkaConnectionError("given up: no answer came"))

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> KafkaTCPTransport:
        dialer = KafkaNetSocket()
        self.last_failure = f"{node.host}: the name does not resolve"
        for family, kind, protocol, _, address in dialer.dns_lookup(node.host, node.port):
            try:
                return await self._dial(dialer, dialer.socket(family, kind, protocol), address, node.host, timeout_at)
            except (OSError, wire_errors.KafkaError) as error:  # noqa: PERF203 (a handful of addresses)
                self.last_failure = f"{node.host}:{node.port}: {error}"
        raise wire_errors.KafkaConnectionError(self.last_failure)

    async def _dial(
        self, dialer: KafkaNetSocket, sock: socket.socket, address: Any, host: str, timeout_at: float | None
    ) -> KafkaTCPTransport:
        opened: KafkaTCPTransport | None = None
        ready = False
        try:
            sock.settimeout(0)
            for option in self.config["socket_options"]:
                sock.setsockopt(*option)
            await dialer.sock_connect(self._net, sock, address, timeout_at=timeout_at)
            if self.ssl_enabled:
                opened = _TlsTransport(self._net, sock, host=host, ssl_context=self.config["ssl_context"])
            else:
                opened = _PlainTransport(self._net, sock, host=host)
            await opened.handshake()
            ready = True
            return opened
        finally:
            if not ready:
                (opened or sock).close()


def manager_settings(config: ClientConfig) -> dict[str, Any]:
    """The configuration as kafka-python takes it; raises OptionError for key and trust stores that cannot be read."""
    return {
        "bootstrap_servers": list(config.bootstrap_servers),
        "client_id": config.client_id,
        "receive_message_max_bytes": MAX_ANSWER_BYTES,
        "request_timeout_ms": config.request_timeout_ms,
        "socket_connection_setup_timeout_ms": config.connect_timeout_ms,
        # Who sends, limits itself; a connection that is full would refuse what others send meanwhile.
        "max_in_flight_requests_per_connection": 1_000,
        "reconnect_backoff_ms": config.reconnect_backoff_ms,
        "reconnect_backoff_max_ms": config.reconnect_backoff_max_ms,
        "connections_max_idle_ms": config.idle_connection_ms,
        "metadata_max_age_ms": max(config.metadata_age_ms, 1_000),
        **config.security.as_kafka_python(),
    }
