"""Each row with the latest change of its key at or before its event time (a join with a versioned table).

Rule: a row waits until the changes' watermark is above its event time: then no more change can count for it. A change
is stored as long as a waiting or later row can match it. So at least the latest change of each key is stored. The calls
are those of `keyedwm.operators.protocol.Operator`: rows are input 0, changes input 1.

If changes have the same key and event time, the last to arrive counts, so each has its place in the order of arrival.
No further row is below the limit: of the changes at or below the limit, the latest change of each key is kept.
Superseded changes are removed when the table has grown to twice its size, so each change is rewritten a few times at
most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.operators.join.exchange_side import HASH, same_keys
from keyedwm.operators.join.inputs import (
    FORMAT,
    PIECE_ROWS,
    JoinBase,
    alone_in_pieces,
    pairs,
)
from keyedwm.operators.join.kernels import hash_groups, ranges_of
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinInputSpec, JoinPlan
from keyedwm.operators.join.side_buffer import COMPRESSION, SideBuffer, SidePiece
from keyedwm.operators.results import Output
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs
from keyedwm.operators.state.table import SlicedTable, StateTable

CHANGES = "changes"
_ARRIVAL = "__arrival"
_EARLIEST = -(2**62)


class ChangeTable:
    """The changes of one operator."""

    def __init__(self, side: JoinInputSpec, logs: TableLogs, state: Sequence[Any]) -> None:
        """state: the result of `state`, also of version 0.3.0."""
        self._side, self._limits = side, logs.limits
        self._log = StateTable(logs, CHANGES, compression=COMPRESSION)
        self._old_layout = SlicedTable(logs, f"{CHANGES}-")  # until the first cleaning of state of 0.3.0
        self._arrived, self._cleared = map(int, state[-2:] or (0, 0))
        self._read: tuple[SidePiece, Ints] | None = None

    @property
    def rows(self) -> int:
        """The number of stored changes, including superseded ones that are not removed yet."""
        return self._log.rows + self._old_layout.all_rows

    def add(self, rows: pa.Table) -> None:
        """Add changes, `staged` columns, in order of arrival."""
        arrival = np.arange(self._arrived, self._arrived + rows.num_rows)
        self._arrived += rows.num_rows
        self._log.add(rows.drop_columns([HASH]).append_column(_ARRIVAL, pa.array(arrival)))
        self._read = None

    def latest(self, rows: SidePiece, on: Sequence[str]) -> tuple[pa.Table, Ints]:
        """Return the changes, and for each row the place of its key's latest change at or before it, -1 for none."""
        if not self.rows:
            return pa.Table.from_batches([], self._side.exchange_schema), np.full(len(rows), -1, np.int64)
        changes, order = self._all()
        slot_hash, slot_group, begins, places = hash_groups(changes.hashes, order)
        earliest = np.full(len(rows), _EARLIEST)
        groups = slot_hash, slot_group, begins
        starts, ends = ranges_of(groups, changes.times[0][places], rows.hashes, earliest, rows.times[0])
        at = ends - 1
        open_rows = np.flatnonzero(at >= starts)
        while len(open_rows):  # keys of equal hash are rare: look one place further back
            columns = [contiguous(rows.table[name]).take(pa.array(open_rows)) for name in on]
            change_places = pa.array(places[at[open_rows]])
            found_keys = [contiguous(changes.table[name]).take(change_places) for name in self._side.on]
            same = same_keys(columns, found_keys, len(open_rows))
            open_rows = open_rows[~same]
            at[open_rows] -= 1
            open_rows = open_rows[at[open_rows] >= starts[open_rows]]
        latest_places = np.full(len(rows), -1, np.int64)
        has = at >= starts
        latest_places[has] = places[at[has]]
        return changes.table, latest_places

    def compact(self, limit_ms: int | None) -> None:
        """Rewrite the table without superseded changes, if it is twice as large as after the last rewrite."""
        if self.rows <= 2 * self._cleared + self._limits.few_changes:
            return
        changes, order = self._all()
        superseded = np.zeros(len(changes), bool) if limit_ms is None else self._superseded(changes, order, limit_ms)
        live = changes.table.take(pa.array(order[~superseded[order]]))
        self._old_layout.clear()
        self._log.replace(live.drop_columns([HASH]))
        self._cleared, self._read = live.num_rows, None

    def state(self) -> list[int]:
        """Return the state beside the log for a later instance, ready for JSON."""
        return [self._arrived, self._cleared]

    def _all(self) -> tuple[SidePiece, Ints]:
        """All changes, and their order by event time and arrival."""
        if self._read is None:
            piece = SidePiece.of(self._side, pa.concat_tables([*self._old_layout.read_all(), *self._log.read()]))
            self._read = piece, np.lexsort((ints(contiguous(piece.table[_ARRIVAL])), piece.times[0]))
        return self._read

    def _superseded(self, changes: SidePiece, order: Ints, limit_ms: int) -> Flags:
        """Mark the changes with a later change of their key that is at or below the limit, or has the same time."""
        _, _, begins, places = hash_groups(changes.hashes, order)
        times = changes.times[0][places]
        follows = np.ones(len(places), bool)  # whether the next place is a change of the same key
        follows[begins[1:] - 1] = False
        here = pa.array(places[:-1])
        following = pa.array(places[1:])
        columns = [contiguous(changes.table[name]) for name in self._side.on]
        same = same_keys([one.take(here) for one in columns], [one.take(following) for one in columns], len(here))
        follows[:-1] &= same  # if keys of equal hash alternate, too many changes are kept, never too few
        next_times = np.append(times[1:], 0)
        is_superseded = follows & ((next_times <= limit_ms) | (next_times == times))
        by_row = np.zeros(len(places), bool)
        by_row[places] = is_superseded
        return by_row


def _logs_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the logs. 0.3.0 noted the number and the rows of each blob of changes."""
    changes = state.get("changes", ())
    if len(changes) > 2:
        return {"rows": {f"{CHANGES}-{number}": rows for number, rows in changes[0]}}
    return state


class LatestOperator(JoinBase):
    """One instance of the operator."""

    def __init__(self, plan: JoinPlan, store: BlobStore) -> None:
        state = FORMAT.read(plan.digest(), store)
        self._received: dict[int, int] = {int(axis): ms for axis, ms in state.get("received", {}).items()}
        super().__init__(plan, self._received)
        waiting = state.get("waiting", ())
        self._waiting = SideBuffer(plan.left, "waiting", store, waiting, main=0, gap_ms=0, keeps_matched=True)
        self._logs = TableLogs(store, manifest=MANIFEST, state=_logs_state(state))
        self._changes = ChangeTable(plan.right, self._logs, state.get("changes", ()))

    @property
    def open_entries(self) -> int:
        """The number of waiting rows and stored changes."""
        return self._waiting.rows + self._changes.rows

    def output_watermarks_ms(self, watermark_ms: int | None) -> dict[int, int]:  # noqa: ARG002  it has axes
        """The output watermark of the rows' axis: no waiting row is below the changes' watermark."""
        return {} if self._limit_ms is None else {LEFT: self._limit_ms}

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Apply the watermark of an input; yield the rows that waited for it.

        A watermark that does not increase has no effect. Raises InputError for a key that the side does not have.
        """
        axis = self._inputs.axis_of(input_number, key)
        before = self._received.get(axis)
        if before is not None and time_ms <= before:
            return
        self._received[axis] = time_ms
        if input_number == RIGHT:
            for piece in self._waiting.forget([before], [time_ms], pads=True):
                yield from self._join_latest(piece)

    def on_end(self) -> Iterator[Output]:
        """Yield the waiting rows: no further change comes."""
        for piece in self._waiting.forget([self._received.get(RIGHT)], [2**61], pads=True):
            yield from self._join_latest(piece)

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""
        waiting = self._waiting.drain([self._received.get(RIGHT)])
        self._changes.compact(self._limit_ms)
        changes = self._logs.drain()
        state = {
            "received": self._received, "waiting": self._waiting.state(), "changes": self._changes.state(),
            **self._logs.state(),
        }  # fmt: skip
        blobs = {**waiting.blobs, **changes.blobs, MANIFEST: FORMAT.write(self._plan.digest(), state)}
        return StateChanges(blobs, waiting.removed | changes.removed)

    @property
    def _limit_ms(self) -> int | None:
        """The time below which no row still waits or can arrive."""
        return (
            min(self._received[LEFT], self._received[RIGHT]) if len(self._received) == len(self._plan.sides) else None
        )

    def _accept_rows(self, side: int, rows: pa.Table) -> Iterator[Output]:
        rows = yield from self._inputs.accept_rows(side, rows)
        if not rows.num_rows:
            return
        if side == RIGHT:
            self._changes.add(rows)
            return
        new = SidePiece.of(self._plan.left, rows)
        known = new.forgotten([self._received.get(RIGHT)])
        yield from self._join_latest(new.take_rows(np.flatnonzero(known)))
        self._waiting.add(new.take_rows(np.flatnonzero(~known)))

    def _join_latest(self, rows: SidePiece) -> Iterator[Output]:
        """Yield these rows with their changes, piece by piece; rows without a change alone, if `how` keeps them."""
        if not len(rows):
            return
        changes, places = self._changes.latest(rows, self._plan.left.on)
        with_change = np.flatnonzero(places >= 0)
        for at in range(0, len(with_change), PIECE_ROWS):
            piece = with_change[at : at + PIECE_ROWS]
            yield pairs(self._plan, rows.table, changes, piece, places[piece])
        if self._plan.pads(LEFT):
            yield from alone_in_pieces(self._plan, LEFT, rows.take_rows(np.flatnonzero(places < 0)).table)
