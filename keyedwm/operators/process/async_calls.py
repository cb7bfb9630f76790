"""Calls of a user's coroutine over tables of rows, with bounded concurrency (`keyedwm.spark.async_map`).

Rule: the event loop runs in a separate thread. So calls continue, and their time limits stay correct, while other rows
are read and written. All decisions are `keyedwm.core.in_flight`'s, in the caller's thread. A call that fails ends the
task: no row is passed on without its result, and no row is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Thread
from typing import Generic, TypeVar

import pyarrow as pa

from keyedwm.core.errors import KeyedwmError
from keyedwm.core.in_flight import Call, ControlEntry, InFlight
from keyedwm.core.text import error_text, span_text

T = TypeVar("T")
Coroutine = Callable[[pa.Table], Awaitable[pa.Table]]
# The extra time after a call's time limit in which the loop must report the time-out.
_GRACE_MS = 10_000
_CLOSE_MS = 10_000


class CallError(KeyedwmError):
    """A call of the user's coroutine did not give a result; the task ends, and Spark runs it again."""

    advice = "retry: nothing was lost; or handle it in the coroutine"


@dataclass(frozen=True, kw_only=True)
class AsyncCalls:
    """The settings for calls of a coroutine.

    capacity: the most calls in flight. name: the coroutine's name in messages. hidden_columns: the columns that the
    coroutine does not get.
    """

    run: Coroutine
    ordered: bool
    capacity: int
    timeout_ms: int
    name: str
    hidden_columns: tuple[str, ...] = ()


class RunningCalls(Generic[T]):
    """The calls of one task, and the control rows between them; a context manager that stops all calls at its end."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls
        self._flight: InFlight[T] = InFlight(ordered=calls.ordered, capacity=calls.capacity)
        self._rows_of_call: dict[int, pa.Table] = {}
        self._answers: dict[int, tuple[pa.Table, pa.Table]] = {}
        self._finished: SimpleQueue[tuple[int, asyncio.Future[pa.Table] | None]] = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="async_map", daemon=True)
        self._started = 0

    def __enter__(self) -> RunningCalls[T]:
        self._thread.start()
        return self

    def __exit__(self, _kind: object, failed: BaseException | None, _trace: object) -> None:
        if not self._thread.is_alive():
            return  # a coroutine has stopped the loop
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        error: BaseException | None = None
        try:
            error = ending.result(_CLOSE_MS / 1_000)
        except futures.TimeoutError:
            return  # a coroutine that blocks its thread is abandoned
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if error is not None and failed is None:
            raise CallError(f"async_map: aclose of {self._calls.name} failed: {error_text(error)}") from error

    def rows(self, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Table] | T]:
        """Call the coroutine when there is capacity; yield outputs: (rows, result), or a control row."""
        while self._flight.is_full:
            yield from self._wait()
        self._started += 1
        self._flight.start(Call(self._started))
        self._rows_of_call[self._started] = rows
        asyncio.run_coroutine_threadsafe(self._call(self._started, rows), self._loop)
        while not self._finished.empty():
            yield from self._wait()

    def control(self, row: T, subject: object = None) -> Iterator[tuple[pa.Table, pa.Table] | T]:
        """Add a control row after the rows so far; yield outputs."""
        return self._outputs(self._flight.control(ControlEntry(row, subject)))

    def rest(self) -> Iterator[tuple[pa.Table, pa.Table] | T]:
        """Wait for all calls; yield outputs."""
        while not self._flight.is_empty:
            yield from self._wait()

    async def _call(self, number: int, rows: pa.Table) -> None:
        task = asyncio.ensure_future(self._answer(rows))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._calls.timeout_ms / 1_000)
        except asyncio.CancelledError:  # by a coroutine that cancels whatever runs
            cancelled: asyncio.Future[pa.Table] = self._loop.create_future()
            cancelled.cancel()
            self._finished.put((number, cancelled))
            raise
        self._finished.put((number, task if done else None))

    async def _answer(self, rows: pa.Table) -> pa.Table:
        try:
            return await self._calls.run(rows.drop_columns(list(self._calls.hidden_columns)))
        except (SystemExit, KeyboardInterrupt) as error:  # either would end the thread of the loop
            raise CallError(error_text(error)) from error

    def _wait(self) -> Iterator[tuple[pa.Table, pa.Table] | T]:
        """Wait for the next finished call; yield outputs."""
        limit = span_text(self._calls.timeout_ms)
        try:
            number, task = self._finished.get(timeout=min((self._calls.timeout_ms + _GRACE_MS) / 1_000, TIMEOUT_MAX))
        except Empty:
            first = self._rows_of_call[min(self._rows_of_call)]
            if not self._thread.is_alive():
                raise CallError(
                    f"{self._about(first)} has stopped its event loop: a coroutine has to leave it"
                ) from None
            raise CallError(
                f"{self._about(first)} has held up its event loop for more than timeout={limit}: a coroutine has to "
                f"await slow calls, or run them by asyncio.to_thread"
            ) from None
        rows = self._rows_of_call.pop(number)
        if task is None:
            raise CallError(
                f"{self._about(rows)} gave no result within timeout={limit}: raise the timeout, lower capacity or "
                f"rows_per_call, or answer within it"
            )
        if task.cancelled():
            raise CallError(f"{self._about(rows)} was cancelled: a coroutine has to return a table, or raise")
        error = task.exception()
        if error is not None:
            reason = error.message if isinstance(error, CallError) else error_text(error)
            raise CallError(f"{self._about(rows)} failed: {reason}") from error
        self._answers[number] = rows, task.result()
        yield from self._outputs(self._flight.finish(Call(number)))

    def _outputs(self, entries: Iterable[Call | ControlEntry[T]]) -> Iterator[tuple[pa.Table, pa.Table] | T]:
        for one in entries:
            if isinstance(one, Call):
                yield self._answers.pop(one.number)  # type: ignore[call-overload]
            else:
                yield one.row

    def _about(self, rows: pa.Table) -> str:
        return f"async_map: the call of {self._calls.name} with {worded(rows)}"

    async def _end(self) -> BaseException | None:
        """Cancel running calls, and close the object; return the error of its `aclose`."""
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        close = getattr(self._calls.run, "aclose", None)
        try:
            if close is not None:
                await close()
        except BaseException as error:  # noqa: BLE001  raised in the caller's thread
            return error
        return None


def worded(rows: pa.Table) -> str:
    """Describe rows by their number, and by the first and the last row if they have a topic or an event time."""
    count = f"{rows.num_rows} row{'s' if rows.num_rows > 1 else ''}"
    ends = rows.take([0, rows.num_rows - 1])
    if {"topic", "partition", "offset"} <= set(rows.column_names):
        first, last = ends.select(["topic", "partition", "offset"]).to_pylist()
        places = [f"{row['topic']}-{row['partition']} at offset {row['offset']}" for row in (first, last)]
        return f"{count}, {places[0]} to {places[1]}"
    times = next((name for name in rows.column_names if name.startswith("event_time")), None)
    if times is None:
        return count
    first, last = ends[times].cast(pa.string()).to_pylist()
    return f"{count}, {times} {first} to {last}"
