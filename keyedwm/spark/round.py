"""One bucket in one micro-batch: what it takes, in which order, and what leaves it.

Rule: the plan's watermark first, then all partials, then the channels' own watermarks. The windows they close leave
before the watermark that closed them; then idleness; the barrier is last. No Spark here, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.core.rows import Kind
from keyedwm.spark.inbox import Control, Inbox, barriers_of
from keyedwm.windows.operator import operator_of
from keyedwm.windows.plan import Plan
from keyedwm.windows.state import packed

if TYPE_CHECKING:
    import pandas as pd

EMITTED = (
    "results binary, control string, watermark_ms long, late_rows long, timeless_rows long, frames long, "
    "state_bytes long"
)
_PIECE_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Placing:
    """What every bucket of an aggregate is told: the aggregate's name, the ids of all buckets, the axis's key."""

    name: str
    ids: tuple[int, ...]
    key: int


@dataclass(slots=True)
class Note:
    """What a bucket remembers beside its operator: `emitted_ms` is the last watermark it passed on."""

    inbox: Mapping[str, Any] | None = None
    blobs: dict[str, int] = field(default_factory=dict)
    emitted_ms: int | None = None
    snapshot: int | None = None
    timer_ms: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values, the same for equal notes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Note:
        """The inverse of `as_json`; other entries are not its business."""
        return cls(**{name: value[name] for name in cls.__slots__})


class Round:
    """One bucket's batch."""

    def __init__(
        self,
        plan: Plan,
        placing: Placing,
        bucket: int,
        note: Note | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> None:
        self._plan = plan
        self._placing = placing
        self._channel = f"{placing.name}#{placing.ids.index(bucket)}"
        self.note = note or Note()
        owner = f"aggregate {placing.name}"
        self._inbox = (
            Inbox(owner, placing.key) if self.note.inbox is None else Inbox.restore(owner, placing.key, self.note.inbox)
        )
        self._operator = operator_of(plan, blobs)
        self._results: list[pa.Table] = []
        self._control: list[Control] = []
        self._timeless = 0

    @property
    def late_rows(self) -> int:
        """How many rows of this batch no window took."""
        return self._operator.late_rows

    @property
    def watermark_ms(self) -> int | None:
        """The watermark that the bucket has come to."""
        return self._inbox.watermark_ms

    def take(
        self, *, control: Sequence[Control], partials: Sequence[pa.Table], timeless: int, now_ms: int | None
    ) -> None:
        """Take all that a batch brought.

        control: in any order. partials: of this bucket, in order of task. timeless: how many rows had no event time.
        now_ms: wall-clock time, None where no pane goes by it. Raises InputError for barriers that are not whole, and
        for late rows under `late="fail"`.
        """
        told = self._inbox.take(control)
        self._advance(told.promised_ms)
        if partials:
            self._results.append(self._operator.take(pa.concat_tables(partials), now_ms))
        self._advance(told.watermark_ms)
        if now_ms is not None:
            self._results.append(self._operator.clock(now_ms))
        self._timeless += timeless
        if told.woke:
            self._say(Kind.ACTIVE)
        if told.watermark_ms is not None and told.watermark_ms != self.note.emitted_ms:
            self._say(Kind.WATERMARK, key=0, watermark_ms=told.watermark_ms)
            self.note.emitted_ms = told.watermark_ms
        if told.went_idle:
            self._say(Kind.IDLE)
        snapshot = barriers_of(control)
        if snapshot is not None:
            self._barrier(snapshot)

    def clock(self, now_ms: int) -> None:
        """Let early panes out by the clock."""
        self._results.append(self._operator.clock(now_ms))
        self._barrier(0)

    def changed(self) -> tuple[Mapping[str, bytes], Collection[str]]:
        """Return the blobs to write and the names of those to remove; the note knows them from now on."""
        changed, removed = self._operator.changed()
        for name in removed:
            self.note.blobs.pop(name, None)
        self.note.blobs.update({name: len(blob) for name, blob in changed.items()})
        self.note.inbox = self._inbox.snapshot()
        return changed, removed

    def leaving(self) -> Iterator[pd.DataFrame]:
        """Yield rows of `EMITTED`: results in pieces, the control rows with the last one."""
        import pandas as pd

        results = pa.concat_tables(self._results) if self._results else self._plan.result_schema.empty_table()
        starts = range(0, max(results.num_rows, 1), _PIECE_ROWS)
        for start in starts:
            last = start == starts[-1]
            piece = results.slice(start, _PIECE_ROWS)
            yield pd.DataFrame({
                "results": [packed(piece) if piece.num_rows else None],
                "control": [json.dumps([asdict(row) for row in self._control]) if last else "[]"],
                "watermark_ms": pd.array([self.watermark_ms], "Int64"),
                "late_rows": [self.late_rows if last else 0],
                "timeless_rows": [self._timeless if last else 0],
                "frames": [self._operator.open_frames if last else 0],
                "state_bytes": [sum(self.note.blobs.values()) if last else 0],
            })  # fmt: skip

    def _advance(self, watermark_ms: int | None) -> None:
        if watermark_ms is not None:
            self._results.append(self._operator.advance(watermark_ms))

    def _barrier(self, at_least: int) -> None:
        """One barrier a batch; ids go up by one, also in batches that only the clock made."""
        if self.note.snapshot is None:
            self.note.snapshot = at_least
        else:
            self.note.snapshot += 1
        self._say(Kind.BARRIER, snapshot=self.note.snapshot, channels=len(self._placing.ids))

    def _say(self, kind: Kind, **fields: int) -> None:
        self._control.append(Control(kind=kind, channel=self._channel, **fields))
