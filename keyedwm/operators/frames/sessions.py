"""Session windows of plans without panes (rule 11; the scalar model stands in conformance/models).

Rule: partials are runs of events within the gap. They join each other and the held sessions. A session that they form
is late if it is closed. A held session is never closed, so only a run that is closed by itself needs the state.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.core.lateness import has_ended
from keyedwm.core.window_rules import LateRule
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.results import FrameOperator, Panes, outputs
from keyedwm.operators.frames.session_log import SessionLog
from keyedwm.operators.frames.session_parts import (
    MergedSessions,
    SessionParts,
    by_end,
)
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output
from keyedwm.operators.state.manifest import MANIFEST, manifest_of, read_manifest
from keyedwm.operators.state.store import BlobStore, StateChanges

_ALL_MS = 2**62


class SessionOperator(FrameOperator):
    """One instance of the operator; see `protocol.Operator`."""

    def __init__(self, plan: WindowPlan, window: SessionWindow, store: BlobStore) -> None:
        state = read_manifest(plan, store)
        super().__init__(plan, state)
        self._window = window
        self._log = SessionLog(plan, window, store, state)

    @property
    def open_entries(self) -> int:
        """The number of parts of sessions that the state holds, before they are merged."""
        return self._log.entries

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:  # noqa: ARG002  one input, no clock
        """Hold partials; yield expired rows."""
        new = SessionParts.of_tables(self._plan, self._log.keys, [rows])
        if self._plan.late_rule is LateRule.EVENT:
            late = self._is_behind(rows)
            if late.any():
                yield from self._expired(self._whole(new.where(late)))
                new = new.where(~late)
        new = self._whole(new)
        closed_ms = self._window.horizon_ms(self.watermark_ms)
        is_closed = has_ended(new.ends, closed_ms)
        if is_closed.any():
            session_ends = self._session_ends(new.where(is_closed))
            late = has_ended(session_ends, closed_ms)
            yield from self._expired(new.where(is_closed).where(late))
            new = SessionParts.together(
                self._plan, [new.where(~is_closed), _as_wide(new.where(is_closed), session_ends).where(~late)]
            )
        self._log.append(new)

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:  # noqa: ARG002  one input and key
        """Close the sessions that accept no more rows, but not more than the plan allows."""
        if self._results_left == 0 or (self.watermark_ms is not None and time_ms <= self.watermark_ms):
            return
        yield from self._close(time_ms)

    def on_end(self) -> Iterator[Output]:
        """Close every session, and clear the state."""
        self._results_left = None
        yield from self._close(_ALL_MS)

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""
        changes = self._log.drain()
        state = {"watermark_ms": self.watermark_ms, **self._log.state()}
        return StateChanges({**changes.blobs, MANIFEST: manifest_of(self._plan, state)}, changes.removed)

    def _close(self, time_ms: int) -> Iterator[Output]:
        closing, self.watermark_ms = self._log.close(time_ms, self._results_left)
        if self._results_left is not None:
            self._results_left = max(0, self._results_left - len(closing))
        for piece in by_end(closing):
            yield from outputs(self._plan, self._log.keys, _panes(piece, PaneTiming.ON_TIME))

    def _whole(self, new: SessionParts) -> SessionParts:
        """Join the runs of several tasks."""
        return MergedSessions(self._plan, self._window, new).merged(np.ones(len(new), bool))

    def _session_ends(self, new: SessionParts) -> Ints:
        """Return for each new run the end of the session that it forms with the held sessions."""
        parts = self._log.parts_of_keys(new.entries.keys)
        runs = MergedSessions(self._plan, self._window, SessionParts.together(self._plan, [parts, new]))
        return runs.ends[runs.ids[len(parts) :]]

    def _expired(self, late: SessionParts) -> Iterator[Output]:
        yield from self._late_sessions(self._log.keys, _panes(late, PaneTiming.EXPIRED))


def _panes(parts: SessionParts, timing: PaneTiming) -> Panes:
    return Panes(parts.entries, parts.starts, parts.ends, timing, np.zeros(len(parts), np.int64), last=True)


def _as_wide(new: SessionParts, ends: Ints) -> SessionParts:
    """Return runs extended to the end of their session, so that no part of an open session ends in the closed range."""
    return SessionParts(new.entries, new.starts, ends)
