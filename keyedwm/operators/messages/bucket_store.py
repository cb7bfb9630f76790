"""A window store in the two stages of an aggregation: whole messages are shipped, a bucket runs the store.

Rule: rows of the result are panes; with `late="emit"` also the messages that no window accepted (`rejected_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from keyedwm.operators.exchange_input import ExchangeMessages
from keyedwm.operators.messages.bucket_operator import BucketPlan
from keyedwm.operators.messages.driver import MessageOperator, message_operator
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.store_description import FORMAT, STORE, describe
from keyedwm.operators.panes import RepeatedTotals
from keyedwm.operators.results import Output, no_times
from keyedwm.operators.state.manifest import ManifestFormat
from keyedwm.operators.state.store import BlobStore


@dataclass(frozen=True, kw_only=True)
class BucketStore(BucketPlan):
    """One input of messages, whose windows are of time or of rows."""

    kind = STORE
    plan: StorePlan

    @property
    def manifest_format(self) -> ManifestFormat:
        """The format of the operator's manifest."""
        return FORMAT

    @property
    def inputs(self) -> list[ExchangeMessages]:
        """The messages, spread by key, or by the channel whose offsets windows count."""
        plan = self.plan
        by = plan.kind.spread_by(plan.by, plan.record)
        return [ExchangeMessages(schema=plan.schema, by=by, time=plan.time)]

    @property
    def repeated_totals(self) -> RepeatedTotals | None:
        """Why results cannot be added up, None if they can: windows of time have late messages."""
        plan = self.plan
        if not plan.accumulating or (plan.is_rows and plan.early is None):
            return None
        return RepeatedTotals.STORE if plan.kind.can_discard else RepeatedTotals.WHOLE

    @property
    def _rejected_schema(self) -> pa.Schema:
        return self.plan.rejected_schema

    def description(self) -> dict[str, Any]:
        """Return the plan's description, which decides whose state it is."""
        return {**describe(self.plan), "read_from": list(self.read_from)}

    def message_operator(self, store: BlobStore) -> MessageOperator:
        """Return the store."""
        return message_operator(self.plan, store)

    def rejected(self, number: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002  one input
        """Return rejected messages unchanged."""
        return rows

    def result(self, output: Output) -> Output:
        """Return panes as rows; those of windows of rows have no event time."""
        event_ms = no_times(output.rows.num_rows) if self.plan.is_rows else output.event_ms
        return super().result(Output(output.rows, event_ms))
