"""Connections to the brokers: the one adapter around kafka-python's connection manager.

Rule: every use of kafka-python's network internals stands here (they move between its versions). Its loop runs in one
background thread per cluster, so that answers arrive and time-outs fire while this process computes.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
import socket
import time
from typing import Any

import kafka.errors as wire_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from keyedwm.core.errors import OptionError, OutOfTurnError, UnavailableError
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.errors import AccessError

MAX_ANSWER_BYTES = 2**31 - 1
RECEIVE_BYTES = 256 << 10

Answer = concurrent.futures.Future[Any]


class TransientError(Exception):
    """An answer that did not come; the same request may succeed later. Never leaves this room."""


class Connection:
    """Requests to brokers by node id; thread-safe, and of no use in a forked child."""

    def __init__(self, config: ClientConfig, timeout_ms: int) -> None:
        self.config = config
        self._pid = os.getpid()
        self._net = NetworkSelector(client_id=config.client_id, slow_task_threshold_secs=0)
        self._manager = _Manager(self._net, **_settings(config))
        self._net.start()
        try:
            self._manager.bootstrap(timeout_ms)
        except wire_errors.KafkaError as error:
            reason = self._manager.last_failure or str(error)
            self.close()
            refusal = _refused(error, config)
            if refusal is not None:
                raise refusal from error
            raise UnavailableError(
                f"no Kafka broker answered at {config.addresses} within {timeout_ms} ms ({reason}): "
                "check kafka.bootstrap.servers"
            ) from error

    @property
    def usable(self) -> bool:
        """Whether requests can still be sent from this process."""
        return os.getpid() == self._pid and not self._manager.closed and self._net._exception is None  # noqa: SLF001 (no public way to ask)

    def submit(self, node_id: int | None, request: Any) -> Answer:
        """Send a request to a broker (None: any) and return at once; `result` waits for the answer."""
        if os.getpid() != self._pid:
            raise OutOfTurnError("a connection to Kafka does not survive a fork: ask for shared(config) in the child")
        answer: Answer = concurrent.futures.Future()

        async def go() -> None:
            try:
                answer.set_result(await self._send(request, node_id))
            except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
                answer.set_exception(error)

        self._net.call_soon_threadsafe(go)
        return answer

    async def _send(self, request: Any, node_id: int | None) -> Any:
        try:
            return await self._manager.send(request, node_id=node_id)
        except wire_errors.UnknownBrokerIdError:
            await self._manager.cluster.refresh_metadata()
            return await self._manager.send(request, node_id=node_id)

    def result(self, answer: Answer) -> Any:
        """Wait for an answer; raises TransientError, or an error for the user."""
        try:
            return answer.result()
        except (wire_errors.KafkaError, OSError) as error:
            refusal = _refused(error, self.config)
            if refusal is not None:
                raise refusal from error
            raise TransientError(f"{type(error).__name__}: {error}") from error

    def call(self, node_id: int | None, request: Any) -> Any:
        """Send and wait."""
        return self.result(self.submit(node_id, request))

    def close(self) -> None:
        """Close every connection and stop the thread; twice is fine."""
        if os.getpid() == self._pid and not self._manager.closed:
            self._net.run(self._manager.close)
            self._net.stop()
            self._net.close()


class Retry:
    """Bounded patience for one task: grows its pauses and gives up with UnavailableError."""

    def __init__(self, config: ClientConfig, task: str, timeout_ms: int | None = None) -> None:
        self._config, self._task = config, task
        self._timeout_ms = config.api_timeout_ms if timeout_ms is None else timeout_ms
        self._pause_ms = float(config.retry_backoff_ms)
        self._over_at = time.monotonic() + self._timeout_ms / 1000

    def progress(self) -> None:
        """Start the patience anew: something arrived."""
        self._pause_ms = float(self._config.retry_backoff_ms)
        self._over_at = time.monotonic() + self._timeout_ms / 1000

    def pause(self, reason: object) -> None:
        """Sleep before the next attempt; raises UnavailableError when the time is up."""
        left_s = self._over_at - time.monotonic()
        if left_s <= 0:
            raise UnavailableError(
                f"{self._task} did not succeed within {self._timeout_ms} ms at {self._config.addresses}; "
                f"the last answer was: {reason}"
            )
        # Many tasks lose the same leader at once: do not come back in step.
        time.sleep(min(left_s, self._pause_ms * random.uniform(0.8, 1.2) / 1000))  # noqa: S311 (not a secret)
        self._pause_ms = min(self._pause_ms * 2, self._config.retry_backoff_max_ms)


class _Transport(KafkaTCPTransport):
    """Takes what has arrived in one call; kafka-python takes 4 KiB at a time."""

    def _sock_recv(self) -> tuple[bytes, wire_errors.KafkaConnectionError | None]:
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return b"", None
        except OSError as error:
            return b"", wire_errors.KafkaConnectionError(error)
        return data, None if data else wire_errors.KafkaConnectionError("the broker closed the connection")


class _Manager(KafkaConnectionManager):
    """Closes the sockets of failed attempts, and remembers why the last one failed."""

    last_failure: str | None = None

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
                settings = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
                opened = KafkaSSLTransport(self._net, sock, host=host, **settings)
            else:
                opened = _Transport(self._net, sock, host=host)
            await opened.handshake()
            ready = True
            return opened
        finally:
            if not ready:
                (opened or sock).close()


def _settings(config: ClientConfig) -> dict[str, Any]:
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


def _refused(error: BaseException, config: ClientConfig) -> Exception | None:
    """The error for the user, if asking again is of no use."""
    if isinstance(error, (wire_errors.SaslAuthenticationFailedError, wire_errors.UnsupportedSaslMechanismError)):
        return AccessError(
            f"the brokers at {config.addresses} refused the login with {config.security.mechanism.value}: "
            "check kafka.sasl.jaas.config"
        )
    if isinstance(error, wire_errors.IncompatibleBrokerVersion):
        return OptionError(
            f"the brokers at {config.addresses} (kafka.bootstrap.servers) are too old, "
            f"Kafka 3.0 or newer is wanted: {error}"
        )
    return None
