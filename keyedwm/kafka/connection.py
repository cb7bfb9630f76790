"""Requests to brokers and their answers, over kafka-python's connections.

Rule: its loop runs in one background thread per cluster, so that answers arrive and time-outs fire while this process
computes; what it raises is turned into TransientError or into an error for the user.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
import time
from typing import Any

import kafka.errors as wire_errors
from kafka.net.selector import NetworkSelector

from keyedwm.core.errors import OptionError, OutOfTurnError, UnavailableError
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.errors import AccessError
from keyedwm.kafka.network import LOGIN_REFUSED, Manager, manager_settings
from keyedwm.kafka.token import TokenError

Answer = concurrent.futures.Future[Any]
_LOOK_S = 1.0
_GRACE_MS = 5_000


class TransientError(Exception):
    """An answer that did not come; the same request may succeed later. Never leaves this room."""


class Connection:
    """Requests to brokers by node id; thread-safe, and of no use in a forked child."""

    def __init__(self, config: ClientConfig, timeout_ms: int) -> None:
        self.config = config
        self._pid = os.getpid()
        settings = manager_settings(config)
        self._net = NetworkSelector(client_id=config.client_id, slow_task_threshold_secs=0)
        self._manager = Manager(self._net, **settings)
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
        self._await(answer)
        try:
            return answer.result()
        except (wire_errors.KafkaError, OSError) as error:
            refusal = _refused(error, self.config)
            if refusal is not None:
                raise refusal from error
            raise TransientError(f"{type(error).__name__}: {error}") from error

    def _await(self, answer: Answer) -> None:
        """Wait until an answer is there, but not for one that cannot come: requests that wait for a connection have no
        time-out of their own, and a loop that has ended answers nobody.
        """
        limit_ms = self.config.connect_timeout_ms + self.config.request_timeout_ms + _GRACE_MS
        over_at = time.monotonic() + limit_ms / 1000
        while not concurrent.futures.wait([answer], timeout=_LOOK_S).done:
            if not self.usable:
                raise TransientError("the connection's thread has ended")
            if time.monotonic() > over_at:
                self._net.call_soon_threadsafe(self._manager.drop_connections)
                raise TransientError(f"no answer came within {limit_ms} ms")

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


def _refused(error: BaseException, config: ClientConfig) -> Exception | None:
    """The error for the user, if asking again is of no use."""
    if isinstance(error, TokenError):
        return AccessError(f"no login at {config.addresses}: {error.args[0]}")
    if isinstance(error, LOGIN_REFUSED):
        return AccessError(
            f"the brokers at {config.addresses} refused the login with {config.security.mechanism.value}: "
            f"check {config.security.mechanism.settled_by}"
        )
    if isinstance(error, wire_errors.IncompatibleBrokerVersion):
        return OptionError(
            f"the brokers at {config.addresses} (kafka.bootstrap.servers) are too old, "
            f"Kafka 3.0 or newer is wanted: {error}"
        )
    return None
