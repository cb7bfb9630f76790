"""A bucket of a join: one group of transformWithState, with two inputs (docs/design/operators.md).

Rule: state is a few blobs, the operator's own and one small note of channels and of the plan they belong to.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from keyedwm.core.control_row import ControlRow, decode_rows
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.operators.state.blobs import unpacked
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from keyedwm.spark.hosting.bucket_state import (
    Begun,
    SparkStore,
    named_state,
    read_note,
    require_owner,
    take_over,
    write_state,
)
from keyedwm.spark.hosting.continued import FOLLOWS, check_follows
from keyedwm.spark.hosting.join_batch import JoinBatch, JoinLayout, JoinNote
from keyedwm.spark.hosting.join_move import MovedJoin

if TYPE_CHECKING:
    import pandas as pd

NOTE_VERSION = 1
_log = logging.getLogger("keyedwm.join")


class JoinBucket(VersionChecked, StatefulProcessor):
    """The stateful processor; a fresh copy serves every task."""

    def __init__(self, plan: JoinPlan, layout: JoinLayout, moved: MovedJoin | None = None) -> None:
        self._plan = plan
        self._layout = layout
        self._moved = moved
        self._follows: dict[str, int | None] = {}

    def init(self, handle: Any) -> None:
        """Name the state."""
        self._note, self._blobs = named_state(handle)

    def close(self) -> None:
        """The task ends."""
        freeze_gc()

    def handleInitialState(
        self,
        key: Any,
        initialState: pd.DataFrame,  # noqa: N803  Spark's names
        timerValues: Any,  # noqa: N803, ARG002
    ) -> None:
        """Take over state of a stopped query, before the first rows; Spark may hand it over in several pieces."""
        begun = Begun(self._layout, int(key[0]), self._owner())
        take_over((self._note, self._blobs), initialState, self._moved, begun)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803, ARG002  Spark's names
    ) -> Iterator[pd.DataFrame]:
        """Run one micro-batch."""
        shipped = [row for frame in rows for row in frame.itertuples(index=False)]
        shipped.sort(key=lambda row: (row.side, row.part))
        control: tuple[list[ControlRow], ...] = ([], [])
        for row in shipped:
            if row.control:
                control[row.side].extend(decode_rows(row.control))
        tables = [
            [unpacked(row.rows) for row in shipped if row.side == side and row.rows is not None]
            for side in (LEFT, RIGHT)
        ]
        batch = self._open(key)
        if self._follows:
            self._follows = check_follows(self._layout.who, self._follows, chain(*control))
        yield from batch.on_input(control, tables)
        yield self._close(batch)

    def _open(self, key: Any) -> JoinBatch:
        """Open the state as the batch before left it; nothing but the note is read yet."""
        held = read_note(self._note)
        self._follows = {} if held is None else held.get(FOLLOWS, {})
        if held is not None:
            require_owner(
                "join", held, self._owner(), "on, how, time bounds, condition, columns, names of the sides or late"
            )
        note = JoinNote() if held is None else JoinNote.from_json(held)
        return JoinBatch(self._plan, self._layout, int(key[0]), note, SparkStore(self._blobs, dict(note.blobs)))

    def _close(self, batch: JoinBatch) -> pd.DataFrame:
        """Write what changed in the state; return the batch's last row."""
        changes = batch.drain()
        told = batch.note.as_json() | self._owner() | ({FOLLOWS: self._follows} if self._follows else {})
        write_state(self._note, self._blobs, changes, told)
        if batch.late_rows:
            _log.warning("rows were late: %s", json.dumps({"join": self._layout.name, "late_rows": batch.late_rows}))
        return batch.last_row()

    def _owner(self) -> dict[str, Any]:
        """Whose state it is; another's is refused."""
        return {
            "version": NOTE_VERSION,
            "buckets": len(self._layout.ids),
            "plan": self._plan.digest,
            "name": self._layout.name,
        }
