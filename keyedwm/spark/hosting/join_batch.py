"""One bucket of a join in one micro-batch: it drives the operator, and says what leaves and in which order.

Rule: the watermarks that the drivers stamped on the batch come first, then all rows, then the channels' own watermarks.
Rows leave before the watermarks that forgot them; then the idle marker; the barrier is last. No Spark here, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.core.control_row import ControlRow, encode_rows
from keyedwm.core.rows import ControlKind
from keyedwm.operators.join.latest_operator import LatestOperator
from keyedwm.operators.join.operator import JoinOperator
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.operators.state.blobs import packed
from keyedwm.operators.state.store import BlobStore, StateChanges
from keyedwm.spark.hosting.inbox import Inbox, barriers_of

if TYPE_CHECKING:
    import pandas as pd

EMITTED = (
    "results binary, control string, watermarks string, late_rows long, null_event_time_rows long, held_rows long, "
    "state_bytes long"
)
# So much of one side is looked up at once.
_GROUP_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class JoinLayout:
    """What every bucket of a join knows: the join's name, the ids of all buckets, and what users call it."""

    name: str
    ids: tuple[int, ...]
    kind: str = "join"

    @property
    def who(self) -> str:
        """What messages call it."""
        return f"{self.kind} {self.name}"


@dataclass(slots=True)
class JoinNote:
    """What a bucket remembers beside its operator's state.

    inboxes: by side, by axis. blobs: name → bytes. emitted: axis → the last watermark told.
    """

    inboxes: list[list[Mapping[str, Any]]] = field(default_factory=list)
    blobs: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    snapshot: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain values, the same for equal notes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JoinNote:
        """Return the note of such values; further entries are ignored."""
        return cls(**{name: value[name] for name in cls.__slots__})


class JoinBatch:
    """The batch of one bucket: draw `on_input` to its end, then `drain`, then take the `last_row`."""

    def __init__(self, plan: JoinPlan, layout: JoinLayout, bucket: int, note: JoinNote, store: BlobStore) -> None:
        self._plan, self._layout = plan, layout
        self._channel = f"{layout.name}#{layout.ids.index(bucket)}"
        self.note = note
        self._inboxes = [self._inboxes_of(side) for side in (LEFT, RIGHT)]
        self._operator = LatestOperator(plan, store) if plan.latest else JoinOperator(plan, store)
        self._control: list[ControlRow] = []

    @property
    def late_rows(self) -> int:
        """How many rows of this batch were late."""
        return self._operator.late_rows

    def on_input(
        self, control: Sequence[Sequence[ControlRow]], rows: Sequence[Sequence[pa.Table]]
    ) -> Iterator[pd.DataFrame]:
        """Take all that a batch brought, by side; yield rows of `EMITTED` with results.

        control: in any order. rows: in order of task. Raises InputError for barriers that are not whole, and for late
        rows under `late="fail"`.
        """
        was_idle = self._idle
        told = [
            [inbox.take(control[side]) for inbox in self._inboxes[side]] if control[side] or rows[side] else []
            for side in (LEFT, RIGHT)
        ]
        for side in (LEFT, RIGHT):
            yield from self._advance(side, [one.batch_watermark_ms for one in told[side]])
        for side in (LEFT, RIGHT):
            for some in _grouped(rows[side]):
                yield from self._results(self._operator.on_rows(side, some))
        for side in (LEFT, RIGHT):
            yield from self._advance(side, [one.watermark_ms for one in told[side]])
        yield from self._tell_all(was_idle=was_idle, snapshot=barriers_of([*control[LEFT], *control[RIGHT]]))

    def drain(self) -> StateChanges:
        """Return the blobs to write and the names of those to remove; the note knows them from now on."""
        changes = self._operator.drain()
        for name in changes.removed:
            self.note.blobs.pop(name, None)
        self.note.blobs.update({name: len(blob) for name, blob in changes.written.items()})
        self.note.inboxes = [[inbox.snapshot() for inbox in of_side] for of_side in self._inboxes]
        return changes

    def last_row(self) -> pd.DataFrame:
        """Return the row of `EMITTED` with the control rows and the metrics."""
        return self._row(
            control=encode_rows(self._control),
            late_rows=self.late_rows,
            null_event_time_rows=self._operator.null_event_time_rows,
            held_rows=self._operator.open_entries,
            state_bytes=sum(self.note.blobs.values()),
        )

    @property
    def _idle(self) -> bool:
        """Whether both sides are idle; a side that has told nothing yet is not."""
        return all(self._inboxes[side][0].idle for side in (LEFT, RIGHT))

    def _inboxes_of(self, side: int) -> list[Inbox]:
        one = self._plan.sides[side]
        owner = f"join {self._layout.name}, {one.name} side"
        if not self.note.inboxes:
            return [Inbox(owner, axis.key) for axis in one.axes]
        held = self.note.inboxes[side]
        return [Inbox.restore(owner, axis.key, state) for axis, state in zip(one.axes, held, strict=True)]

    def _advance(self, side: int, watermarks: Sequence[int | None]) -> Iterator[pd.DataFrame]:
        for axis, watermark_ms in zip(self._plan.sides[side].axes, watermarks, strict=False):
            if watermark_ms is not None:
                yield from self._results(self._operator.on_watermark(side, axis.key, watermark_ms))

    def _tell_all(self, *, was_idle: bool, snapshot: int | None) -> Iterator[pd.DataFrame]:
        """Tell what became true, in the order of docs/design/rows.md; a watermark wakes, so idle is told after it."""
        if was_idle and not self._idle:
            self._tell(ControlKind.ACTIVE)
        told_before = len(self._control)
        for axis, watermark_ms in sorted(self._operator.watermarks_ms.items()):
            if watermark_ms > self.note.emitted.get(str(axis), watermark_ms - 1):
                self._tell(ControlKind.WATERMARK, key=axis, watermark_ms=watermark_ms)
                self.note.emitted[str(axis)] = watermark_ms
        if self._idle and (not was_idle or len(self._control) > told_before):
            for side in (LEFT, RIGHT):
                yield from self._results(self._operator.on_idle(side))
            self._tell(ControlKind.IDLE)
        if snapshot is not None:
            self.note.snapshot = snapshot if self.note.snapshot is None else self.note.snapshot + 1
            yield from self._results(self._operator.on_barrier(self.note.snapshot))
            self._tell(ControlKind.BARRIER, snapshot=self.note.snapshot, channels=len(self._layout.ids))

    def _results(self, outputs: Iterator[pa.Table]) -> Iterator[pd.DataFrame]:
        for output in outputs:
            yield self._row(results=packed(output))

    def _row(self, **told: Any) -> pd.DataFrame:
        import pandas as pd

        watermarks = self._operator.watermarks_ms
        nothing = {
            "results": None, "control": "[]",
            "watermarks": json.dumps([watermarks.get(axis) for axis in self._plan.passed_on]),
            "late_rows": 0, "null_event_time_rows": 0, "held_rows": 0, "state_bytes": 0,
        }  # fmt: skip
        return pd.DataFrame({name: [value] for name, value in {**nothing, **told}.items()})

    def _tell(self, kind: ControlKind, **fields: int) -> None:
        self._control.append(ControlRow(kind=kind, channel=self._channel, source=self._layout.name, **fields))


def _grouped(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Join tables up to a bounded size."""
    held: list[pa.Table] = []
    for table in tables:
        if held and sum(one.nbytes for one in held) + table.nbytes > _GROUP_BYTES:
            yield pa.concat_tables(held)
            held = []
        held.append(table)
    if held:
        yield pa.concat_tables(held)
