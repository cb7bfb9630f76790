"""What leaves an operator: by columns, window, aggregates, pane; in order of end, start, key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.windows.columns import Ints
from keyedwm.windows.entries import Entries, finished
from keyedwm.windows.keys import Keys
from keyedwm.windows.plan import PANE_TYPE, WINDOW_TYPE, Plan, Timing

_MICROS = WINDOW_TYPE.field(0).type


@dataclass(frozen=True, slots=True)
class Panes:
    """Emissions of one timing: an entry, an interval and a pane's number each."""

    entries: Entries
    starts_ms: Ints
    ends_ms: Ints
    timing: Timing
    index: Ints
    last: bool

    def __len__(self) -> int:
        return len(self.entries)


def results(plan: Plan, keys: Keys, panes: Panes) -> pa.Table:
    """Return the panes as rows of `plan.result_schema`, ordered."""
    if not len(panes):
        return plan.result_schema.empty_table()
    ranks = keys.ranks(panes.entries.keys)
    order = _order(ranks, panes.starts_ms, panes.ends_ms)
    entries = panes.entries.take(order)
    rows = len(entries)
    window = pa.StructArray.from_arrays(
        [_instants(panes.starts_ms[order]), _instants(panes.ends_ms[order])], fields=list(WINDOW_TYPE)
    )
    pane = pa.StructArray.from_arrays(
        [
            pa.repeat(panes.timing.value, rows),
            pa.array(panes.index[order].astype(np.int32)),
            pa.repeat(panes.last, rows),
        ],
        fields=list(PANE_TYPE),
    )
    columns = [*keys.columns(entries.keys), window, *finished(plan, entries), pane]
    return pa.Table.from_arrays(columns, schema=plan.result_schema)


def together(plan: Plan, tables: Sequence[pa.Table]) -> pa.Table:
    """Some results behind each other."""
    full = [table for table in tables if table.num_rows]
    return pa.concat_tables(full) if full else plan.result_schema.empty_table()


def _order(ranks: Ints, starts_ms: Ints, ends_ms: Ints) -> Ints:
    """By end, start, key."""
    span = int(ends_ms.max()) - int(ends_ms.min())
    by_key = np.arange(len(ranks)) if (np.diff(ranks) >= 0).all() else np.argsort(ranks, kind="stable")
    if (np.diff(ends_ms - starts_ms) == 0).all():
        codes = ends_ms[by_key] - ends_ms.min()
        return by_key[np.argsort(codes.astype(np.uint16) if span < 2**16 else codes, kind="stable")]
    return np.lexsort((ranks, starts_ms, ends_ms))


def _instants(times_ms: Ints) -> pa.Array:
    return pa.array(times_ms * 1000).view(_MICROS)


def late_sentence(rows: int, time_ms: int, watermark_ms: int | None) -> str:
    """For `late="fail"`."""
    return (
        f"{rows} rows came late, from {time_ms} ms on, behind the watermark {watermark_ms} ms; allow more "
        "lateness or a longer watermark lag, or choose late='drop' or late='emit'"
    )
