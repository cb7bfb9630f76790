"""kafka-python's connection manager and transports, with deadlines, limits and errors that name their cause.

Rule: this file and `connection` are the only ones that touch kafka-python's network internals, which move between its
versions.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import kafka.errors as wire_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from keyedwm.kafka.client.blocking_calls import FAIR_MS, BlockingCalls, DidNotAnswerError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import CertificateError
from keyedwm.kafka.client.framing import LimitedConnection

# The most bytes from one socket at a time, copied while they are in a core's cache. A peer that never pauses must not
# fill the memory before its data is checked.
_RECEIVE_BYTES = 512 << 10
# The same limit for the rest of a longer answer, which is received into its own room.
_DIRECT_BYTES = 4 << 20
_TLS_RECORD_BYTES = 16 << 10
_NO_HANDSHAKE = "the TLS handshake was not answered in time; is it a port without TLS?"
_TIMED_OUT = (wire_errors.KafkaTimeoutError, wire_errors.RequestTimedOutError)
LOGIN_REFUSED = (wire_errors.SaslAuthenticationFailedError, wire_errors.UnsupportedSaslMechanismError)


class _Received(threading.local):
    """The receive buffer, one for all connections of a loop."""

    def __init__(self) -> None:
        self.space = memoryview(bytearray(_RECEIVE_BYTES + _TLS_RECORD_BYTES))


_received = _Received()


class _Receiving:
    """Receives more than 4 KiB a call, and returns the bytes before the end of the stream, which may give its reason.

    The rest of a long answer is received into its own room. The next call in this thread overwrites the returned bytes,
    so the parser copies them. most_bytes, most_direct_bytes: the most bytes of a call, for either kind.
    """

    most_bytes, most_direct_bytes = _RECEIVE_BYTES, _DIRECT_BYTES

    _net: Any
    _sock: Any
    _protocol: Any
    abort: Callable[..., Any]

    def _sock_recv(self) -> tuple[memoryview, wire_errors.KafkaConnectionError | None]:
        parser, shared, in_shared = self._protocol.parser, _received.space, 0
        if len(parser.room) > self.most_bytes:
            received, failure = self._fill(parser.room[: self.most_direct_bytes])
            parser.fill(received)
        else:
            received, failure = self._fill(shared[: self.most_bytes])
            in_shared = received
        if failure is None and self._pending_bytes():
            more, failure = self._fill(shared[in_shared : in_shared + self._pending_bytes()])
            received, in_shared = received + more, in_shared + more
        if failure is not None and received:
            # Not left to the next call: with TLS the end of the stream was read from the socket, so nothing would wake
            # the loop. A turn later: the caller that waits for this answer, such as that of a rejected login, reads it
            # first.
            self._net.call_soon(lambda: self._net.call_soon(lambda: self.abort(failure)))
            return shared[:in_shared], None
        return shared[:in_shared], failure

    def _fill(self, space: memoryview) -> tuple[int, wire_errors.KafkaConnectionError | None]:
        """Receive until the space is full or no bytes are left; return their number, and why there will be no more."""
        received = 0
        try:
            while received < len(space):
                count = self._sock.recv_into(space[received:])
                if not count:
                    return received, wire_errors.KafkaConnectionError("the broker closed the connection")
                received += count
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass  # that is all for now
        except OSError as error:
            return received, wire_errors.KafkaConnectionError(error)
        return received, None

    def _pending_bytes(self) -> int:
        """Return the number of bytes that have left the socket but were not received: they wake no loop."""
        return 0


class _Socket(socket.socket):
    """A socket with a short repr: the event loop puts it into an unused message whenever it waits."""

    def __repr__(self) -> str:
        return f"<socket {self.fileno()}>"


class _PlainTransport(_Receiving, KafkaTCPTransport):
    pass


class _TlsTransport(_Receiving, KafkaSSLTransport):
    def _pending_bytes(self) -> int:
        return int(self._sock.pending())  # the rest of a TLS record, which is decrypted as a whole

    async def handshake_until(self, timeout_at: float) -> None:
        """Do the TLS handshake; raises KafkaConnectionError if the peer has not answered by then.

        If too little time was left for an answer, raise KafkaTimeoutError instead.
        """
        fair = timeout_at - time.monotonic() >= FAIR_MS / 1_000
        try:
            await self._shake_hands(timeout_at)
        except wire_errors.KafkaTimeoutError as error:
            if not fair:
                raise wire_errors.KafkaTimeoutError("no time was left for the TLS handshake") from error
            raise wire_errors.KafkaConnectionError(_NO_HANDSHAKE) from error

    async def _shake_hands(self, timeout_at: float) -> None:
        while True:
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:  # noqa: PERF203 (a handful of turns)
                await self._net.wait_read(self._sock, timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at)
            else:
                return


class Manager(KafkaConnectionManager):
    """Closes the sockets of failed attempts, and remembers why the last one failed while connecting."""

    last_failure: str | None = None
    last_distrusted: CertificateError | None = None

    _final: BaseException | None = None

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self._blocking = BlockingCalls(self)
        self._distrusted: set[Any] = set()
        self._unreached: dict[Any, BaseException] = {}
        self._reachable: set[str] = set()  # addresses of brokers that answered once, so they cannot be wrong

    def get_connection(self, node_id: Any, **how: Any) -> Any:
        """Return a connection to a broker; a rejected login is final, since repetition can lock the account.

        Untrusted certificates are final, too, if no bootstrap address has another one.
        """
        if self._final and self.cluster.is_bootstrap(node_id):
            raise self._final
        if how.get("timeout_ms") is not None:
            # While connecting, kafka-python lets the first silent address use up all the time.
            how["timeout_ms"] = min(how["timeout_ms"], self.socket_connection_setup_timeout_ms(node_id))
        connection = super().get_connection(node_id, **how)
        if not isinstance(connection, LimitedConnection):
            connection = LimitedConnection.of(
                connection, self._blocking, self.config["socket_connection_setup_timeout_ms"]
            )
            if not self.cluster.is_bootstrap(node_id):
                connection.init_future.add_callback(lambda _: self._is_reached(node_id))
                connection.init_future.add_errback(functools.partial(self._unreached.__setitem__, node_id))
        if self.cluster.is_bootstrap(node_id):
            connection.init_future.add_errback(functools.partial(self._remember, node_id))
        return connection

    def least_loaded_node(self) -> Any:
        """Return a broker for a request that any broker can answer; if all throttle, the one that is free first."""
        node_id = super().least_loaded_node()
        if node_id is not None:
            return node_id
        busy = [(one.free_at, of) for of, one in self._conns.items() if one.connected]
        return min((pair for pair in busy if not self.cluster.is_bootstrap(pair[1])), default=(0, None))[1]

    def _is_reached(self, node_id: Any) -> None:
        self._unreached.pop(node_id, None)
        self._reachable.add(self._address_of(node_id))

    def _address_of(self, node_id: Any) -> str:
        broker = self.cluster.broker_metadata(node_id)
        return "" if broker is None else f"{broker.host}:{broker.port}"

    def _remember(self, node_id: Any, error: BaseException) -> None:
        # The last attempt may have had no time to fail for its own reason: an earlier reason says more.
        out_of_time = isinstance(error, _TIMED_OUT) and not isinstance(error, DidNotAnswerError)
        if self.last_failure is None or not out_of_time:
            self.last_failure = _message(error)
        if isinstance(error, LOGIN_REFUSED):
            self._final = error
        if isinstance(error, CertificateError):
            self.last_distrusted = error
            self._distrusted.add(node_id)
            if len(self._distrusted) == len(self.config["bootstrap_servers"]):
                self._final = error

    def unreached(self) -> str | None:
        """Name the broker that cannot be reached at its advertised address.

        None for addresses that were reached before.

        None for bootstrap addresses, too: such brokers are away, and not advertised wrongly.
        """
        for node_id, error in sorted(self._unreached.items()):
            address = self._address_of(node_id)
            if address and address not in self._reachable and address not in self.config["bootstrap_servers"]:
                return (
                    f"the bootstrap address answered, and broker {node_id} is advertised as {address}, which is not "
                    f"reached from here ({_message(error)}): advertised.listeners of the broker must be an address "
                    "that the driver and all workers reach"
                )
        return None

    def drop_connections(self) -> None:
        """Close all connections, in the loop's thread; the next request opens a new one."""
        for connection in list(self._conns.values()):
            connection.close(wire_errors.KafkaConnectionError("closed: no answer came in time"))

    def close(self, node_id: Any = None, timeout_ms: Any = None) -> None:
        """Close the connection and drop unsent requests; otherwise its socket would wait for a loop that has ended."""
        if node_id is None:
            for connection in self._conns.values():
                if connection.transport is not None:
                    connection.transport._write_buffer.clear()  # noqa: SLF001 (no public way to drop it in silence)
        super().close(node_id, timeout_ms)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> KafkaTCPTransport:
        dialer = KafkaNetSocket()
        deadline_s = timeout_at or time.monotonic() + self.config["socket_connection_setup_timeout_ms"] / 1_000
        lookup = f"the lookup of the name {node.host}"
        addresses = await self._blocking.call(lookup, lambda: _addresses(dialer, node.host, node.port), deadline_s)
        reason, kind_of_failure = f"{node.host}: the name does not resolve", wire_errors.KafkaConnectionError
        distrusted: ssl.SSLCertVerificationError | None = None
        for family, kind, protocol, _, address in addresses:
            try:
                return await self._dial(dialer, _Socket(family, kind, protocol), address, node.host, deadline_s)
            except (OSError, OverflowError, wire_errors.KafkaError) as error:  # noqa: PERF203 (a handful of addresses)
                reason = f"{node.host}:{node.port}: {_message(error)}"
                timed_out = isinstance(error, wire_errors.KafkaTimeoutError)
                kind_of_failure = wire_errors.KafkaTimeoutError if timed_out else wire_errors.KafkaConnectionError
                distrusted = error if isinstance(error, ssl.SSLCertVerificationError) else distrusted
        if distrusted is not None:
            raise CertificateError(f"{node.host}:{node.port}", distrusted)
        raise kind_of_failure(reason)

    async def _dial(
        self, dialer: KafkaNetSocket, sock: socket.socket, address: Any, host: str, deadline_s: float
    ) -> KafkaTCPTransport:
        opened: KafkaTCPTransport | None = None
        ready = False
        try:
            sock.settimeout(0)
            for option in self.config["socket_options"]:
                sock.setsockopt(*option)
            await dialer.sock_connect(self._net, sock, address, timeout_at=deadline_s)
            if self.ssl_enabled:
                opened = tls = _TlsTransport(self._net, sock, host=host, ssl_context=self.config["ssl_context"])
                await tls.handshake_until(deadline_s)
            else:
                opened = _PlainTransport(self._net, sock, host=host)
            ready = True
            return opened
        finally:
            if not ready:
                (opened or sock).close()


def _message(error: BaseException) -> str:
    """Return the text of an error, without the class name that kafka-python adds."""
    return str(error.args[0]) if isinstance(error, wire_errors.KafkaError) and error.args else str(error)


def _addresses(dialer: KafkaNetSocket, host: str, port: int) -> list[Any]:
    try:
        return dialer.dns_lookup(host, port)
    except (ValueError, OverflowError):  # neither a name nor a port: a broker may advertise this
        return []


def manager_settings(config: ClientConfig) -> dict[str, Any]:
    """Return the configuration for kafka-python; raises OptionError for key and trust stores that cannot be read."""
    return {
        "bootstrap_servers": list(config.bootstrap_servers),
        "client_id": config.client_id,
        "receive_message_max_bytes": config.answer_bytes,
        "request_timeout_ms": config.request_timeout_ms,
        "socket_connection_setup_timeout_ms": config.connect_timeout_ms,
        # Callers limit their own requests in flight; a full connection would reject those of other callers.
        "max_in_flight_requests_per_connection": 1_000,
        "reconnect_backoff_ms": config.reconnect_backoff_ms,
        "reconnect_backoff_max_ms": config.reconnect_backoff_max_ms,
        "connections_max_idle_ms": config.idle_connection_ms,
        "metadata_max_age_ms": max(config.metadata_age_ms, 1_000),
        **config.security.as_kafka_python(),
    }
