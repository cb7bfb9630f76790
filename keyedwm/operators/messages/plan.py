"""The plan of windows that keep their messages, checked when it is built.

Rule: a plan that can be built can run, and two plans with the same digest have the same state and the same results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import pyarrow as pa

from keyedwm.config.validation import MS, expect, expect_member, names, number_or_none, pairs, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.messages.arguments import check_early, check_late, check_record
from keyedwm.operators.messages.functions import FullState, FullStateSpec, bound
from keyedwm.operators.messages.message_plan import ARRIVAL, MessageLayout, MessagePlan
from keyedwm.operators.panes import Early, EveryBy, Late
from keyedwm.operators.plan_checks import check_aggregation
from keyedwm.operators.results import PANE, PANE_TYPE


class Reason(Enum):
    """Why a message was rejected."""

    NO_TIME = "no event time"
    RETENTION = "outside the retention"
    GAP = "between windows"


@dataclass(frozen=True, kw_only=True)
class StorePlan(MessageLayout, MessagePlan):
    """One aggregation over messages that are kept. `schema`: the messages' columns, which are all kept and returned.

    Late messages within the retention update its result at once. With
    `late_every_ms` they do it together, this long after the first of them (`late_by`: wall clock, or event time). With
    `late_rows` they do it after this number for a key and window, and the rest when the window is dropped. Every pane
    holds the whole result; without `accumulating`, the result of the messages since the previous pane.
    """

    aggregates: tuple[tuple[str, AggregateSpec | FullStateSpec], ...]
    early: Early | None = None
    late_every_ms: int | None = None
    late_rows: int | None = None
    late_by: EveryBy = EveryBy.CLOCK
    accumulating: bool = True
    functions: tuple[FullState, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_kinds()
        result_names, places = [name for name, _ in self.aggregates], self.record[:2] if self.is_rows else ()
        check_aggregation(
            self.schema, by=self.by, time=self.time, order=self.record, aggregates=result_names, places=places
        )
        check_record(self.schema, self.record)
        order = self.record
        time = self.time if self.is_rows else None
        functions = tuple(bound(spec, self.schema, order, time) for _, spec in self.aggregates)
        object.__setattr__(self, "functions", functions)
        self.kind.check(self)
        if not self.accumulating and ARRIVAL in self.schema.names:
            raise OptionError(f"with accumulating=False a message's column cannot be called {ARRIVAL!r}: rename it")
        check_early(by_event=self.early is not None and self.early.by_event, is_rows=self.is_rows)
        by_event = self.late_by is EveryBy.EVENT
        check_late(self.late_every_ms, self.late_rows, by_event=by_event, is_rows=self.is_rows)

    def _check_kinds(self) -> None:
        expect("the schema of messages", self.schema, pa.Schema, "a pyarrow.Schema")
        expect("early", self.early, (Early, type(None)), "Early(rows=..., every_ms=...), or nothing,")
        expect("accumulating", self.accumulating, bool, "True or False")
        expect_member("late_by", self.late_by, EveryBy)
        set_fields(
            self, by=names("by", self.by), aggregates=pairs("aggregates", self.aggregates, "(('rows', count()),)"),
            late_every_ms=number_or_none("the interval of late panes", self.late_every_ms, MS),
            late_rows=number_or_none("late_rows", self.late_rows), is_rows=self.kind.is_rows,
        )  # fmt: skip

    @property
    def late(self) -> Late:
        """When late panes come."""
        return Late(self.late_rows, self.late_every_ms, self.late_by)

    @property
    def has_other_panes(self) -> bool:
        """Whether windows show other panes than one on time and one with each late message."""
        late = self.late_every_ms is not None or self.late_rows is not None
        return late or self.early is not None or not self.accumulating

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of panes: key columns, `window`, one per aggregate, `pane`; for rows also topic and partition."""
        channel = [self.schema.field(name) for name in self.record[:2]] if self.is_rows else []
        fields = [
            pa.field(name, function.result) for (name, _), function in zip(self.aggregates, self.functions, strict=True)
        ]
        return pa.schema([*self.key_fields, *channel, self.window_field, *fields, pa.field(PANE, PANE_TYPE)])

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The columns of held messages."""
        return self.schema if self.accumulating else self.schema.append(pa.field(ARRIVAL, pa.int64()))
