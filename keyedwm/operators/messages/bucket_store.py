"""A window store in the two stages of an aggregation: whole messages are shipped, a bucket runs the store.

Rule: rows of the result are panes; with `late="emit"` also the messages that no window took (`rejected_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.exchange_input import ExchangeMessages
from keyedwm.operators.messages.bucket_operator import BucketOperator, BucketPlan
from keyedwm.operators.messages.driver import message_operator
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.store_description import FORMAT, STORE, describe
from keyedwm.operators.panes import AdditiveSetting
from keyedwm.operators.results import Output, no_times
from keyedwm.operators.state.manifest import ManifestFormat
from keyedwm.operators.state.store import BlobStore


@dataclass(frozen=True, kw_only=True)
class BucketStore(BucketPlan):
    """See `BucketPlan`. read_from: where keys are read, where their columns' names do not say it."""

    kind = STORE
    plan: StorePlan
    read_from: tuple[str, ...] = ()

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
    def panes_again(self) -> AdditiveSetting | None:
        """Why results cannot be added up, None if they can: messages come late wherever windows are of time."""
        plan = self.plan
        if not plan.accumulating or (plan.is_rows and plan.early is None):
            return None
        return AdditiveSetting.STORE if plan.kind.can_discard else AdditiveSetting.WHOLE

    @property
    def _rejected_schema(self) -> pa.Schema:
        return self.plan.rejected_schema

    def description(self) -> dict[str, Any]:
        """Return the plan's description, which decides whose state it is."""
        return {**describe(self.plan), "read_from": list(self.read_from)}


class BucketStoreOperator(BucketOperator):
    """A store behind the operator protocol; see `protocol.Operator`."""

    def __init__(self, plan: BucketStore, store: BlobStore) -> None:
        self._plan = plan
        super().__init__(message_operator(plan.plan, store))

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Take messages; all of a batch in one call, since their offsets are in no order."""
        return self._leaving(self._operator.on_rows(input_number, rows, now_ms))

    def _leaving(self, outputs: Iterator[Output]) -> Iterator[Output]:
        for output in outputs:
            event_ms = no_times(output.rows.num_rows) if self._plan.plan.is_rows else output.event_ms
            yield self._plan.rejected_rows.result(Output(output.rows, event_ms))
        rejected = self._operator.rejected()
        self._plan.rejected_rows.check(self.late_rows)
        if rejected.num_rows and self._plan.late is LatePolicy.EMIT:
            yield self._plan.rejected_rows.row(rejected)
