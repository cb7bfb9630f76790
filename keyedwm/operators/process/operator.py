"""The operator that runs a processor: it passes rows, watermarks and the clock to it, and checks every answer.

If keys have their own watermarks, the processor's watermark is `W - behind`, below which no row of any key is on time.
Each row has the effective watermark of its key at the start of the batch. After the rows of a batch the operator calls
`on_key_watermark` for keys whose watermarks rose, and once for keys that W made idle.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints, sorted_distinct
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.core.errors import InputError
from keyedwm.core.lateness import is_behind
from keyedwm.operators.batch_figures import KeyWatermarkSummary
from keyedwm.operators.keyed.key_watermark_log import KEYS_LOG, is_own
from keyedwm.operators.keyed.key_watermarks import NEVER, KeyWatermarks
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.processor import KEY_WATERMARK, RISEN, ProcessState
from keyedwm.operators.results import Output, QuietOperator
from keyedwm.operators.state.key_dictionary import key_columns
from keyedwm.operators.state.manifest import MANIFEST, manifest_of, read_manifest
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs

EVENT_TIME = "event_time"
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_US_PER_MS = 1000


class ProcessOperator(QuietOperator):
    """A processor behind the operator protocol; see `protocol.Operator`."""

    def __init__(self, plan: ProcessPlan, store: BlobStore) -> None:
        self._plan = plan
        state = read_manifest(plan, store)
        self._logs = TableLogs(store, manifest=MANIFEST, state=state)
        self._state = ProcessState(self._logs, dict(state.get("own", {})), dict(state.get("schemas", {})))
        self._processor = plan.make()
        self._processor.state = self._state
        self._processor.next_timer_ms = state.get("due_ms")
        if len(plan.inputs) == 1:
            self._tell_watermarks([state.get("watermark_ms")])
        else:
            self._tell_watermarks(state.get("watermarks_ms", [None] * len(plan.inputs)))

    @property
    def late_rows(self) -> int:
        """The number of rows that the processor counted as late."""
        return self._whole("late_rows", self._processor.late_rows, of="")

    @property
    def open_entries(self) -> int:
        """The number of rows that the state holds."""
        return sum(self._logs.rows.values())

    @property
    def next_timer_ms(self) -> int | None:
        """The wall-clock time of the processor's next call, None if there is none."""
        due_ms = self._processor.next_timer_ms
        return None if due_ms is None else self._whole("next_timer_ms", due_ms)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark that the processor passes on."""
        return self._whole("output_watermark_ms", self._processor.output_watermark_ms(watermark_ms))

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:  # noqa: ARG002
        """Hand rows to the processor."""
        visible_rows = rows.drop_columns([self._plan.inputs[input_number].time])
        return self._outputs(self._processor.on_rows(input_number, visible_rows))

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Pass a watermark that has increased to the processor."""
        watermarks_ms = list(self._processor.watermarks_ms)
        before_ms = watermarks_ms[input_number]
        if before_ms is None or time_ms > before_ms:
            watermarks_ms[input_number] = time_ms
            self._tell_watermarks(watermarks_ms)
            yield from self._outputs(self._processor.on_watermark(input_number, key, time_ms))

    def on_idle(self, input_number: int) -> Iterator[Output]:
        """Call the processor for an idle input."""
        return self._outputs(self._processor.on_idle(input_number))

    def on_barrier(self, snapshot: int) -> Iterator[Output]:
        """Call the processor at the end of a batch."""
        return self._outputs(self._processor.on_barrier(snapshot))

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Pass the wall-clock time to the processor, if its next call is due or it has not named a time yet."""
        due_ms = self._processor.next_timer_ms
        if due_ms is None or now_ms >= due_ms:
            yield from self._outputs(self._processor.on_timer(now_ms))

    def on_end(self) -> Iterator[Output]:
        """Emit nothing: a processor has no end of input."""
        return iter(())

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""
        changes = self._logs.drain()
        try:
            manifest = manifest_of(self._plan, {**self._manifest_state(), **self._logs.state()})
            _check_facts(self._state.facts)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"process: {self._plan.called} put something into state.facts that JSON has no value for ({error}): "
                f"keep it as a table, or as texts, numbers, lists and objects"
            ) from error
        return StateChanges({**changes.blobs, MANIFEST: manifest}, changes.removed)

    def _manifest_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "watermark_ms": self._processor.watermark_ms,
            "due_ms": self.next_timer_ms,
            "own": self._state.facts,
            "schemas": self._state.known_schemas(),
        }
        if len(self._plan.inputs) > 1:
            state["watermarks_ms"] = list(self._processor.watermarks_ms)
        return state

    def _whole(self, name: str, number: object, of: str = " of ms") -> int:
        try:
            return operator.index(number)  # type: ignore[arg-type]  # as of NumPy, too
        except TypeError as error:
            raise InputError(
                f"process: {self._plan.called} gave {number!r} as {name}, a whole number{of} is expected"
            ) from error

    def _tell_watermarks(self, by_input: Sequence[int | None]) -> None:
        known = [ms for ms in by_input if ms is not None]
        self._processor.watermarks_ms = tuple(by_input)
        self._processor.watermark_ms = min(known) if len(known) == len(by_input) else None

    def _outputs(self, tables: Iterable[pa.Table] | None) -> Iterator[Output]:
        if tables is None:
            return
        if isinstance(tables, (pa.Table, str)) or not isinstance(tables, Iterable):  # these have columns and letters
            raise InputError(
                f"process: {self._plan.called} answered with {type(tables).__name__}: yield Arrow tables, or return a "
                f"list of them"
            )
        for table in tables:
            yield self._output(table)

    def _output(self, table: object) -> Output:
        """Check what a processor emits, and read its event times."""
        schema = self._plan.result
        if not isinstance(table, pa.Table):
            raise InputError(f"process: {self._plan.called} emitted {type(table).__name__}, Arrow tables are expected")
        if set(table.column_names) != {*schema.names, EVENT_TIME}:
            raise InputError(
                f"process: {self._plan.called} emitted a table with the columns {', '.join(table.column_names)}, the "
                f"result has {', '.join(schema.names)}, and {EVENT_TIME} is expected beside them"
            )
        try:
            rows = table.select(schema.names).cast(schema)
            times = contiguous(table[EVENT_TIME]).cast(_TIMESTAMP).cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"process: {self._plan.called} emitted a table that does not fit: {error}") from error
        if times.null_count:
            raise InputError(f"process: {self._plan.called} emitted rows without an {EVENT_TIME}")
        return Output(rows, ints(times) // _US_PER_MS)


def _check_facts(facts: object) -> None:
    """Raise TypeError for values that JSON would change: a key that is no text would become one."""
    if not isinstance(facts, dict):
        raise TypeError(f"facts are {type(facts).__name__}, a dict is expected")
    left: list[object] = [facts]
    while left:
        read_back = left.pop()
        if isinstance(read_back, dict):
            wrong = next((key for key in read_back if not isinstance(key, str)), None)
            if wrong is not None or None in read_back:
                raise TypeError(f"the key {wrong!r} is {type(wrong).__name__}, keys are texts")
            left += read_back.values()
        elif isinstance(read_back, list | tuple):
            left += read_back


KEYS_STATE = "key_watermarks"  # in the manifest


class PerKeyProcessOperator(ProcessOperator):
    """One instance of the operator; its `watermark_ms` is `W - behind`."""

    def __init__(self, plan: ProcessPlan, per_key: PerKey, store: BlobStore) -> None:
        super().__init__(plan, store)
        self._behind_ms = per_key.behind_ms
        self._own = KeyWatermarks(plan, per_key, self._logs, read_manifest(plan, store).get(KEYS_STATE, {}), KEYS_LOG)
        self._own.rise(self._processor.watermark_ms)

    @property
    def open_entries(self) -> int:
        """The number of rows that the processor holds."""
        return sum(rows for log, rows in self._logs.rows.items() if not is_own(log, KEYS_LOG))

    def key_summary(self) -> KeyWatermarkSummary:
        """Return the figures of the keys at the end of a batch."""
        return self._own.key_summary()

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark that the processor passes on for `W - behind`."""
        return super().output_watermark_ms(watermark_ms - self._behind_ms)

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Pass rows to the processor, then the keys whose watermarks they have raised."""
        owners = self._own.numbers(key_columns(self._plan.owners, rows), rows.num_rows)
        before = self._own.effective_ms()
        watermarks = before[owners]
        channels = None
        if self._plan.channel:
            channels = hashed_rows([contiguous(rows[name]) for name in self._plan.channel], rows.num_rows)
        times = ints(contiguous(rows[self._plan.inputs[input_number].time]))
        if (late := is_behind(times, watermarks)).any():
            self._own.count_dropped(owners[late], np.ones(int(late.sum()), np.int64))
        self._own.advance(owners, None if channels is None else channels.view(np.int64), times, row_by_row=False)
        with_watermarks = rows.append_column(KEY_WATERMARK, _times(watermarks))
        yield from super().on_rows(input_number, with_watermarks, now_ms)
        yield from self._emit_key_watermarks(input_number, sorted_distinct(owners), before)

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Pass `W - behind` to the processor, then the keys that W has made idle."""
        floor_ms = time_ms - self._behind_ms
        before_ms = self._processor.watermark_ms
        if before_ms is not None and floor_ms <= before_ms:
            return
        yield from super().on_watermark(input_number, key, floor_ms)
        self._own.rise(floor_ms)
        idle = self._own.idle_owners(_done_ms)
        if len(idle):
            before = self._own.stored_ms()
            self._own.close_idle(idle, _done_ms)
            yield from self._emit_key_watermarks(input_number, idle, before, self._own.stored_ms())

    def _manifest_state(self) -> dict[str, Any]:
        return {**super()._manifest_state(), KEYS_STATE: self._own.state()}

    def _emit_key_watermarks(
        self, input_number: int, owners: Ints, before: Ints, after: Ints | None = None
    ) -> Iterator[Output]:
        """Call the processor for the owners among these whose watermarks have risen."""
        now = (self._own.effective_ms() if after is None else after)[owners]
        risen = np.flatnonzero(now > before[owners])
        if len(risen):
            owners, now = owners[risen], now[risen]
            columns = [*self._own.columns(owners), _times(before[owners]), pa.array(now)]
            keys = pa.table(columns, [*self._plan.owners, *RISEN])
            yield from self._outputs(self._processor.on_key_watermark(input_number, keys))


def _done_ms(tops: Ints) -> Ints:
    """The times at which rows with these highest event times are complete."""
    return np.where(tops > NEVER // 2, tops + 1, NEVER)


def _times(times: Ints) -> pa.Array:
    """Return watermarks of keys, null for a key without one."""
    return pa.array(times, mask=times <= NEVER // 2)
