"""The panes of windows over frames and of sessions, whose numbers of rows are known; see `operators/panes.py`.

Theory. Two ends of the operator decide which phase a window is in, and neither goes back:

    the window is   while                    rows that come to it     when the phase ends
    open            complete < end           may show an early pane   it shows its pane on time, once
    complete        kept < end <= complete   show a late pane         nothing
    gone            end <= kept              are expired              -

`complete` follows the watermark, and `kept` is lower by the allowed lateness. For each window three numbers are
known (`FiredCounts`): how many panes it fired, how many rows the last pane reported, and whether it fired on time. So
panes by count depend on `unshown = rows - FiredCounts.rows`, and panes by time on `unshown > 0`. Panes that accumulate
keep the rows and raise `FiredCounts.rows` to their number. Panes that discard remove the rows and set both to 0.

If windows merge (sessions), the whole has the unshown rows of all parts, and its pane numbers continue from the highest
count. A session with a new row counts as not shown on time: it is open again if it has grown beyond `complete`, else it
shows a late pane.

The interval of early panes by the clock begins with the first batch, with or without rows, so that all buckets fire
together: a batch that only the clock causes must have the barriers of all buckets. At the end of the interval each open
window with unshown rows shows a pane, whichever batches brought the rows. With `key_watermark` each key has its own
`complete`: see `per_key_windows.py`.

The calls of a batch: `on_rows` and `on_merge` while rows are read, `at_once` when they are stored. Then `closed` after
a watermark, `beats` for early panes by time, `fired` for panes that leave, and `state` when state is written.

Neutral entries stand for no event: a window has them before its first row, or after a pane showed all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.aggregates.aggregate_function import RowOrder, Spans
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.operators.frames.results import FrameOperator
from keyedwm.operators.kernels import add_by_group, highest_by_group
from keyedwm.operators.panes import Early, EveryBy, Now, PanePolicy, PaneTiming
from keyedwm.operators.results import Output
from keyedwm.operators.state.column_rows import ColumnRows
from keyedwm.operators.state.entries import Accumulators, over_spans
from keyedwm.operators.state.manifest import MANIFEST, manifest_of, read_manifest
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs

ANY = (0,)  # some window has unshown rows


@dataclass(frozen=True, slots=True)
class FiredCounts(ColumnRows):
    """Rows and panes that windows have shown, by window. rows: of the last pane. on_time: 1 after the on-time pane."""

    panes: Ints
    rows: Ints
    on_time: Ints


class FramePanes(PanePolicy):
    """See the theory above. state: the result of `state`."""

    def __init__(self, early: Early | None, lateness_ms: int, *, accumulating: bool, state: Mapping[str, Any]) -> None:
        began = None if early is None else [state.get("due_ms"), 0 if early.by_event else None]
        super().__init__(early, None, {PaneTiming.EARLY.value: began}, keeps_beat=False)
        self._lateness_ms = lateness_ms
        self.has_panes = early is not None or lateness_ms > 0
        self.accumulating = accumulating or not self.has_panes
        self.by_rows = early is not None and early.rows is not None
        self.by_time = early is not None and early.every_ms is not None

    def on_rows(self, now_ms: int | None) -> None:
        """Called when a batch brings rows, before they are held: the clock's interval begins with the first batch."""
        if self._early is not None and self._early.by_clock:
            self.begin(PaneTiming.EARLY, Now(now_ms, 0), ANY)

    def on_merge(self, parts: FiredCounts, windows: Ints, has_new: Flags) -> FiredCounts:
        """Called when windows become one; return the rows and panes that each merged window has shown.

        windows: for each part, the number of its merged window. has_new: which merged windows have new rows.
        """
        count = len(has_new)
        on_time = highest_by_group(parts.on_time, windows, count)
        on_time[has_new] = 0
        return FiredCounts(
            highest_by_group(parts.panes, windows, count), add_by_group(parts.rows, windows, count), on_time
        )

    def at_once(self, unshown: Ints, is_complete: Flags) -> tuple[Flags, Flags]:
        """Called when new rows of windows are held. Return which windows show a late pane, and which an early one."""
        enough = self.fire_threshold(PaneTiming.EARLY, waits=False)
        if enough is None:
            return is_complete, np.zeros(len(unshown), bool)
        return is_complete, ~is_complete & (unshown >= enough)

    def closed(self, fired_counts: FiredCounts, is_complete: Flags) -> Flags:
        """Called when the watermark has moved. Return which windows show their pane on time now."""
        return is_complete & (fired_counts.on_time == 0)

    def beats(self, by: EveryBy, now_ms: int) -> bool:
        """Called when clock or event time has advanced. Return whether open windows with unshown rows show a pane."""
        if not self.by_time or self._early is None or self._early.by is not by:
            return False
        now = Now(now_ms, now_ms)
        self.begin(PaneTiming.EARLY, now, ANY)
        if PaneTiming.EARLY not in self.due(by, now_ms):
            return False
        self.left(PaneTiming.EARLY, ())
        self.begin(PaneTiming.EARLY, now, ANY)
        return True

    def fired(self, fired_counts: FiredCounts, rows: Ints, timing: PaneTiming) -> FiredCounts:
        """Called when some windows emit a pane each. rows: their counts; return rows and panes shown afterwards."""
        shown_rows = rows if self.accumulating else np.zeros(len(rows), np.int64)
        return FiredCounts(fired_counts.panes + 1, shown_rows, np.full(len(rows), int(timing is not PaneTiming.EARLY)))

    def is_last(self, timing: PaneTiming) -> bool:
        """Whether no pane of a window follows one of this timing."""
        return timing is PaneTiming.EXPIRED or (timing is PaneTiming.ON_TIME and not self._lateness_ms)

    def state(self) -> dict[str, Any]:
        """Called when the state is written. Return the state for a later instance, ready for JSON."""
        return {"due_ms": self._times[PaneTiming.EARLY].due_ms}


def neutral(plan: WindowPlan, keys: Ints) -> Accumulators:
    """Return accumulators of no event for these keys."""
    rows = RowOrder(
        np.zeros(len(keys), np.int64), tuple(pa.nulls(len(keys), inner.type) for inner in plan.order_fields)
    )
    accumulators = tuple(
        tuple(function.lift(spec.no_values(plan.schema, len(keys)), rows))
        for (_, spec), function in zip(plan.aggregates, plan.functions, strict=True)
    )
    return Accumulators(keys, np.zeros(len(keys), np.int64), accumulators)


def neutral_totals(plan: WindowPlan, keys: Ints) -> Accumulators:
    """Return totals of no event, as `over_spans` returns totals: their form may differ from that of accumulators."""
    places = np.arange(len(keys))
    return over_spans(plan, neutral(plan, keys), Spans(places, places + 1))


class PanedOperator(FrameOperator, ABC):
    """The base of operators whose windows or sessions may show early and late panes."""

    def __init__(self, plan: WindowPlan, store: BlobStore) -> None:
        state = read_manifest(plan, store)
        super().__init__(plan, state)
        self._policy = FramePanes(plan.early, plan.lateness_ms, accumulating=plan.accumulating, state=state)
        self._logs = TableLogs(store, manifest=MANIFEST, state=state)

    @property
    def next_timer_ms(self) -> int | None:
        """The time at which early panes by the clock are due."""
        return self._policy.next_timer_ms

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Yield early panes by the clock, if they are due."""
        if self._policy.beats(EveryBy.CLOCK, now_ms):
            yield from self._show_early()

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""
        changes = self._drained()
        manifest = manifest_of(self._plan, self._manifest_state())
        return StateChanges({**changes.blobs, MANIFEST: manifest}, changes.removed)

    def _manifest_state(self) -> dict[str, Any]:
        return {"watermark_ms": self.watermark_ms, **self._policy.state(), **self._logs.state()}

    @abstractmethod
    def _show_early(self) -> Iterator[Output]:
        """Yield early panes of the open windows with unshown rows."""

    @abstractmethod
    def _drained(self) -> StateChanges:
        """Return the changes of the logs."""
