"""The operator for a user's own program: a notebook, or a loop around a Kafka consumer.

Rule: results and rejected messages are kept until `flush`, which writes the state first. A program that commits its
consumer's offsets after `flush` loses nothing: records that it reads again are recognized as replays. The state of a
call that failed halfway, in a user's own aggregate, is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa

from keyedwm.config.validation import expect
from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.batch_figures import StoreCounts
from keyedwm.operators.messages.arguments import Edge, checked_edges, checked_range, checked_values, whole_ms
from keyedwm.operators.messages.driver import MessageOperator, message_operator
from keyedwm.operators.messages.message_plan import MessagePlan
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.results import Output
from keyedwm.operators.state.store import BlobStore, MemoryStore, checked_store

_Any = TypeVar("_Any", bound=MessagePlan)


class StandaloneOperator(Generic[_Any]):
    """The base of operators over kept messages for a user's own program.

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
        """Advance wall-clock time: show the results that are due by the clock."""
        self._keep(self._operator.on_timer(whole_ms("now_ms", now_ms)))

    def get_result(self) -> pa.Table:
        """Return all results since the last `flush`, oldest first; a second call returns the same."""
        return pa.concat_tables([self.plan.result_schema.empty_table(), *self._results])

    def flush(self) -> pa.Table:
        """Apply the limits of size, write the state, and return and clear the results."""
        self._keep(self._operator.on_barrier(0))
        results = self.get_result()
        self.store.apply(self._operator.drain())
        self._results.clear()
        for tables in self._rejected:
            tables.clear()
        return results

    def finish(self) -> None:
        """End the input: all windows are complete, waiting messages are shown, and the state is empty."""
        self._keep(self._operator.on_end())

    @property
    def next_timeout_ms(self) -> int | None:
        """The wall-clock time at which `timeout` must be called, None if nothing is pending."""
        return self._operator.next_timer_ms

    def _add_messages(self, number: int, messages: pa.Table, now_ms: int | None, results: str) -> None:
        """Add messages of an input; then show the results that are due by the clock, as `timeout` does.

        results: their name.
        """
        if now_ms is None and self.plan.by_clock:
            raise OptionError(f"the plan has {results} by the clock: give add_message the wall-clock time as now_ms")
        clock_ms = None if now_ms is None else whole_ms("now_ms", now_ms)
        self._keep(self._operator.on_rows(number, messages, clock_ms), may_refuse=True)
        if clock_ms is not None and self.plan.by_clock:
            self._keep(self._operator.on_timer(clock_ms))

    def _keep(self, outputs: Iterator[Output], *, may_refuse: bool = False) -> None:
        """Keep the outputs of a call.

        may_refuse: the call checks its arguments before anything changes, and may reject them.
        """
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
    """Windows over messages that are kept. store: of the state, which only `flush` changes; by default in memory."""

    def __init__(self, plan: StorePlan, store: MemoryStore | None = None) -> None:
        expect("the plan of a WindowOperator", plan, StorePlan, "a StorePlan(schema=..., window=..., ...)")
        super().__init__(plan, store, message_operator)

    def add_message(self, messages: pa.Table, now_ms: int | None = None) -> None:
        """Add a table of messages, of any number of channels, each in order of offset.

        now_ms: wall-clock time, needed for panes by the clock; panes that are due by then are shown, as `timeout` does.
        Raises InputError for a missing column.
        """
        self._add_messages(0, messages, now_ms, "panes")

    def watermark(self, time_ms: int) -> None:
        """Promise that no further message is below this event time; a lower time than before has no effect."""
        self._keep(self._operator.on_watermark(0, 0, whole_ms("a watermark", time_ms)))

    def get_rejected(self) -> pa.Table:
        """Return the messages that were rejected since the last `flush`, unchanged, with the reason."""
        return pa.concat_tables([self.plan.rejected_schema.empty_table(), *self._rejected[0]])

    @property
    def counts(self) -> StoreCounts:
        """The counts of all messages since the store was new."""
        return self._operator.counts

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each topic and partition the next offset: all records below it were read."""
        return self._operator.next_offsets()

    def oldest_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each topic and partition the first offset that is still held: a new store starts there.

        Give the new store the watermark of the lost store before any message. Otherwise expired windows show panes
        again, of the remaining messages. If windows count rows, the offset is the first one that was read.
        """
        return self._operator.oldest_offsets()

    def get_windows(self, start: int, end: int, *, by_key: bool = False) -> pa.Table:
        """Return the windows that overlap `[start, end]`, in order of expiry: one row for each topic and partition.

        Edges are ms of event time, or offsets. Columns: start, end (behind the window), topic, partition, first_offset,
        last_offset, messages, bytes, is_complete. by_key: one row for each key, too, which needs a read of the
        messages. If windows count a key's messages: the window that is complete next, one for each key, topic and
        partition.
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

        An edge is ms of event time, or (time, offset); for windows of rows an offset. join_keys: columns that must have
        these values. key: the same for key columns. Raises OptionError for a column that does not exist.
        """
        return self._operator.messages(checked_edges(start, end), checked_values(self.plan.by, join_keys, key))
