"""Operators over kept messages inside Spark's buckets; see `protocol.Operator`.

Rule: whole messages are shipped, and the operator emits rows of the result. With `late="emit"` messages that no window
accepted have a separate column, so that both are in the same snapshot. A row of one kind has nulls in the columns of
the other kind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.batch_figures import StoreCounts
from keyedwm.operators.messages.driver import MessageOperator
from keyedwm.operators.messages.message_plan import MessagePlan
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.results import Output, QuietOperator, no_times
from keyedwm.operators.state.manifest import ManifestFormat
from keyedwm.operators.state.store import BlobStore, StateChanges


@dataclass(frozen=True, kw_only=True)
class BucketPlan(OperatorSpec):
    """A plan as stage one and the buckets need it.

    late: what becomes of messages that no window accepts. read_from: the fields that columns are read from, if their
    names do not say it.
    """

    plan: MessagePlan
    late: LatePolicy = LatePolicy.DROP
    read_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _ = self.rejected_rows

    @property
    @abstractmethod
    def manifest_format(self) -> ManifestFormat:
        """The format of the operator's manifest."""

    @property
    def wake_intervals_ms(self) -> tuple[int, ...]:
        """The intervals of outputs by wall-clock time."""
        return self.plan.wake_intervals_ms

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """The counts of kept and dropped messages."""
        return ("replayed_rows", "rejected_rows", "dropped_windows", "dropped_rows", "dropped_bytes")

    @cached_property
    def rejected_rows(self) -> RejectedRows:
        """The rule for messages that no window accepts."""
        return RejectedRows(self.late, self.plan.result_schema, self._rejected_schema)

    @property
    def result_schema(self) -> pa.Schema:
        """The columns that the operator emits."""
        return self.rejected_rows.schema

    @property
    @abstractmethod
    def _rejected_schema(self) -> pa.Schema:
        """The columns of messages that no window accepts."""

    @abstractmethod
    def message_operator(self, store: BlobStore) -> MessageOperator:
        """Return the operator over messages; `store` has the state that it continues."""

    @abstractmethod
    def rejected(self, number: int, rows: pa.Table) -> pa.Table:
        """Return rejected messages of an input in the columns of rejected messages."""

    def result(self, output: Output) -> Output:
        """Return an output of the operator over messages as rows of the result."""
        return self.rejected_rows.result(output)


class BucketOperator(QuietOperator):
    """Passes each call to the operator over kept messages, and turns its results into rows of the plan."""

    def __init__(self, plan: BucketPlan, store: BlobStore) -> None:
        self._plan, self._operator = plan, plan.message_operator(store)
        self._before = self._operator.counts
        for channels in self._operator.channels:
            channels.one_row_each = True

    @property
    def batch_counts(self) -> StoreCounts:
        """The counts of messages since this instance was built, of all sides together."""
        return self._operator.counts.since(self._before)

    @property
    def late_rows(self) -> int:
        """The number of messages that came too late for every window since this instance was built."""
        return self._operator.late_rows

    @property
    def open_entries(self) -> int:
        """The number of messages that are held."""
        return self._operator.open_entries

    @property
    def next_timer_ms(self) -> int | None:
        """The time at which outputs by the clock are due."""
        return self._operator.next_timer_ms

    def output_watermark_ms(self, watermark_ms: int) -> int | None:
        """Return the watermark of the results, None as long as a result may have any time."""
        passed_on_ms = self._operator.output_watermark_ms(watermark_ms)
        return None if passed_on_ms < -FARTHEST_MS else passed_on_ms

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Process messages of an input; all messages of a batch in one call, since their offsets are in no order."""
        return self._results(self._operator.on_rows(input_number, rows, now_ms))

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Complete windows."""
        return self._results(self._operator.on_watermark(input_number, key, time_ms))

    def on_idle(self, input_number: int) -> Iterator[Output]:
        """All channels of an input are idle: nothing changes."""
        return self._results(self._operator.on_idle(input_number))

    def on_barrier(self, snapshot: int) -> Iterator[Output]:
        """Apply the limits of size."""
        return self._results(self._operator.on_barrier(snapshot))

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Yield the outputs that are due."""
        return self._results(self._operator.on_timer(now_ms))

    def on_end(self) -> Iterator[Output]:
        """Complete all windows."""
        return self._results(self._operator.on_end())

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""
        return self._operator.drain()

    def _results(self, outputs: Iterator[Output]) -> Iterator[Output]:
        yield from map(self._plan.result, outputs)
        self._plan.rejected_rows.check(self.late_rows)
        for one in self._operator.inputs:  # a watermark rejects messages, too: those that waited for a window
            rejected = self._operator.rejected(one.number)
            if rejected.num_rows and self._plan.late is LatePolicy.EMIT:
                yield self._plan.rejected_rows.row(self._plan.rejected(one.number, rejected))


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """results: the columns of results. rejected: the columns of a rejected message, with its reason."""

    late: LatePolicy
    results: pa.Schema
    rejected: pa.Schema

    def __post_init__(self) -> None:
        reserved = [name for name in self.results.names if name.lower() == REJECTED]  # Spark ignores case
        if self.late is LatePolicy.EMIT and reserved:
            raise OptionError(
                f"a result column cannot be called {reserved[0]!r}: with late='emit' that is the column of the "
                "messages that no window takes"
            )

    @property
    def schema(self) -> pa.Schema:
        """The columns of all emitted rows."""
        return pa.schema([*self.results, self._column]) if self.late is LatePolicy.EMIT else self.results

    def result(self, output: Output) -> Output:
        """Return results as rows to emit."""
        if self.late is not LatePolicy.EMIT:
            return output
        nothing = pa.nulls(output.rows.num_rows, self._column.type)
        return Output(output.rows.append_column(self._column, nothing), output.event_ms)

    def row(self, rejected: pa.Table) -> Output:
        """Return rejected messages as rows to emit, without event time, so that no watermark is ahead of them."""
        count, kind = rejected.num_rows, self._column.type
        whole = rejected.to_struct_array().combine_chunks() if count else pa.array([], kind)
        columns = [pa.nulls(count, one.type) for one in self.results]
        return Output(pa.Table.from_arrays([*columns, whole.cast(kind)], schema=self.schema), no_times(count))

    def check(self, late_rows: int) -> None:
        """Raise InputError for messages that came too late, if the plan rejects them."""
        if late_rows and self.late is LatePolicy.FAIL:
            raise InputError(
                f"{late_rows} messages came when all their windows were gone: allow a longer retention "
                "or a longer watermark lag, or choose late='drop' or late='emit'"
            )

    @property
    def _column(self) -> pa.Field:
        return pa.field(REJECTED, pa.struct(list(self.rejected)))
