"""The operator for a program of one's own: a notebook, or a loop around a Kafka consumer.

Rule: results and rejected messages are kept until `flush`, which writes the state first. A program that commits its
consumer's offsets after `flush` loses nothing: what it is given again is known as a replay. What a call that failed
halfway left, by an aggregate of the user's own, is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from keyedwm.config.validation import expect
from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.batch_figures import StoreCounts
from keyedwm.operators.messages.arguments import Edge, checked_edges, checked_range, checked_values, whole_ms
from keyedwm.operators.messages.driver import MessageOperator, message_operator
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.results import Output
from keyedwm.operators.state.store import BlobStore, MemoryStore, checked_store


class _Plan(Protocol):
    """The plan of one, as far as it is driven here."""

    @property
    def by_clock(self) -> bool:
        """Whether some results are due by wall-clock time."""

    @property
    def result_schema(self) -> pa.Schema:
        """Of the results."""


_Any = TypeVar("_Any", bound=_Plan)


class StandaloneOperator(Generic[_Any]):
    """The base of operators over kept messages for a program of one's own.

    Results and rejected messages are kept until `flush`, which writes the state first.
    """

    def __init__(
        self, plan: _Any, store: MemoryStore | None, build: Callable[[_Any, BlobStore], MessageOperator]
    ) -> None:
        self.plan = plan
        self.store = checked_store(store)
        self._operator = build(plan, self.store)
        self._results: list[pa.Table] = []
        self._rejected: list[list[pa.Table]] = [[] for _ in self._operator.inputs]
        self._failure: Exception | None = None

    def timeout(self, now_ms: int) -> None:
        """Let wall-clock time pass: what is due by the clock is shown."""
        self._keep(self._operator.on_timer(whole_ms("now_ms", now_ms)))

    def get_result(self) -> pa.Table:
        """Return all results since the last `flush`, oldest first; asked twice it says the same."""
        return pa.concat_tables([self.plan.result_schema.empty_table(), *self._results])

    def flush(self) -> pa.Table:
        """Apply the limits of size, write the state, and return the results, which are then forgotten here."""
        self._keep(self._operator.on_barrier(0))
        results = self.get_result()
        self.store.apply(self._operator.drain())
        self._results.clear()
        for tables in self._rejected:
            tables.clear()
        return results

    def finish(self) -> None:
        """The input has ended: all windows are complete, what waits is shown, and nothing is kept."""
        self._keep(self._operator.on_end())

    @property
    def next_timeout_ms(self) -> int | None:
        """The wall-clock time at which `timeout` has something to do, None if nothing is pending."""
        return self._operator.next_timer_ms

    def _add_messages(self, number: int, messages: pa.Table, now_ms: int | None, results: str) -> None:
        """Take messages of an input; what is due by the clock then comes, as `timeout` gives it. what: that is due."""
        if now_ms is None and self.plan.by_clock:
            raise OptionError(f"the plan has {results} by the clock: give add_message the wall-clock time as now_ms")
        clock_ms = None if now_ms is None else whole_ms("now_ms", now_ms)
        self._keep(self._operator.on_rows(number, messages, clock_ms), may_refuse=True)
        if clock_ms is not None and self.plan.by_clock:
            self._keep(self._operator.on_timer(clock_ms))

    def _keep(self, outputs: Iterator[Output], *, may_refuse: bool = False) -> None:
        """Keep what a call gives. may_refuse: it checks what it is given before anything changes, and counts it."""
        if self._failure is not None:
            raise InputError(
                f"an earlier call failed halfway ({type(self._failure).__name__}: {self._failure}), so its state is "
                "not written: build a new operator from the store, and continue from its next offsets"
            )
        before = self._operator.counts.given
        try:
            self._results += [output.rows for output in outputs]
        except Exception as failure:
            if not may_refuse or self._operator.counts.given != before:
                self._failure = failure
            raise
        for number, tables in enumerate(self._rejected):
            tables.append(self._operator.rejected(number))


class WindowOperator(StandaloneOperator[StorePlan]):
    """Windows over messages that are kept. store: where the state is, changed by `flush` alone; one in memory else."""

    def __init__(self, plan: StorePlan, store: MemoryStore | None = None) -> None:
        expect("the plan of a WindowOperator", plan, StorePlan, "a StorePlan(schema=..., window=..., ...)")
        super().__init__(plan, store, message_operator)

    def add_message(self, messages: pa.Table, now_ms: int | None = None) -> None:
        """Take a table of messages, of any number of channels, each in order of offset.

        now_ms: wall-clock time, needed for panes by the clock; those that are due by then come, as `timeout` gives
        them. Raises InputError for a missing column.
        """
        self._add_messages(0, messages, now_ms, "panes")

    def watermark(self, time_ms: int) -> None:
        """Promise that no message below this event time is expected; a lower one than before has no effect."""
        self._keep(self._operator.on_watermark(0, 0, whole_ms("a watermark", time_ms)))

    def get_rejected(self) -> pa.Table:
        """Return the messages that were given back since the last `flush`, as they came, with the reason."""
        return pa.concat_tables([self.plan.rejected_schema.empty_table(), *self._rejected[0]])

    @property
    def counts(self) -> StoreCounts:
        """The counts of all messages since the store was new."""
        return self._operator.counts

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each topic and partition the offset below which all is known: where a consumer continues."""
        return self._operator.next_offsets()

    def oldest_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each topic and partition the first offset that is still held: a new store starts there.

        Give it the watermark of the lost store before any message. Otherwise expired windows show panes again, of the
        remaining messages. Where windows count rows it is the first offset that was read.
        """
        return self._operator.oldest_offsets()

    def get_windows(self, start: int, end: int, *, by_key: bool = False) -> pa.Table:
        """Return the windows that overlap `[start, end]`, in order of expiry: one row for each topic and partition.

        Edges are ms of event time, or offsets. Columns: start, end (behind the window), topic, partition, first_offset,
        last_offset, messages, bytes, is_complete. by_key: one row for each key too, for which messages are read.
        Of windows that count a key's messages: those that are complete next, one for each key, topic and partition.
        """
        expect("by_key", by_key, bool, "True or False")
        return self._operator.windows(*checked_range(start, end), by_key=by_key)

    def get_messages(
        self,
        start: Edge,
        end: Edge,
        *,
        join_keys: Mapping[str, Any] | None = None,
        key: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Return the messages from `start` to `end`, both included, by event time, topic, partition and offset.

        An edge is ms of event time, or (time, offset); of windows of rows an offset. join_keys: columns that must have
        these values. key: the same for by columns. Raises OptionError for a column that there is not.
        """
        return self._operator.messages(checked_edges(start, end), checked_values(self.plan.by, join_keys, key))
