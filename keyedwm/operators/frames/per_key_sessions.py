"""Sessions that close by a watermark of their key, with and without panes.

Rule: as with windows (`per_key_windows`): the operator of sessions gets `W - behind` as its watermark, and a batch also
closes the sessions that the watermarks of its keys have passed. It holds only the sessions of these keys. Rows of a
closed session stay in the log until the log is rewritten; a reader sees by the key's watermark that they are closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.core.lateness import NEVER, delay_ms, has_ended
from keyedwm.operators.batch_figures import KeyWatermarkSummary
from keyedwm.operators.frames.owned_sessions import OwnedSessionTable
from keyedwm.operators.frames.paned_sessions import PanedSessionOperator
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.session_table import PanedSessions
from keyedwm.operators.keyed.key_watermarks import KeyWatermarks
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.results import CHANNEL, LAST, Output
from keyedwm.operators.state.hashed_keys import HashedKeys
from keyedwm.operators.state.manifest import read_manifest
from keyedwm.operators.state.store import BlobStore


class PerKeySessionOperator(PanedSessionOperator):
    """One instance of the operator; its `watermark_ms` is `W - behind`."""

    def __init__(self, plan: WindowPlan, window: SessionWindow, per_key: PerKey, store: BlobStore) -> None:
        super().__init__(plan, window, store)
        self._behind_ms = per_key.behind_ms
        state = read_manifest(plan, store)
        self._own = KeyWatermarks(plan, per_key, self._logs, state)
        self._own.rise(self.watermark_ms)
        self._keys: HashedKeys = self._own.owners if plan.owners == plan.by else HashedKeys(plan.key_fields)
        self._table: OwnedSessionTable = OwnedSessionTable(
            plan, window, self._keys, self._logs, self._gone_ms(), self._own, self._is_gone, state
        )
        self._numbers: Ints | None = None  # the keys of a batch, if they own their watermarks
        self._effective_before: Ints | None = None  # of each owner, while rows of a batch are processed
        self._row_watermarks: Ints = np.empty(0, np.int64)  # the effective watermark before each of these rows

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return `W - behind`, less the allowed lateness."""
        return super().output_watermark_ms(watermark_ms - self._behind_ms)

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Hold partials; their keys' earlier watermarks decide lateness. Then close sessions of these keys."""
        rows, owners = self._own.number_rows(rows, in_order=self._plan.row_by_row)
        self._numbers = owners if self._keys is self._own.owners else None
        self._table.load(owners)  # by the watermarks at the time of writing
        self._effective_before = self._own.effective_ms()
        channels = ints(contiguous(rows[CHANNEL])) if self._plan.channel else None
        times = ints(contiguous(rows[LAST]))
        self._row_watermarks = self._own.advance(owners, channels, times, row_by_row=self._plan.row_by_row)
        yield from super().on_rows(input_number, rows, now_ms)
        self._effective_before = None
        yield from self._close()

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Close the sessions that end up to `W - behind`, and sessions of idle keys up to W."""
        floor_ms = time_ms - self._behind_ms
        if self.watermark_ms is not None and floor_ms <= self.watermark_ms:
            return
        lateness = {0, self._plan.lateness_ms}  # sessions that show their last pane, and sessions that are gone
        until = [
            (self._window.horizon_ms(self.watermark_ms, ms), self._window.horizon_ms(floor_ms, ms)) for ms in lateness
        ]
        self._table.load_due(until)
        self._own.rise(floor_ms)
        idle = self._own.idle_owners(self._done_ms)
        if len(idle):
            self._table.load(idle)
            self._own.close_idle(idle, self._done_ms)
        yield from super().on_watermark(input_number, key, floor_ms)

    def on_end(self) -> Iterator[Output]:
        """Close every session, and clear the state."""
        self._table.load_all()
        yield from super().on_end()
        self._own.end()

    def key_summary(self) -> KeyWatermarkSummary:
        """Return the figures of the keys at the end of a batch."""
        return self._own.key_summary()

    def _manifest_state(self) -> dict[str, Any]:
        return {**super()._manifest_state(), **self._own.state(), **self._table.state()}

    def _numbered(self, rows: pa.Table) -> Ints:
        return super()._numbered(rows) if self._numbers is None else self._numbers

    def _show_early(self) -> Iterator[Output]:
        self._table.load_all()
        yield from super()._show_early()

    def _watermarks_before(self) -> Ints:
        return self._row_watermarks

    def _expired(self, late: PanedSessions) -> Iterator[Output]:
        if len(late):
            self._own.count_dropped(
                self._own.owners_of_keys(self._keys, self._plan.by, late.entries.keys), late.entries.rows
            )
        return super()._expired(late)

    def _closed(self, sessions: PanedSessions, lateness_ms: int) -> Flags:
        return self._ended(sessions, self._watermarks_of(sessions), lateness_ms)

    def _watermarks_of(self, sessions: PanedSessions) -> Ints:
        owners = self._own.owners_of_keys(self._keys, self._plan.by, sessions.entries.keys)
        watermarks = self._own.effective_ms()
        if self._effective_before is not None:  # keys that are not in the batch have not changed
            watermarks[: len(self._effective_before)] = self._effective_before
        return watermarks[owners]

    def _ended(self, sessions: PanedSessions, watermarks: Ints, lateness_ms: int) -> Flags:
        return has_ended(sessions.ends, watermarks - delay_ms(lateness_ms, self._window.touching))

    def _is_gone(self, sessions: PanedSessions) -> Flags:
        owners = self._own.owners_of_keys(self._keys, self._plan.by, sessions.entries.keys)
        return self._ended(sessions, self._own.stored_ms()[owners], self._plan.lateness_ms)

    def _done_ms(self, tops: Ints) -> Ints:
        """Return for keys with these highest event times the time from which they have no session."""
        until = self._window.gap_ms + delay_ms(self._plan.lateness_ms, self._window.touching)
        return np.where(tops > NEVER // 2, tops + until, NEVER)
