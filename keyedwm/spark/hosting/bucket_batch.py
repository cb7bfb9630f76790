"""One bucket in one micro-batch: it drives the operator, and says what leaves and in which order.

Rule: the batch's watermarks come first, then all rows, then the channels' own watermarks, each input by input. Results
leave before the watermark that closed their windows; then the idle marker; the barrier is last. An idle input keeps its
watermark, as the side of a join does. No Spark here, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.core.control_row import ControlRow, encode_rows
from keyedwm.core.rows import ControlKind
from keyedwm.operators.messages.join.staged import StagedWindowJoin
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.messages.staged import StagedStore
from keyedwm.operators.messages.staged_operator import StagedOperator
from keyedwm.operators.protocol import AnyPlan, operator_of
from keyedwm.operators.results import Output
from keyedwm.operators.state.blobs import packed
from keyedwm.operators.state.store import BlobStore, StateChanges
from keyedwm.spark.hosting.bucket_clock import Wakes
from keyedwm.spark.hosting.inbox import Inbox, barriers_of

if TYPE_CHECKING:
    import pandas as pd

EMITTED = (
    "results binary, control string, watermark_ms long, late_rows long, null_event_time_rows long, frames long, "
    "state_bytes long, bucket int, replayed_rows long, rejected_rows long, dropped_windows long, dropped_rows long, "
    "dropped_bytes long"
)
# Of windows that keep their messages.
STORED = ("replayed_rows", "rejected_rows", "dropped_windows", "dropped_rows", "dropped_bytes")
# The column of results that holds their event times on the way to `unpack`.
EVENT_MS = "__event_ms"
# So much leaves at once: rows, and bytes where keys and values are long.
_PIECE_ROWS = 200_000
_PIECE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """What every bucket of an operator knows: the operator's name, the ids of all buckets, the axis's key.

    kind: what users call the operator. others: the axis keys of its further inputs.
    """

    name: str
    ids: tuple[int, ...]
    key: int
    kind: str = "aggregate"
    others: tuple[int, ...] = ()

    @property
    def keys(self) -> tuple[int, ...]:
        """The axis key of each input."""
        return self.key, *self.others

    @property
    def axis(self) -> int | list[int]:
        """The axis key as the state notes it; of several inputs a list."""
        return list(self.keys) if self.others else self.key

    @property
    def who(self) -> str:
        """The operator in messages."""
        return f"{self.kind} {self.name}"


@dataclass(slots=True)
class BucketNote:
    """What a bucket remembers beside its operator's state. blobs: name → bytes; emitted_ms: the last watermark told.

    inbox: of the first input; inboxes: of the others, written where there are others. came_ms: the clock of the last
    batch that brought something, written where a store has panes by the clock.
    """

    inbox: Mapping[str, Any] | None = None
    blobs: dict[str, int] = field(default_factory=dict)
    emitted_ms: int | None = None
    snapshot: int | None = None
    timer_ms: int | None = None
    inboxes: Sequence[Mapping[str, Any]] = ()
    came_ms: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain values, the same for equal notes."""
        added = {"inboxes": bool(self.inboxes), "came_ms": self.came_ms is not None}
        return {name: value for name, value in asdict(self).items() if added.get(name, True)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BucketNote:
        """Return the note of such values; further entries are ignored."""
        return cls(
            **{name: value[name] for name in cls.__slots__ if name in value or name not in ("inboxes", "came_ms")}
        )


class BucketBatch:
    """The batch of one bucket: draw `on_input` or `on_timer` to its end, then `drain`, then take the `last_row`."""

    def __init__(
        self,
        plan: AnyPlan,
        layout: BucketLayout,
        bucket: int,
        note: BucketNote,
        store: BlobStore,
    ) -> None:
        self._layout = layout
        self._number = layout.ids.index(bucket)
        self._channel = f"{layout.name}#{self._number}"
        self.note = note
        whose = [layout.who]
        if layout.others:
            whose = [f"{layout.who}, input {number}" for number in range(len(layout.keys))]
        held = [None] * len(whose) if note.inbox is None else [note.inbox, *note.inboxes]
        self._inboxes = [
            Inbox(who, key) if state is None else Inbox.restore(who, key, state)
            for who, key, state in zip(whose, layout.keys, held, strict=True)
        ]
        self._operator = operator_of(plan, store)
        intervals_ms = plan.clock_ms if isinstance(plan, (StagedStore, StagedWindowJoin)) else ()
        self._wakes = Wakes(intervals_ms, note.came_ms, note.timer_ms) if intervals_ms else None
        self._control: list[ControlRow] = []
        self._null_event_time_rows = 0

    @property
    def late_rows(self) -> int:
        """How many rows of this batch no window took."""
        return self._operator.late_rows

    @property
    def counted(self) -> StoreCounts:
        """What became of the messages of windows that keep them, in this batch."""
        return self._operator.counted if isinstance(self._operator, StagedOperator) else StoreCounts()

    @property
    def next_timer_ms(self) -> int | None:
        """When the operator must be told the wall-clock time, None if it need not."""
        return self._operator.next_timer_ms if self._wakes is None else self._wakes.due_ms

    @property
    def watermark_ms(self) -> int | None:
        """The watermark that the results keep: by the lowest of the inputs, once each has told one."""
        told = [inbox.watermark_ms for inbox in self._inboxes if inbox.watermark_ms is not None]
        return self._operator.output_watermark_ms(min(told)) if len(told) == len(self._inboxes) else None

    def on_input(
        self,
        *,
        control: Sequence[Sequence[ControlRow]],
        rows: Sequence[Sequence[pa.Table]],
        null_event_time_rows: int,
        now_ms: int | None,
    ) -> Iterator[pd.DataFrame]:
        """Take all that a batch brought, by input; yield rows of `EMITTED` with results.

        control: in any order. rows: of this bucket, rows or partials in order of task. null_event_time_rows: how many
        rows had no event time. now_ms: wall-clock time, None where no pane goes by it. Raises InputError for barriers
        that are not whole, and for late rows under `late="fail"`.
        """
        was_idle = self._idle
        self._null_event_time_rows += null_event_time_rows
        brought = [number for number in self._inputs if control[number] or rows[number] or len(self._inboxes) == 1]
        told = {number: self._inboxes[number].take(control[number]) for number in brought}
        for number in brought:
            yield from self._advance(number, told[number].batch_watermark_ms)
        for number in brought:
            if rows[number]:
                yield from self._results(self._operator.on_rows(number, pa.concat_tables(rows[number]), now_ms))
        for number in brought:
            yield from self._advance(number, told[number].watermark_ms)
        if now_ms is not None:
            yield from self._results(self._operator.on_timer(now_ms))
            self._wakes = self._wakes and self._wakes.after_input(now_ms)
        for number in brought:
            if told[number].went_idle:
                yield from self._results(self._operator.on_idle(number))
        self._tell_times(was_idle=was_idle)
        snapshot = barriers_of(one for of_input in control for one in of_input)
        if snapshot is not None:
            yield from self._barrier(snapshot)

    def on_timer(self, now_ms: int) -> Iterator[pd.DataFrame]:
        """Let the operator know the wall-clock time; yield rows of `EMITTED` with results."""
        yield from self._results(self._operator.on_timer(now_ms))
        self._wakes = self._wakes and self._wakes.after_clock(now_ms)
        yield from self._barrier(0)

    def drain(self) -> StateChanges:
        """Return the blobs to write and the names of those to remove; the note knows them from now on."""
        changes = self._operator.drain()
        for name in changes.removed:
            self.note.blobs.pop(name, None)
        self.note.blobs.update({name: len(blob) for name, blob in changes.written.items()})
        self.note.inbox, *self.note.inboxes = [inbox.snapshot() for inbox in self._inboxes]
        self.note.came_ms = None if self._wakes is None else self._wakes.came_ms
        return changes

    def last_row(self) -> pd.DataFrame:
        """Return the row of `EMITTED` with the control rows and the metrics; it alone names the bucket."""
        counted = self.counted
        return self._row(
            control=encode_rows(self._control),
            late_rows=self.late_rows,
            null_event_time_rows=self._null_event_time_rows,
            frames=self._operator.open_entries,
            state_bytes=sum(self.note.blobs.values()),
            bucket=self._number,
            replayed_rows=counted.replayed,
            rejected_rows=counted.rejected,
            dropped_windows=counted.dropped_windows,
            dropped_rows=counted.dropped_messages,
            dropped_bytes=counted.dropped_bytes,
        )

    def _results(self, outputs: Iterator[Output]) -> Iterator[pd.DataFrame]:
        for output in outputs:
            rows = output.rows.append_column(EVENT_MS, pa.array(output.event_ms))
            size = max(1, min(_PIECE_ROWS, rows.num_rows * _PIECE_BYTES // max(1, rows.nbytes)))
            for start in range(0, rows.num_rows, size):
                yield self._row(results=packed(rows.slice(start, size)))

    def _row(self, **told: Any) -> pd.DataFrame:
        import pandas as pd

        nothing = {
            "results": None, "control": "[]", "watermark_ms": self.watermark_ms, "late_rows": 0,
            "null_event_time_rows": 0, "frames": 0, "state_bytes": 0, "bucket": None,
            **dict.fromkeys(STORED, 0),
        }  # fmt: skip
        columns = {name: [value] for name, value in {**nothing, **told}.items()}
        nullable = {"watermark_ms": "Int64", "bucket": "Int32"}
        return pd.DataFrame({**columns, **{name: pd.array(columns[name], kind) for name, kind in nullable.items()}})

    @property
    def _inputs(self) -> range:
        return range(len(self._inboxes))

    @property
    def _idle(self) -> bool:
        """Whether all inputs are idle; one that has told nothing yet is not."""
        return all(inbox.idle for inbox in self._inboxes)

    def _advance(self, number: int, watermark_ms: int | None) -> Iterator[pd.DataFrame]:
        if watermark_ms is not None:
            yield from self._results(self._operator.on_watermark(number, self._layout.keys[number], watermark_ms))

    def _tell_times(self, *, was_idle: bool) -> None:
        """Tell what became true of the inputs together; a watermark wakes, so idle is told after it."""
        if was_idle and not self._idle:
            self._tell(ControlKind.ACTIVE)
        watermark_ms = self.watermark_ms
        before_ms, rises = self.note.emitted_ms, False
        if watermark_ms is not None and (before_ms is None or watermark_ms > before_ms):
            rises = True
            self._tell(ControlKind.WATERMARK, key=0, watermark_ms=watermark_ms)
            self.note.emitted_ms = watermark_ms
        if self._idle and (rises or not was_idle):
            self._tell(ControlKind.IDLE)

    def _barrier(self, at_least: int) -> Iterator[pd.DataFrame]:
        """Tell one barrier a batch; ids go up by one, also in batches that only the clock made."""
        self.note.snapshot = at_least if self.note.snapshot is None else self.note.snapshot + 1
        yield from self._results(self._operator.on_barrier(self.note.snapshot))
        self._tell(ControlKind.BARRIER, snapshot=self.note.snapshot, channels=len(self._layout.ids))

    def _tell(self, kind: ControlKind, **fields: int) -> None:
        self._control.append(ControlRow(kind=kind, channel=self._channel, source=self._layout.name, **fields))
