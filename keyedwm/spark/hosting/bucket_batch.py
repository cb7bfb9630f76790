"""One bucket in one micro-batch: it drives the operator, and emits results and control rows in their order.

Rule: the operator gets the batch's watermarks first, then all rows, then the channels' own watermarks, each by input
and axis. Results are emitted before the watermark that completed them. The idle marker follows; the barrier is last. An
idle input keeps its watermark. This module does not import Spark and reads no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from keyedwm.core.control_row import ControlRow, encode_rows
from keyedwm.core.rows import ControlKind
from keyedwm.operators.batch_figures import KeyWatermarkSummary, StoreCounts
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.protocol import KINDS, operator_of
from keyedwm.operators.results import Output
from keyedwm.operators.state.blobs import packed
from keyedwm.operators.state.store import BlobStore, StateChanges
from keyedwm.spark.hosting.bucket_clock import ProcessingTimers
from keyedwm.spark.hosting.channel_tracker import newest_snapshot
from keyedwm.spark.hosting.shared_tracker import SharedTracker

if TYPE_CHECKING:
    import pandas as pd

_OF_BATCH = "results binary, control string, watermarks string, late_rows long, null_event_time_rows long, frames long"
_OF_STORE = (
    "state_bytes long, bucket integer, replayed_rows long, rejected_rows long, dropped_windows long, "
    "dropped_rows long, dropped_bytes long, no_gap_rows long"
)
_OF_KEYS = (
    "keys long, keys_behind_ms long, keys_forgotten long, key string, key_behind_ms long, key_dropped_rows long, "
    "rejected binary"
)
EMITTED = f"{_OF_BATCH}, {_OF_STORE}, {_OF_KEYS}"
# A row of `EMITTED` without content.
_NOTHING: dict[str, Any] = dict.fromkeys((one.partition(" ")[0] for one in EMITTED.split(", ")), 0) | {
    "results": None, "control": "[]", "bucket": None, "keys_behind_ms": None, "key": None, "key_behind_ms": None,
    "key_dropped_rows": None, "rejected": None
}  # fmt: skip
# The column with the event times of results, from here to `unpack`.
EVENT_MS = "__event_ms"
# The most rows of one piece of results, and about the most bytes if keys and values are long.
_PIECE_ROWS = 200_000
_PIECE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """The layout that every bucket of an operator knows: the operator's name, the ids of all buckets, and its inputs.

    axes: for each input, the watermark keys of its time axes. kind: the operator's name as users know it. called: each
    input's name in messages, empty if the inputs have none.
    """

    name: str
    ids: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    kind: str = "aggregate"
    called: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, spec: OperatorSpec, name: str | None, ids: Sequence[int], axes: tuple[tuple[int, ...], ...],
        called: tuple[str, ...] = (),
    ) -> BucketLayout:  # fmt: skip
        """Return the layout of an operator. name: the user's, None for a name made from the specification."""
        own_name = name or f"{spec.short_name}-{spec.digest()[:6]}"
        return cls(own_name, tuple(ids), axes, KINDS[spec.kind].api_name, called)

    @property
    def axis(self) -> int | list[int]:
        """The watermark key as the manifest has it; a list if there are several."""
        keys = [key for of_input in self.axes for key in of_input]
        return keys if len(keys) > 1 else keys[0]

    @property
    def who(self) -> str:
        """The operator's name in messages."""
        return f"{self.kind} {self.name}"

    @property
    def inputs(self) -> list[str]:
        """The inputs' names in messages; a single input has the operator's name."""
        if len(self.axes) == 1:
            return [self.who]
        called = self.called or [f"input {number}" for number in range(len(self.axes))]
        return [f"{self.who}, {one}" for one in called]


@dataclass(slots=True)
class BucketManifest:
    """The state of a bucket beside its operator's state; the last three fields are written only if they have a value.

    inbox: the channels of the first input's first axis. blobs: name -> number of bytes. emitted_ms: the last emitted
    watermark of the result's first axis. snapshot: the last barrier. timer_ms: the bucket's timer. inboxes: the
    channels of the other axes and inputs. came_ms: the clock at the last batch with input, for a store with panes by
    the clock. emitted: axis -> its last emitted watermark, for the result's other axes.
    """

    inbox: Mapping[str, Any] | None = None
    blobs: dict[str, int] = field(default_factory=dict)
    emitted_ms: int | None = None
    snapshot: int | None = None
    timer_ms: int | None = None
    inboxes: Sequence[Mapping[str, Any]] = ()
    came_ms: int | None = None
    emitted: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, the same for equal manifests."""
        added = {"inboxes": self.inboxes, "came_ms": self.came_ms is not None, "emitted": self.emitted}
        return {name: value for name, value in asdict(self).items() if added.get(name, True)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BucketManifest:
        """Return the manifest of such values; further entries are ignored."""
        added = ("inboxes", "came_ms", "emitted")
        return cls(**{name: value[name] for name in cls.__slots__ if name in value or name not in added})

    def rises(self, axis: int, watermark_ms: int) -> bool:
        """Return whether a watermark is above the last emitted one of its axis; if so, it becomes the last one."""
        before_ms = self.emitted.get(str(axis)) if axis else self.emitted_ms
        if before_ms is not None and watermark_ms <= before_ms:
            return False
        if axis:
            self.emitted[str(axis)] = watermark_ms
        else:
            self.emitted_ms = watermark_ms
        return True


def _of_keys(summary: KeyWatermarkSummary) -> Iterator[dict[str, Any]]:
    """Yield the rows' values: the forgotten keys, the number of keys at each delay behind W, and each named key."""
    yield {"keys_forgotten": summary.forgotten}
    yield from ({"keys_behind_ms": by_ms, "keys": keys} for by_ms, keys in summary.behind)
    yield from ({"key": key, "key_behind_ms": by_ms} for key, by_ms in summary.slowest)
    yield from ({"key": key, "key_dropped_rows": rows} for key, rows in summary.dropped_rows)


class BucketBatch:
    """The batch of one bucket: exhaust `on_input` or `on_timer`, then call `drain`, then `last_rows`."""

    def __init__(
        self,
        plan: OperatorSpec,
        layout: BucketLayout,
        bucket: int,
        manifest: BucketManifest,
        store: BlobStore,
    ) -> None:
        self._layout = layout
        self._number = layout.ids.index(bucket)
        self._channel = f"{layout.name}#{self._number}"
        self.manifest = manifest
        states = None if manifest.inbox is None else iter((manifest.inbox, *manifest.inboxes))
        self._trackers = [
            [SharedTracker(who, key, None if states is None else next(states)) for key in keys]
            for who, keys in zip(layout.inputs, layout.axes, strict=True)
        ]
        self._operator = operator_of(plan, store)
        intervals_ms = plan.wake_intervals_ms
        self._timers = ProcessingTimers(intervals_ms, manifest.came_ms, manifest.timer_ms) if intervals_ms else None
        self._control: list[ControlRow] = []
        self._null_event_time_rows = self._no_gap_rows = 0

    @property
    def late_rows(self) -> int:
        """The number of rows of this batch that were late."""
        return self._operator.late_rows

    @property
    def store_counts(self) -> StoreCounts:
        """The counts of this batch's messages, for windows that keep messages."""
        return self._operator.batch_counts

    @property
    def next_timer_ms(self) -> int | None:
        """Return the wall-clock time at which the operator needs a timer call, None without one."""
        return self._operator.next_timer_ms if self._timers is None else self._timers.due_ms

    @property
    def watermark_ms(self) -> int | None:
        """The lowest watermark of the results over all axes, None before the first."""
        return min(self._watermarks_ms.values(), default=None)

    @property
    def _watermarks_ms(self) -> Mapping[int, int]:
        """The results' watermarks by axis. The operator gets the lowest watermark of its inputs, once each has one."""
        watermarks_ms = [tracker.watermark_ms for of_input in self._trackers for tracker in of_input]
        known = [ms for ms in watermarks_ms if ms is not None]
        return self._operator.output_watermarks_ms(min(known) if len(known) == len(watermarks_ms) else None)

    def on_input(
        self,
        *,
        control: Sequence[Sequence[ControlRow]],
        rows: Sequence[Sequence[pa.Table]],
        null_event_time_rows: int,
        now_ms: int | None,
        no_gap_rows: int = 0,
        rejected: Sequence[pa.Table] = (),
    ) -> Iterator[pd.DataFrame]:
        """Process the input of a batch; yield rows of `EMITTED` with results.

        control: for each input, its control rows in any order. rows: for each input, this bucket's rows or partials in
        the order of tasks. null_event_time_rows: the number of rows without an event time. now_ms: wall-clock time,
        None if no pane depends on it. no_gap_rows: the number of rows of `session(gap_column=)` without a gap.
        rejected: rejected records, emitted as they are. Raises InputError if barriers are missing, and for late rows
        under `late="fail"`.
        """
        for records in rejected:
            for piece in _pieces(records):
                yield self._rows([{"rejected": packed(piece)}])
        was_idle = self._idle
        self._null_event_time_rows += null_event_time_rows
        self._no_gap_rows += no_gap_rows
        numbers = [number for number in self._inputs if control[number] or rows[number] or len(self._trackers) == 1]
        received = {
            number: [tracker.apply(control[number]) for tracker in self._trackers[number]] for number in numbers
        }
        for number in numbers:
            yield from self._advance(number, [one.batch_watermark_ms for one in received[number]])
        for number in numbers:
            if rows[number]:
                yield from self._results(self._operator.on_rows(number, pa.concat_tables(rows[number]), now_ms))
        for number in numbers:
            yield from self._advance(number, [one.watermark_ms for one in received[number]])
        if now_ms is not None:
            yield from self._results(self._operator.on_timer(now_ms))
            self._timers = self._timers and self._timers.after_input(now_ms)
        for number in numbers:
            if received[number][0].went_idle:  # the axes of an input have the same channels
                yield from self._results(self._operator.on_idle(number))
        self._emit_times(was_idle=was_idle)
        snapshot = newest_snapshot(one for of_input in control for one in of_input)
        if snapshot is not None:
            yield from self._barrier(snapshot)

    def on_timer(self, now_ms: int) -> Iterator[pd.DataFrame]:
        """Give the operator the wall-clock time; yield rows of `EMITTED` with results."""
        yield from self._results(self._operator.on_timer(now_ms))
        self._timers = self._timers and self._timers.after_clock(now_ms)
        yield from self._barrier(0)

    def drain(self) -> StateChanges:
        """Return the blobs to write and the names of blobs to remove; the manifest is updated."""
        changes = self._operator.drain()
        for name in changes.removed:
            self.manifest.blobs.pop(name, None)
        self.manifest.blobs.update({name: len(blob) for name, blob in changes.blobs.items()})
        self.manifest.inbox, *self.manifest.inboxes = [
            tracker.state() for of_input in self._trackers for tracker in of_input
        ]
        self.manifest.came_ms = None if self._timers is None else self._timers.came_ms
        return changes

    def last_rows(self) -> pd.DataFrame:
        """Return the last rows of `EMITTED`.

        The first row has the control rows and the metrics, and it alone names the bucket. If keys have their own
        watermarks, rows with the keys' progress follow.
        """
        counts, summary = self.store_counts, self._operator.key_summary()
        last = {
            "control": encode_rows(self._control),
            "late_rows": self.late_rows,
            "null_event_time_rows": self._null_event_time_rows,
            "frames": self._operator.open_entries,
            "state_bytes": sum(self.manifest.blobs.values()),
            "bucket": self._number,
            "replayed_rows": counts.replayed,
            "rejected_rows": counts.rejected,
            "dropped_windows": counts.dropped_windows,
            "dropped_rows": counts.dropped_messages,
            "dropped_bytes": counts.dropped_bytes,
            "no_gap_rows": self._no_gap_rows,
        }
        return self._rows([last, *([] if summary is None else _of_keys(summary))])

    def _results(self, outputs: Iterator[Output]) -> Iterator[pd.DataFrame]:
        for output in outputs:
            rows = output.rows
            if output.event_ms is not None:
                rows = rows.append_column(EVENT_MS, pa.array(output.event_ms))
            for piece in _pieces(rows):
                yield self._rows([{"results": packed(piece)}])

    def _rows(self, values: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        import pandas as pd

        nothing = _NOTHING | {"watermarks": json.dumps(self._watermarks_ms)}
        rows = np.empty((len(values), len(nothing)), object)  # pandas is slow with columns of different types
        for at, row in enumerate(values):
            rows[at] = list({**nothing, **row}.values())
        return pd.DataFrame(rows, columns=list(nothing), dtype=object)

    @property
    def _inputs(self) -> range:
        return range(len(self._trackers))

    @property
    def _idle(self) -> bool:
        """Return whether all inputs are idle; an input without control rows is not."""
        return all(axes[0].idle for axes in self._trackers)

    def _advance(self, number: int, watermarks_ms: Sequence[int | None]) -> Iterator[pd.DataFrame]:
        for key, watermark_ms in zip(self._layout.axes[number], watermarks_ms, strict=True):
            if watermark_ms is not None:
                yield from self._results(self._operator.on_watermark(number, key, watermark_ms))

    def _emit_times(self, *, was_idle: bool) -> None:
        """Emit the inputs' common status and watermarks; a watermark means active, so the idle marker follows it."""
        if was_idle and not self._idle:
            self._emit_control(ControlKind.ACTIVE)
        rises = False
        for axis, watermark_ms in sorted(self._watermarks_ms.items()):
            if self.manifest.rises(axis, watermark_ms):
                rises = True
                self._emit_control(ControlKind.WATERMARK, key=axis, watermark_ms=watermark_ms)
        if self._idle and (rises or not was_idle):
            self._emit_control(ControlKind.IDLE)

    def _barrier(self, at_least: int) -> Iterator[pd.DataFrame]:
        """Emit the one barrier of a batch; ids increase by one, also in batches that only a timer caused."""
        self.manifest.snapshot = at_least if self.manifest.snapshot is None else self.manifest.snapshot + 1
        yield from self._results(self._operator.on_barrier(self.manifest.snapshot))
        self._emit_control(ControlKind.BARRIER, snapshot=self.manifest.snapshot, channels=len(self._layout.ids))

    def _emit_control(self, kind: ControlKind, **fields: int) -> None:
        self._control.append(ControlRow(kind=kind, channel=self._channel, source=self._layout.name, **fields))


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    size = max(1, min(_PIECE_ROWS, rows.num_rows * _PIECE_BYTES // max(1, rows.nbytes)))
    return (rows.slice(start, size) for start in range(0, rows.num_rows, size))
