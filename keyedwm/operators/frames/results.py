"""The base of frames' operators, and their outputs: keys, window, aggregates, pane, by end, start and key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.core.lateness import check_late, horizon_ms, is_behind
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import LAST, Output, QuietOperator, pane_column, window_column
from keyedwm.operators.state.entries import Accumulators, finished
from keyedwm.operators.state.key_dictionary import KeyDictionary


@dataclass(frozen=True, slots=True)
class Panes:
    """Panes of one timing: an entry, an interval and a pane index each."""

    entries: Accumulators
    starts_ms: Ints
    ends_ms: Ints
    timing: PaneTiming
    index: Ints
    last: bool

    def __len__(self) -> int:
        return len(self.entries)


class FrameOperator(QuietOperator):
    """The base of operators of windows and sessions. state: the content of its manifest."""

    def __init__(self, plan: WindowPlan, state: Mapping[str, Any]) -> None:
        self._plan = plan
        self.watermark_ms: int | None = state.get("watermark_ms")
        self.late_rows = 0
        self._results_left = plan.most_rows

    def _is_behind(self, partials: pa.Table) -> Flags:
        """Return which partials are behind the watermark, by the time of their last row."""
        return is_behind(ints(contiguous(partials[LAST])), self._watermarks_before())

    def _watermarks_before(self) -> Ints | int:
        """Return the effective watermark of each partial."""
        return horizon_ms(self.watermark_ms)

    def _late_sessions(self, keys: KeyDictionary, late: Panes) -> Iterator[Output]:
        """Drop, emit or reject late sessions. late: their panes, to be emitted."""
        rows = int(late.entries.rows.sum())
        if rows:
            self._count_late(rows, int(late.starts_ms.min()))
        if self._plan.late is LatePolicy.EMIT:
            yield from outputs(self._plan, keys, late)

    def _count_late(self, rows: int, time_ms: int) -> None:
        """Count late rows; raise InputError if the plan rejects late rows. time_ms: the earliest time of these rows."""
        self.late_rows += rows
        per_key = self._plan.key_watermark is not None
        check_late(self._plan.late, rows, time_ms, self.watermark_ms, per_key=per_key)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark of the results: less the allowed lateness, and not above the results emitted so far."""
        if self._plan.most_rows is not None and self.watermark_ms is not None:
            watermark_ms = min(watermark_ms, self.watermark_ms)
        return watermark_ms - self._plan.lateness_ms


def outputs(plan: WindowPlan, keys: KeyDictionary, panes: Panes) -> Iterator[Output]:
    """Yield the panes as rows of `plan.result_schema`, ordered; nothing if there are none."""
    if not len(panes):
        return
    ranks = keys.ranks(panes.entries.keys)
    order = _order(ranks, panes.starts_ms, panes.ends_ms)
    entries = panes.entries.take_rows(order)
    window = window_column(panes.starts_ms[order], panes.ends_ms[order])
    pane = pane_column(panes.timing.value, panes.index[order], last=panes.last)
    columns = [*keys.columns(entries.keys), window, *finished(plan, entries), pane]
    yield Output(pa.Table.from_arrays(columns, schema=plan.result_schema), event_times(plan, panes.ends_ms[order]))


def event_times(plan: WindowPlan, ends_ms: Ints) -> Ints:
    """Return the event time of results: the last millisecond at which their windows are still open.

    So no result is late by an earlier watermark of its operator: a window closes at W >= end. A session that merges
    with an event exactly at its end closes at W > end (rule 11).
    """
    return ends_ms if plan.merges_touching else ends_ms - 1


def _order(ranks: Ints, starts_ms: Ints, ends_ms: Ints) -> Ints:
    """Return the order by end, start and key."""
    span = int(ends_ms.max()) - int(ends_ms.min())
    by_key = np.arange(len(ranks)) if (np.diff(ranks) >= 0).all() else np.argsort(ranks, kind="stable")
    if (np.diff(ends_ms - starts_ms) == 0).all():
        codes = ends_ms[by_key] - ends_ms.min()
        return by_key[np.argsort(codes.astype(np.uint16) if span < 2**16 else codes, kind="stable")]
    return np.lexsort((ranks, starts_ms, ends_ms))
