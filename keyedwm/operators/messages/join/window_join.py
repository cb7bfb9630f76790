"""A join of windows: its operator, and the same for a user's own program (as `WindowOperator` for one input).

Rule: pairs and rejected messages are kept until `flush`, which writes the state first.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from keyedwm.config.validation import expect
from keyedwm.operators.batch_figures import StoreCounts
from keyedwm.operators.messages.arguments import whole_ms
from keyedwm.operators.messages.driver import MessageOperator, OperatorParts
from keyedwm.operators.messages.join.grid_content import JoinedGrids
from keyedwm.operators.messages.join.join_description import FORMAT, describe
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_content import JoinedSessions, plan_of_both
from keyedwm.operators.messages.window_operator import StandaloneOperator
from keyedwm.operators.state.description import digest_of
from keyedwm.operators.state.store import BlobStore, MemoryStore


def join_operator(plan: WindowJoinPlan, store: BlobStore) -> MessageOperator:
    """Return the operator of a plan; `store` has the state that it continues."""
    parts = OperatorParts(
        content=partial(JoinedSessions if plan.is_sessions else JoinedGrids, plan),
        columns=[plan_of_both(plan)] if plan.is_sessions else plan.columns_of_sides,
        retention=plan.retention, inputs=len(plan.sides), manifest=FORMAT,
        digest=digest_of(describe(plan)),
    )  # fmt: skip
    return MessageOperator(parts, store)


class WindowJoin(StandaloneOperator[WindowJoinPlan]):
    """Two sides whose windows are joined. store: of the state, which only `flush` changes; by default in memory."""

    def __init__(self, plan: WindowJoinPlan, store: MemoryStore | None = None) -> None:
        expect("the plan of a WindowJoin", plan, WindowJoinPlan, "a WindowJoinPlan(left=..., right=..., ...)")
        super().__init__(plan, store, join_operator)

    def add_message(self, side: str, messages: pa.Table, now_ms: int | None = None) -> None:
        """Add a table of messages of a side, of any number of channels, each in order of offset.

        now_ms: wall-clock time, needed for pairs by the clock; pairs that are due by then are shown. Raises InputError
        for a missing column.
        """
        self._add_messages(self.plan.number_of(side), messages, now_ms, "pairs")

    def watermark(self, side: str, time_ms: int) -> None:
        """Promise that no further message of a side is below this event time; a lower time has no effect."""
        self._keep(self._operator.on_watermark(self.plan.number_of(side), 0, whole_ms("a watermark", time_ms)))

    def get_rejected(self, side: str) -> pa.Table:
        """Return the messages of a side that were rejected since the last `flush`, unchanged, with the reason."""
        number = self.plan.number_of(side)
        return pa.concat_tables(self._rejected[number] or [self._operator.rejected(number)])

    def counts(self, side: str) -> StoreCounts:
        """Return the counts of all messages of a side since the store was new."""
        return self._operator.inputs[self.plan.number_of(side)].counter.counts

    def next_offsets(self, side: str) -> dict[tuple[str, int], int]:
        """Return for each topic and partition of a side the offset below which all records were read."""
        return self._operator.next_offsets(self.plan.number_of(side))
