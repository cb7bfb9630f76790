"""Requests to brokers and their answers, over kafka-python's connections.

Rule: kafka-python's loop runs in one background thread per cluster, so that answers arrive and timeouts fire while this
process computes; its errors are turned into TransientError or into an error for the user.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import kafka.errors as wire_errors
from kafka.net.selector import NetworkSelector

from keyedwm.core.errors import OptionError, OutOfTurnError, UnavailableError
from keyedwm.kafka.client.blocking_calls import NOT_IN_TIME
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import (
    AccessError,
    CertificateError,
    LoginError,
    MechanismError,
    NoBrokerError,
    UnsupportedRequestError,
    certificate_sentence,
)
from keyedwm.kafka.client.network import LOGIN_REFUSED, Manager, manager_settings
from keyedwm.kafka.client.probe import other_protocol
from keyedwm.kafka.client.token_provider import TokenError

Answer = concurrent.futures.Future[Any]
_STOP_MS = 10_000  # for the network thread to end


class TransientError(Exception):
    """A request without an answer; the same request may succeed later. The error stays inside this package."""


def first_of(items: Sequence[Any], entry: str, **names: Any) -> Any:
    """Return the first entry of an answer that has these names; raises TransientError for an answer without it."""
    for item in items:
        if all(getattr(item, name) == value for name, value in names.items()):
            return item
    raise TransientError(" ".join(("the answer has no", entry, *map(str, names.values()))))


class Connection:
    """Requests to brokers by node id; thread-safe, and not usable in a forked child."""

    def __init__(self, config: ClientConfig, timeout_ms: int) -> None:
        self.config = config
        self._pid = os.getpid()
        self._closed = False
        settings = manager_settings(config)
        self._net = NetworkSelector(client_id=config.client_id, slow_task_threshold_secs=0)
        self._manager = Manager(self._net, **settings)
        self._net.start()
        try:
            self._bootstrap(timeout_ms)
        except wire_errors.KafkaError as error:
            reason = self._manager.last_failure or str(error)
            self.close()
            refusal = _refused(self._manager.last_distrusted or error, config)
            if refusal is not None:
                raise refusal from error
            # If a name was not resolved, or a login did not end, the request is not repeated.
            other = None if NOT_IN_TIME in reason else other_protocol(config, reason)
            if other is not None:
                raise OptionError(other) from error
            raise NoBrokerError(
                f"no Kafka broker answered at {config.addresses} within {timeout_ms} ms ({reason}): "
                f"check kafka.bootstrap.servers and kafka.security.protocol, which is {config.security.protocol.value}"
            ) from error

    def _bootstrap(self, timeout_ms: int) -> None:
        """Find the cluster. kafka-python waits for its loop without a time limit, so this method sets one."""
        bootstrapped: Answer = concurrent.futures.Future()

        async def go() -> None:
            try:
                bootstrapped.set_result(await self._manager.bootstrap_async(timeout_ms))
            except BaseException as error:  # noqa: BLE001 (raised below)
                bootstrapped.set_exception(error)

        self._net.call_soon_threadsafe(go)
        try:
            bootstrapped.result((timeout_ms + self.config.limits.answer_grace_ms) / 1_000)
        except concurrent.futures.TimeoutError as error:
            raise wire_errors.KafkaTimeoutError("the network thread does not answer") from error

    @property
    def usable(self) -> bool:
        """Whether requests can still be sent from this process."""
        return os.getpid() == self._pid and not self._closed and self._net._exception is None  # noqa: SLF001 (no public way to ask)

    def submit(self, node_id: int | None, request: Any) -> Answer:
        """Send a request to a broker (None: any) and return at once; `result` waits for the answer."""
        if os.getpid() != self._pid:
            raise OutOfTurnError(
                "a connection to Kafka cannot be used after a fork: call shared(config) in the child process"
            )
        answer: Answer = concurrent.futures.Future()

        async def go() -> None:
            try:
                answer.set_result(await self._send(request, node_id))
            except BaseException as error:  # noqa: BLE001 (raised where `result` is called)
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
        self.wait_any([answer])
        try:
            return answer.result()
        except (wire_errors.KafkaError, OSError) as error:
            refusal = _refused(error, self.config)
            if refusal is not None:
                raise refusal from error
            raise TransientError(self._manager.unreached() or f"{type(error).__name__}: {error}") from error

    def wait_any(self, answers: Sequence[Answer]) -> None:
        """Wait until one of the answers has arrived; raises TransientError if none arrives within the deadline.

        The deadline is needed: a request that waits for a connection has no timeout, and a loop that has ended gives no
        answer.
        """
        limits = self.config.limits
        limit_ms = self.config.connect_timeout_ms + self.config.request_timeout_ms + limits.answer_grace_ms
        deadline_s = time.monotonic() + limit_ms / 1000
        while not _one_done(answers, limits.answer_poll_s):
            if not self.usable:
                raise TransientError("the connection's thread has ended")
            if time.monotonic() > deadline_s:
                self._net.call_soon_threadsafe(self._manager.drop_connections)
                raise TransientError(f"no answer came within {limit_ms} ms")

    def call(self, node_id: int | None, request: Any) -> Any:
        """Send and wait."""
        return self.result(self.submit(node_id, request))

    @property
    def broker_version(self) -> tuple[int, ...]:
        """Return the Kafka version of the broker that answered first, derived from the requests that it offers."""
        return tuple(self._manager.broker_version)

    @property
    def api_versions(self) -> Mapping[int, int]:
        """The newest version of each request that the brokers offer, by API key."""
        versions = self._manager.broker_version_data.api_versions
        return {api: newest for api, (_, newest) in versions.items()}

    @property
    def advertised(self) -> list[tuple[int, str, int]]:
        """Node id, host and port of each broker, as the brokers advertise them."""
        return sorted((one.node_id, one.host, one.port) for one in self._manager.cluster.brokers())

    def close(self) -> None:
        """Close every connection and stop the thread; twice is fine."""
        if os.getpid() == self._pid and not self._closed:
            self._closed = True
            if self._net._exception is None:  # noqa: SLF001 (no public way to ask)
                self._net.call_soon_threadsafe(self._manager.close)
            self._net.stop(_STOP_MS)
            self._net.close()


def _one_done(answers: Sequence[Answer], timeout_s: float) -> bool:
    return bool(concurrent.futures.wait(answers, timeout_s, concurrent.futures.FIRST_COMPLETED).done)


class Retry:
    """The retries of one task: growing pauses, and UnavailableError when the task's timeout is over."""

    def __init__(self, config: ClientConfig, task: str, timeout_ms: int | None = None) -> None:
        self._config, self._task = config, task
        self._timeout_ms = config.api_timeout_ms if timeout_ms is None else timeout_ms
        self._pause_ms = float(config.retry_backoff_ms)
        self._deadline_s = time.monotonic() + self._timeout_ms / 1000

    def progress(self) -> None:
        """Restart the timeout: something arrived."""
        self._pause_ms = float(self._config.retry_backoff_ms)
        self._deadline_s = time.monotonic() + self._timeout_ms / 1000

    def pause(self, reason: object) -> None:
        """Sleep before the next attempt; raises UnavailableError when the time is up."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise UnavailableError(
                f"{self._task} did not succeed within {self._timeout_ms} ms at {self._config.addresses}; "
                f"the last answer was: {reason}"
            )
        # Many tasks lose the same leader at once: jitter keeps them from retrying at the same time.
        time.sleep(min(left_s, self._pause_ms * random.uniform(0.8, 1.2) / 1000))  # noqa: S311 (not a secret)
        self._pause_ms = min(self._pause_ms * 2, self._config.retry_backoff_max_ms)


def call_with_retries(connection: Connection, node_id: int | None, request: Any, task: str) -> Any:
    """Send to one broker until it answers; raises UnavailableError when the time is up."""
    retry = Retry(connection.config, task)
    while True:
        try:
            answer = connection.call(node_id, request)
        except TransientError as error:
            retry.pause(error)
            continue
        return answer


def _refused(error: BaseException, config: ClientConfig) -> Exception | None:
    """Return the error for the user if a retry cannot succeed, else None."""
    if isinstance(error, (TokenError, LoginError)):
        return AccessError(f"the login at {config.addresses} failed: {error.args[0]}")
    if isinstance(error, MechanismError):
        mechanisms = ", ".join(error.mechanisms) or "none that this client knows"
        default = "" if config.security.mechanism_is_set else ", the default"
        return AccessError(
            f"the brokers at {config.addresses} do not accept the login {config.security.mechanism.value}{default}; "
            f"they offer {mechanisms}: set kafka.sasl.mechanism"
        )
    if isinstance(error, LOGIN_REFUSED):
        return AccessError(f"the brokers at {config.addresses} rejected the login with {_login_of(config)}")
    if isinstance(error, CertificateError):
        return AccessError(certificate_sentence(error, config.security))
    if isinstance(error, wire_errors.IncompatibleBrokerVersion):
        return UnsupportedRequestError(
            f"the brokers at {config.addresses} (kafka.bootstrap.servers) do not offer a request that is needed: "
            f"{error.args[0] if error.args else error}"
        )
    return None


def _login_of(config: ClientConfig) -> str:
    mechanism = config.security.mechanism
    if config.security.mechanism_is_set:
        return f"{mechanism.value}: check {mechanism.settings_option}"
    return f"{mechanism.value}, the default, as kafka.sasl.mechanism is not set: set it"
