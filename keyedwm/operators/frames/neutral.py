"""Entries that stand for no event: what a window holds before its first row, or once a pane showed all of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.aggregates.aggregate_function import RowOrder, Spans
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.operators.state.entries import Entries, over_spans


def neutral(plan: WindowPlan, keys: Ints) -> Entries:
    """Entries of these keys that stand for no event."""
    rows = RowOrder(
        np.zeros(len(keys), np.int64), tuple(pa.nulls(len(keys), inner.type) for inner in plan.order_fields)
    )
    accumulators = tuple(
        tuple(function.lift(spec.no_values(plan.schema, len(keys)), rows))
        for (_, spec), function in zip(plan.aggregates, plan.functions, strict=True)
    )
    return Entries(keys, np.zeros(len(keys), np.int64), accumulators)


def neutral_totals(plan: WindowPlan, keys: Ints) -> Entries:
    """Totals of no event, as `over_spans` has totals: an aggregate may hold them otherwise than what is merged."""
    places = np.arange(len(keys))
    return over_spans(plan, neutral(plan, keys), Spans(places, places + 1))
