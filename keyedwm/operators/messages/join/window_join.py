"""A join of windows: its operator, and one for a program of one's own (`WindowOperator` for one side alone).

Rule: pairs and rejected messages are kept until `flush`, which writes the state first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from keyedwm.config.validation import expect
from keyedwm.core.errors import OptionError
from keyedwm.operators.messages.arguments import whole_ms
from keyedwm.operators.messages.driver import MessageOperator, Parts
from keyedwm.operators.messages.join.grid_shape import JoinedGrids
from keyedwm.operators.messages.join.join_description import FORMAT, describe
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_shape import JoinedSessions, plan_of_both
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.results import Output
from keyedwm.operators.state.description import digest_of
from keyedwm.operators.state.store import BlobStore, MemoryStore, checked_store


def join_operator(plan: WindowJoinPlan, store: BlobStore) -> MessageOperator:
    """Return the operator of a plan; `store` is the state that it goes on from."""
    parts = Parts(
        shape=partial(JoinedSessions if plan.is_sessions else JoinedGrids, plan),
        columns=[plan_of_both(plan)] if plan.is_sessions else plan.columns_of_sides,
        retention=plan.retention, inputs=len(plan.sides), manifest=FORMAT,
        digest=digest_of(describe(plan)),
    )  # fmt: skip
    return MessageOperator(parts, store)


class WindowJoin:
    """Two sides whose windows are joined. store: where the state is, changed by `flush` alone; one in memory else."""

    def __init__(self, plan: WindowJoinPlan, store: MemoryStore | None = None) -> None:
        expect("the plan of a WindowJoin", plan, WindowJoinPlan, "a WindowJoinPlan(left=..., right=..., ...)")
        self.plan = plan
        self.store = checked_store(store)
        self._operator = join_operator(plan, self.store)
        self._results: list[pa.Table] = []
        self._rejected: list[list[pa.Table]] = [[] for _ in plan.sides]

    def add_message(self, side: str, messages: pa.Table, now_ms: int | None = None) -> None:
        """Take a table of messages of a side, of any number of channels, each in order of offset.

        now_ms: wall-clock time, needed for pairs by the clock; what is due by then is shown. Raises InputError for a
        missing column.
        """
        number = self.plan.number_of(side)
        if now_ms is None and self.plan.by_clock:
            raise OptionError("the plan has pairs by the clock: give add_message the wall-clock time as now_ms")
        clock_ms = None if now_ms is None else whole_ms("now_ms", now_ms)
        self._keep(self._operator.on_rows(number, messages, clock_ms))
        if clock_ms is not None:
            self._keep(self._operator.on_timer(clock_ms))

    def watermark(self, side: str, time_ms: int) -> None:
        """Promise that no message of a side below this event time is expected; a lower one has no effect."""
        self._keep(self._operator.on_watermark(self.plan.number_of(side), 0, whole_ms("a watermark", time_ms)))

    def timeout(self, now_ms: int) -> None:
        """Let wall-clock time pass: pairs every so often."""
        self._keep(self._operator.on_timer(whole_ms("now_ms", now_ms)))

    def get_result(self) -> pa.Table:
        """Return all pairs since the last `flush`, oldest first; asked twice it says the same."""
        return pa.concat_tables([self.plan.result_schema.empty_table(), *self._results])

    def get_rejected(self, side: str) -> pa.Table:
        """Return the messages of a side that were given back since the last `flush`, as they came, with the reason."""
        number = self.plan.number_of(side)
        self._rejected[number].append(self._operator.rejected(number))
        return pa.concat_tables(self._rejected[number])

    def flush(self) -> pa.Table:
        """Apply the limits of size, write the state, and return the pairs, which are then forgotten here."""
        self._keep(self._operator.on_barrier(0))
        results = self.get_result()
        self.store.apply(self._operator.drain())
        self._results.clear()
        for number in range(len(self.plan.sides)):
            self._operator.rejected(number)
            self._rejected[number].clear()
        return results

    def finish(self) -> None:
        """The input has ended: what waits is shown, and nothing is kept."""
        self._keep(self._operator.on_end())

    def counts(self, side: str) -> StoreCounts:
        """Return what became of all messages of a side since the store was new."""
        return self._operator.inputs[self.plan.number_of(side)].account.counts

    @property
    def next_timeout_ms(self) -> int | None:
        """The wall-clock time at which `timeout` has something to do, None if nothing waits."""
        return self._operator.next_timer_ms

    def next_offsets(self, side: str) -> dict[tuple[str, int], int]:
        """Return for each topic and partition of a side the offset below which all is known."""
        return self._operator.next_offsets(self.plan.number_of(side))

    def _keep(self, made: Iterator[Output]) -> None:
        self._results += [output.rows for output in made]
