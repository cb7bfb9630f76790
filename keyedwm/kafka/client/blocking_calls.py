"""Calls of code that may not return (name lookups, token providers, Kerberos), each with a deadline.

Rule: the network's thread never runs them, so a stuck call blocks no other. Each call runs in a separate thread, and
only one at a time for the same name: a resolver that never answers costs one thread for each name, even if it is asked
often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import kafka.errors as wire_errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager

T = TypeVar("T")
# A call with less time than this is not to blame: the attempts of another call have used up its time.
FAIR_MS = 250


NOT_IN_TIME = "did not answer in time"


class DidNotAnswerError(wire_errors.KafkaTimeoutError):
    """An external call did not end in time; the message names the call."""


class BlockingCalls:
    """The calls of one connection manager; used in its loop only."""

    def __init__(self, manager: KafkaConnectionManager) -> None:
        self._manager = manager
        self._running: dict[str, Future] = {}

    async def call(self, name: str, act: Callable[[], T], deadline_s: float) -> T:
        """Run `act` in a thread and return its result; raise DidNotAnswerError if it has not ended by `deadline_s`.

        If too little time was left for an answer, raise KafkaTimeoutError instead. name: the call's name in the error;
        a second call with the same name waits for the end of the first.
        """
        while name in self._running:
            await self._until(self._running[name], name, deadline_s)
        ended: Future = Future()
        self._running[name] = ended
        results: list[Any] = []
        failed: list[BaseException] = []

        def end() -> None:
            del self._running[name]
            ended.success(None)

        def run() -> None:
            try:
                results.append(act())
            except BaseException as error:  # noqa: BLE001 (raised below)
                failed.append(error)
            if not self._manager.closed:
                self._manager._net.call_soon_threadsafe(end)  # noqa: SLF001 (no public way to ask)

        threading.Thread(target=run, name=f"keyedwm: {name}", daemon=True).start()
        await self._until(ended, name, deadline_s)
        if failed:
            raise failed[0]
        return results[0]

    async def _until(self, ended: Future, name: str, deadline_s: float) -> None:
        left_ms = max(deadline_s - time.monotonic(), 0) * 1_000
        try:
            await self._manager.wait_for(ended, left_ms)
        except wire_errors.KafkaTimeoutError as error:
            if left_ms < FAIR_MS:
                raise wire_errors.KafkaTimeoutError(f"no time was left for {name}") from error
            raise DidNotAnswerError(f"{name} {NOT_IN_TIME}") from error
