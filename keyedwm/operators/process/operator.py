"""The operator that runs a processor: it hands over rows, watermarks and the clock, and checks every answer."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from keyedwm.arrow.columns import contiguous, ints
from keyedwm.core.errors import InputError
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.processor import ProcessState, joined
from keyedwm.operators.results import Output
from keyedwm.operators.state.manifest import MANIFEST, manifest_of, read_manifest
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs

EVENT_TIME = "event_time"
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_US_PER_MS = 1000


class ProcessOperator:
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
        """How many rows the processor counted as late."""
        return self._whole("late_rows", self._processor.late_rows, of="")

    @property
    def open_entries(self) -> int:
        """How many rows the state holds."""
        return sum(self._logs.rows.values())

    @property
    def next_timer_ms(self) -> int | None:
        """When the processor wants to be told the wall-clock time."""
        due_ms = self._processor.next_timer_ms
        return None if due_ms is None else self._whole("next_timer_ms", due_ms)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return what the processor passes on."""
        return self._whole("output_watermark_ms", self._processor.output_watermark_ms(watermark_ms))

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:  # noqa: ARG002
        """Hand rows to the processor."""
        shown = rows.drop_columns([self._plan.inputs[input_number].time])
        return self._told(self._processor.on_rows(input_number, shown))

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Tell a watermark that has increased."""
        told = list(self._processor.watermarks_ms)
        before_ms = told[input_number]
        if before_ms is None or time_ms > before_ms:
            told[input_number] = time_ms
            self._tell_watermarks(told)
            yield from self._told(self._processor.on_watermark(input_number, key, time_ms))

    def on_idle(self, input_number: int) -> Iterator[Output]:
        """Tell that the input is idle."""
        return self._told(self._processor.on_idle(input_number))

    def on_barrier(self, snapshot: int) -> Iterator[Output]:
        """Tell the end of a batch."""
        return self._told(self._processor.on_barrier(snapshot))

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Tell the wall-clock time, if it is due or nothing was asked for yet."""
        due_ms = self._processor.next_timer_ms
        if due_ms is None or now_ms >= due_ms:
            yield from self._told(self._processor.on_timer(now_ms))

    def on_end(self) -> Iterator[Output]:
        """Nothing ends here: a stream does not."""
        return iter(())

    def drain(self) -> StateChanges:
        """Return what changed in the state since the last call."""
        changes = self._logs.drain(self._merge)
        try:
            told = manifest_of(self._plan, {**self._manifest_state(), **self._logs.state()})
            _check_facts(self._state.facts)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"process: {self._plan.called} put something into state.facts that JSON has no value for ({error}): "
                f"keep it as a table, or as texts, numbers, lists and objects"
            ) from error
        return StateChanges({**changes.written, MANIFEST: told}, changes.removed)

    def _manifest_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "watermark_ms": self._processor.watermark_ms,
            "due_ms": self.next_timer_ms,
            "own": self._state.facts,
            "schemas": self._state.schemas,
        }
        if len(self._plan.inputs) > 1:
            state["watermarks_ms"] = list(self._processor.watermarks_ms)
        return state

    def _merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        return joined(log, tables).combine_chunks()

    def _whole(self, what: str, number: object, of: str = " of ms") -> int:
        try:
            return operator.index(number)  # type: ignore[arg-type]  # as of NumPy, too
        except TypeError as error:
            raise InputError(
                f"process: {self._plan.called} gave {number!r} as {what}, a whole number{of} is expected"
            ) from error

    def _tell_watermarks(self, by_input: Sequence[int | None]) -> None:
        known = [ms for ms in by_input if ms is not None]
        self._processor.watermarks_ms = tuple(by_input)
        self._processor.watermark_ms = min(known) if len(known) == len(by_input) else None

    def _told(self, tables: Iterable[pa.Table] | None) -> Iterator[Output]:
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
        wanted = self._plan.result
        if not isinstance(table, pa.Table):
            raise InputError(f"process: {self._plan.called} emitted {type(table).__name__}, Arrow tables are expected")
        if set(table.column_names) != {*wanted.names, EVENT_TIME}:
            raise InputError(
                f"process: {self._plan.called} emitted a table with the columns {', '.join(table.column_names)}, the "
                f"result has {', '.join(wanted.names)}, and {EVENT_TIME} is expected beside them"
            )
        try:
            rows = table.select(wanted.names).cast(wanted)
            times = contiguous(table[EVENT_TIME]).cast(_TIMESTAMP).cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"process: {self._plan.called} emitted a table that does not fit: {error}") from error
        if times.null_count:
            raise InputError(f"process: {self._plan.called} emitted rows without an {EVENT_TIME}")
        return Output(rows, ints(times) // _US_PER_MS)


def _check_facts(facts: object) -> None:
    """Raise TypeError for what JSON would give back as something else: a key that is no text becomes one."""
    if not isinstance(facts, dict):
        raise TypeError(f"facts are {type(facts).__name__}, a dict is expected")
    left: list[object] = [facts]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            wrong = next((key for key in found if not isinstance(key, str)), None)
            if wrong is not None or None in found:
                raise TypeError(f"the key {wrong!r} is {type(wrong).__name__}, keys are texts")
            left += found.values()
        elif isinstance(found, list | tuple):
            left += found
