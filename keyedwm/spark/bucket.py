"""A bucket: one group of transformWithState, that is one Jet processor (DESIGN section 7).

Rule: state is a few blobs, the operator's own and one small note of channels, counters and the plan they belong to.
Whatever a worker still holds from the batch before is used only if the note says that it is that very state.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.spark.round import Note, Placing, Round
from keyedwm.spark.stage_one import control_rows
from keyedwm.windows.plan import Plan
from keyedwm.windows.state import unpacked
from keyedwm.worker import settle_worker

if TYPE_CHECKING:
    import pandas as pd

NOTE_VERSION = 2
_log = logging.getLogger("keyedwm.aggregate")
_NO_CLOCK = -1


class Bucket(StatefulProcessor):
    """The stateful processor; a fresh copy serves every task."""

    def __init__(self, plan: Plan, placing: Placing) -> None:
        self._plan = plan
        self._placing = placing

    def init(self, handle: Any) -> None:
        """Name the state."""
        self._handle = handle
        self._note = handle.getValueState("note", "note string")
        self._blobs = handle.getMapState("blobs", "name string", "blob binary")

    def close(self) -> None:
        """The task ends."""
        settle_worker()

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803  Spark's names
    ) -> Iterator[pd.DataFrame]:
        """Take one micro-batch."""
        shipped = [row for frame in rows for row in frame.itertuples(index=False)]
        shipped.sort(key=lambda row: row.part)
        now = self._open(key)
        now.take(
            control=[one for row in shipped if row.control for one in control_rows(row.control)],
            partials=[unpacked(row.partials) for row in shipped if row.partials is not None],
            timeless=sum(int(row.timeless) for row in shipped),
            now_ms=self._clock_ms(timerValues),
        )
        yield from self._close(now, timerValues)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,  # noqa: N803  Spark's names
        expiredTimerInfo: Any,  # noqa: N803, ARG002
    ) -> Iterator[pd.DataFrame]:
        """Let early panes out by the clock, in a batch that brought nothing."""
        now = self._open(key)
        now.clock(timerValues.getCurrentProcessingTimeInMs())
        yield from self._close(now, timerValues)

    def _open(self, key: Any) -> Round:
        """The state as the batch before left it."""
        bucket = int(key[0])
        if not self._note.exists():
            return Round(self._plan, self._placing, bucket)
        note = Note.from_json(self._checked(json.loads(self._note.get()[0])))
        blobs = {name: bytes(self._blobs.getValue((name,))[0]) for name in note.blobs}
        return Round(self._plan, self._placing, bucket, note, blobs)

    def _close(self, now: Round, timers: Any) -> Iterator[pd.DataFrame]:
        """Write the state and give out the results."""
        changed, removed = now.changed()
        for name in removed:
            self._blobs.removeKey((name,))
        for name, blob in changed.items():
            self._blobs.updateValue((name,), (blob,))
        if self._plan.early is not None and self._plan.early.every_ms is not None:
            self._wake_at(now, timers.getCurrentProcessingTimeInMs() + self._plan.early.every_ms)
        self._note.update((json.dumps(now.note.as_json() | self._owner(), sort_keys=True),))
        if now.late_rows:
            told = {"aggregate": self._placing.name, "late_rows": now.late_rows, "watermark_ms": now.watermark_ms}
            _log.warning("rows came too late for every window: %s", json.dumps(told))
        yield from now.leaving()

    def _wake_at(self, now: Round, at_ms: int) -> None:
        """One timer for each bucket, moved on by every batch: it fires only in a batch that brings nothing."""
        if now.note.timer_ms is not None:
            self._handle.deleteTimer(now.note.timer_ms)
        now.note.timer_ms = at_ms
        self._handle.registerTimer(at_ms)

    def _owner(self) -> dict[str, Any]:
        """Whose state it is; another's is refused."""
        return {
            "version": NOTE_VERSION,
            "buckets": len(self._placing.ids),
            "plan": self._plan.digest(),
            "axis": self._placing.key,
            "name": self._placing.name,
        }

    def _checked(self, note: dict[str, Any]) -> dict[str, Any]:
        name = self._placing.name
        if note["version"] != NOTE_VERSION:
            raise FormatError(
                f"aggregate {name}: its state has version {note['version']}, this keyedwm reads version {NOTE_VERSION}"
            )
        if note["buckets"] != len(self._placing.ids):
            raise OptionError(
                f"aggregate {name}: the checkpoint has {note['buckets']} buckets and this plan "
                f"{len(self._placing.ids)}; their number is fixed in a checkpoint: give buckets={note['buckets']}"
            )
        if note["plan"] != self._plan.digest():
            raise OptionError(
                f"aggregate {name}: the checkpoint holds the state of another plan (windows, aggregates, keys or panes "
                f"differ): go back to that plan, or start from a new checkpoint"
            )
        if note["axis"] != self._placing.key:
            raise OptionError(
                f"aggregate {name}: the checkpoint follows the time axis with key {note['axis']}, this plan the one "
                f"with key {self._placing.key}: go back to that axis, or start from a new checkpoint"
            )
        if note["name"] != name:  # whoever follows its channels would wait for those of the old name
            raise OptionError(
                f"aggregate {name}: the checkpoint calls it {note['name']}, and so its channels: give "
                f"name={note['name']!r}"
            )
        return note

    def _clock_ms(self, timers: Any) -> int | None:
        now_ms = timers.getCurrentProcessingTimeInMs()
        return None if now_ms == _NO_CLOCK else now_ms
