"""Each row with the latest change of its key at or before its event time (a join with a versioned table).

Rule: a row waits until the changes' watermark is above its event time, as only then no change that counts can come. A
change is held as long as a row that waits or is still to come can meet it, so of each key at least the latest one.

The calls are those of `keyedwm.operators.protocol.Operator`: rows are input 0, changes input 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from keyedwm.operators.join.change_table import ChangeTable
from keyedwm.operators.join.inputs import (
    FORMAT,
    PIECE_ROWS,
    JoinBase,
    alone_in_pieces,
    pairs,
)
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.operators.join.side_buffer import SideBuffer, SidePiece
from keyedwm.operators.results import Output
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import BlobStore, StateChanges


class LatestOperator(JoinBase):
    """One instance of the operator."""

    def __init__(self, plan: JoinPlan, store: BlobStore) -> None:
        state = FORMAT.read(plan.digest(), store)
        self._received: dict[int, int] = {int(axis): ms for axis, ms in state.get("received", {}).items()}
        super().__init__(plan, self._received)
        waiting = state.get("waiting", ())
        self._waiting = SideBuffer(plan.left, "waiting", store, waiting, main=0, gap_ms=0, keeps_matched=True)
        self._changes = ChangeTable(plan.right, store, state.get("changes", ()))

    @property
    def open_entries(self) -> int:
        """How many rows wait and how many changes are held."""
        return self._waiting.rows + self._changes.rows

    @property
    def watermarks_ms(self) -> dict[int, int]:
        """The output watermark of the rows' axis: a row that waits is not below the changes' watermark."""
        return {} if self._limit_ms is None else {LEFT: self._limit_ms}

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Take the watermark of an input; yield the rows that waited for it.

        One that does not increase has no effect. Raises InputError for a key that the side does not have.
        """
        axis = self._inputs.axis_of(input_number, key)
        before = self._received.get(axis)
        if before is not None and time_ms <= before:
            return
        self._received[axis] = time_ms
        if input_number == RIGHT:
            for piece in self._waiting.forget([before], [time_ms], pads=True):
                yield from self._answered(piece)

    def on_end(self) -> Iterator[Output]:
        """Yield the rows that wait: no further change comes."""
        for piece in self._waiting.forget([self._received.get(RIGHT)], [2**61], pads=True):
            yield from self._answered(piece)

    def drain(self) -> StateChanges:
        """Return what changed in the state since the last call."""
        waiting = self._waiting.drain([self._received.get(RIGHT)])
        changes = self._changes.drain(self._limit_ms)
        state = {"received": self._received, "waiting": self._waiting.state(), "changes": self._changes.state()}
        written = {**waiting.written, **changes.written, MANIFEST: FORMAT.write(self._plan.digest(), state)}
        return StateChanges(written, waiting.removed | changes.removed)

    @property
    def _limit_ms(self) -> int | None:
        """No row below this is still to be answered."""
        return (
            min(self._received[LEFT], self._received[RIGHT]) if len(self._received) == len(self._plan.sides) else None
        )

    def _taken(self, side: int, rows: pa.Table) -> Iterator[Output]:
        rows = yield from self._inputs.taken(side, rows)
        if not rows.num_rows:
            return
        if side == RIGHT:
            self._changes.add(rows)
            return
        new = SidePiece.of(self._plan.left, rows)
        known = new.forgotten([self._received.get(RIGHT)])
        yield from self._answered(new.take(np.flatnonzero(known)))
        self._waiting.add(new.take(np.flatnonzero(~known)))

    def _answered(self, rows: SidePiece) -> Iterator[Output]:
        """Yield these rows with their changes, piece by piece; those without one alone, if they are expected."""
        if not len(rows):
            return
        changes, places = self._changes.latest(rows, self._plan.left.on)
        found = np.flatnonzero(places >= 0)
        for at in range(0, len(found), PIECE_ROWS):
            mine = found[at : at + PIECE_ROWS]
            yield pairs(self._plan, rows.table, changes, mine, places[mine])
        if self._plan.pads(LEFT):
            yield from alone_in_pieces(self._plan, LEFT, rows.take(np.flatnonzero(places < 0)).table)
