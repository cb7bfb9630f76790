"""Rows that leave a join: pairs, and rows of one side padded with nulls.

Rule: nothing here decides anything; event times are those of the rows, in the result's columns, one for each axis.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous
from keyedwm.operators.join.plan import LATE, LEFT, TIMESTAMP, JoinPlan
from keyedwm.operators.results import Output

_US_PER_MS = 1000


def pairs(plan: JoinPlan, left: pa.Table, right: pa.Table, at_left: Ints, at_right: Ints) -> Output:
    """Return rows of both sides together: pair by pair the rows at these places."""
    return _laid_out(plan, (left, right), (pa.array(at_left), pa.array(at_right)), len(at_left), late=False)


def alone(plan: JoinPlan, side: int, rows: pa.Table, *, late: bool = False) -> Output:
    """Return rows of one side, padded."""
    tables = (rows, None) if side == LEFT else (None, rows)
    return _laid_out(plan, tables, (None, None), rows.num_rows, late=late)


def _laid_out(
    plan: JoinPlan, tables: tuple[pa.Table | None, pa.Table | None], places: tuple[Any, Any], count: int, *, late: bool
) -> Output:
    def column(side: int, name: str) -> pa.Array:
        table = tables[side]
        values = contiguous(table[name])  # type: ignore[index]  # only asked for where there is one
        return values if places[side] is None else values.take(places[side])

    arrays = []
    for one, *names in plan.columns:
        present = [(side, name) for side, name in enumerate(names) if name is not None and tables[side] is not None]
        arrays.append(column(*present[0]) if present else pa.nulls(count, one.type))
    if LATE in plan.result_schema.names[len(plan.columns) : len(plan.columns) + 1]:
        arrays.append(pa.repeat(late, count))
    for axis in plan.result_axes:
        side = int(axis >= len(plan.left.axes))
        if tables[side] is None:
            arrays.append(pa.nulls(count, TIMESTAMP))
        else:
            ms = column(side, plan.sides[side].times[axis - plan.first_axis(side)])
            arrays.append(pc.multiply(ms, _US_PER_MS).cast(TIMESTAMP))
    return Output(pa.Table.from_arrays(arrays, schema=plan.result_schema), None)
