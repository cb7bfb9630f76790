"""A join of windows in the two stages of an operator: whole messages of both sides are shipped, a bucket joins them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import REASON
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.exchange_input import ExchangeMessages
from keyedwm.operators.messages.bucket_operator import BucketPlan
from keyedwm.operators.messages.driver import MessageOperator
from keyedwm.operators.messages.join.join_description import FORMAT, WINDOW_JOIN, describe
from keyedwm.operators.messages.join.plan import LEFT, Emit, Keep, WindowJoinPlan
from keyedwm.operators.messages.join.window_join import join_operator
from keyedwm.operators.panes import RepeatedTotals
from keyedwm.operators.state.manifest import ManifestFormat
from keyedwm.operators.state.store import BlobStore

SIDE = "side"


@dataclass(frozen=True, kw_only=True)
class BucketWindowJoin(BucketPlan):
    """Two inputs of messages, whose windows are joined."""

    kind = WINDOW_JOIN
    short_name = "window-join"
    plan: WindowJoinPlan

    def __post_init__(self) -> None:
        reserved = {name.lower() for name in self._merged if name.lower() in (SIDE, REASON)}
        if reserved and self.late is LatePolicy.EMIT:
            raise OptionError(
                f"a column of the messages cannot be called {min(reserved)!r}: rejected messages have a column of that "
                "name; rename it"
            )
        super().__post_init__()

    @property
    def manifest_format(self) -> ManifestFormat:
        """The format of the operator's manifest."""
        return FORMAT

    @property
    def inputs(self) -> list[ExchangeMessages]:
        """The messages of left and right, spread by the columns joined on, or for windows of rows by partition."""
        return [
            ExchangeMessages(schema=side.schema, by=(side.partition,) if self.plan.is_rows else side.on, time=side.time)
            for side in self.plan.sides
        ]

    @cached_property
    def _merged(self) -> dict[str, tuple[pa.DataType, dict[int, str]]]:
        """The columns of messages of either side: name → type, and the column's name in each side that has it.

        A column that both sides have is one column; if the types differ, each has its side's name.
        """
        columns: dict[str, tuple[pa.DataType, dict[int, str]]] = {}
        by_name = [{one.name.lower(): one for one in side.schema} for side in self.plan.sides]
        for number, side in enumerate(self.plan.sides):
            for one in side.schema:
                other = by_name[1 - number].get(one.name.lower())
                if other is not None and other.type != one.type:
                    columns[f"{one.name}_{side.name}"] = (one.type, {number: one.name})
                elif other is None or number == LEFT:
                    columns[one.name] = (one.type, {number: one.name})
                else:
                    columns[other.name][1][number] = one.name
        return columns

    @property
    def repeated_totals(self) -> RepeatedTotals | None:
        """Why rows cannot be added up, None if they can: a window with one row emits the row again when it changes."""
        again = self.plan.keep is not Keep.ALL or self.plan.emit is Emit.RUNNING
        return RepeatedTotals.WHOLE if again else None

    @property
    def _rejected_schema(self) -> pa.Schema:
        merged = [pa.field(name, kind) for name, (kind, _) in self._merged.items()]
        return pa.schema([*merged, pa.field(SIDE, pa.string()), pa.field(REASON, pa.string())])

    def rejected(self, number: int, rows: pa.Table) -> pa.Table:
        """Return rejected messages of a side in the columns of both sides."""
        columns = [
            rows[names[number]] if number in names else pa.nulls(rows.num_rows, kind)
            for kind, names in self._merged.values()
        ]
        description = pa.repeat(self.plan.sides[number].name, rows.num_rows)
        return pa.Table.from_arrays([*columns, description, rows[REASON]], schema=self.rejected_rows.rejected)

    def description(self) -> dict[str, Any]:
        """Return the plan's description, which decides whether a state belongs to it."""
        return describe(self.plan) | ({"read_from": list(self.read_from)} if self.read_from else {})

    def message_operator(self, store: BlobStore) -> MessageOperator:
        """Return the join."""
        return join_operator(self.plan, store)
