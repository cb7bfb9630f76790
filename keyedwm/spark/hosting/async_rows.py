"""`async_map` inside a task: it cuts the rows into calls and control rows, and emits rows of the result.

Rule: a call never spans a control row or two coalesced watermarks, so each row keeps its watermark. A control row keeps
the columns that the result shares with the input, such as its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import valid_texts
from keyedwm.arrow.rows import grouped
from keyedwm.arrow.schema import is_rejected_type, with_control_rows
from keyedwm.core.errors import InputError
from keyedwm.core.rows import CONTROL, EVENT_TIME, REJECTED, WATERMARK, ControlKind
from keyedwm.operators.process.async_calls import AsyncCalls, RunningCalls, worded
from keyedwm.operators.shuffle import GROUP_BYTES
from keyedwm.runtime.worker import VersionChecked, freeze_gc


@dataclass(frozen=True, slots=True)
class AsyncRows(VersionChecked):
    """The function of a `mapInArrow` over the input's columns, by place.

    schema_in: the input's schema. columns: the columns that the coroutine returns, without event times.
    """

    calls: AsyncCalls
    schema_in: pa.Schema
    columns: pa.Schema
    rows_per_call: int

    @property
    def result(self) -> pa.Schema:
        """The schema of the result."""
        return with_control_rows(
            [*self.columns, *(self.schema_in.field(name) for name in kept_columns(self.schema_in))]
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the result."""
        with RunningCalls[pa.Table](self.calls) as running:
            for unnamed in grouped(batches, self.rows_per_call, GROUP_BYTES):
                # Spark's timestamps have the session's time zone.
                rows = valid_texts(unnamed.rename_columns(self.schema_in.names).cast(self.schema_in))
                if rows.num_rows:
                    yield from self._laid_out(self._submit(running, rows))
            yield from self._laid_out(running.rest())
        freeze_gc()

    def _submit(
        self, running: RunningCalls[pa.Table], rows: pa.Table
    ) -> Iterator[tuple[pa.Table, pa.Table] | pa.Table]:
        """Give a group of rows to the calls; yield the answers and control rows that are ready."""
        is_control, is_rejected = (self._has(rows, name) for name in (CONTROL, REJECTED))
        for begin, end in self._runs(rows, is_control + 2 * is_rejected):
            if is_rejected[begin]:
                yield from running.control(rows.slice(begin, end - begin), None)
            elif is_control[begin]:
                for at, same in enumerate(_stand_for(rows[CONTROL].slice(begin, end - begin)), begin):
                    yield from running.control(rows.slice(at, 1), same)
            else:
                for at in range(begin, end, self.rows_per_call):
                    yield from running.rows(rows.slice(at, min(self.rows_per_call, end - at)))

    def _has(self, rows: pa.Table, name: str) -> np.ndarray:
        """Return 1 for each row with a value in this column (`control` or `rejected`), 0 for any other row."""
        if name not in kept_columns(self.schema_in):
            return np.zeros(rows.num_rows, np.int8)
        return pc.is_valid(rows[name]).to_numpy().astype(np.int8)

    def _runs(self, rows: pa.Table, kind: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yield the begin and end of each run of rows that have one kind and the same watermarks."""
        differs = kind[1:] != kind[:-1]
        for name in self._watermarks:
            times = pc.fill_null(rows[name].cast(pa.int64()), np.iinfo(np.int64).min).to_numpy()
            differs |= times[1:] != times[:-1]
        cuts = [0, *(np.flatnonzero(differs) + 1).tolist(), rows.num_rows]
        return pairwise(cuts)

    @property
    def _watermarks(self) -> list[str]:
        return [name for name in self.calls.hidden_columns if name not in (CONTROL, REJECTED)]

    def _laid_out(self, left: Iterable[tuple[pa.Table, pa.Table] | pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield answers and control rows as rows of the result; neighbouring control rows share a batch."""
        control: list[pa.Table] = []
        for one in left:
            if isinstance(one, pa.Table):
                control.append(one)
                continue
            yield from self._control(control)
            control = []
            yield from self._checked_answer(*one).to_batches()
        yield from self._control(control)

    def _control(self, control: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        if control:
            rows = pa.concat_tables(control)
            kinds = dict(zip(self.schema_in.names, self.schema_in.types, strict=True))
            shared = {field.name for field in self.result if kinds.get(field.name) == field.type}
            arrays = [
                rows[field.name] if field.name in shared else pa.nulls(rows.num_rows, field.type)
                for field in self.result
            ]
            yield from pa.Table.from_arrays(arrays, schema=self.result).to_batches()

    def _checked_answer(self, rows: pa.Table, answer: object) -> pa.Table:
        """Return a call's answer for these rows as rows of the result; raise InputError for a wrong answer."""
        about = f"async_map: {self.calls.name} returned"
        if not isinstance(answer, pa.Table):
            raise InputError(f"{about} {type(answer).__name__} for {worded(rows)}: an Arrow table is expected")
        expected = [name for name in self.result.names if name not in self.calls.hidden_columns]
        missing = [name for name in expected if answer.column_names.count(name) != 1]
        if missing:
            raise InputError(
                f"{about} a table with the columns {', '.join(answer.column_names)} for {worded(rows)}: "
                f"{', '.join(expected)} are expected, each once, and {', '.join(missing)} is missing or there twice"
            )
        constants = {name: pa.repeat(rows[name][0], answer.num_rows) for name in self._watermarks}
        for name in {CONTROL, REJECTED}.intersection(self.calls.hidden_columns):
            constants[name] = pa.nulls(answer.num_rows, self.schema_in.field(name).type)
        try:
            arrays = [
                constants[field.name] if field.name in constants else answer[field.name].cast(field.type)
                for field in self.result
            ]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{about} a table that does not fit its schema, for {worded(rows)}: {error}") from error
        for field, array in zip(self.columns, arrays, strict=False):
            if not field.nullable and array.null_count:
                raise InputError(
                    f"{about} nulls in {field.name!r}, which its schema has as NOT NULL, for {worded(rows)}"
                )
        return pa.Table.from_arrays(arrays, schema=self.result)


def kept_columns(schema_in: pa.Schema) -> list[str]:
    """Return the columns that keep their name: event times, watermarks, `control` and rejected records."""
    axes = (f"{EVENT_TIME}_", f"{WATERMARK}_")
    return [
        field.name
        for field in schema_in
        if field.name in {EVENT_TIME, WATERMARK, CONTROL}
        or (field.name.startswith(axes) and pa.types.is_timestamp(field.type))
        or (field.name == REJECTED and is_rejected_type(field.type))
    ]


def _stand_for(control: pa.ChunkedArray) -> Iterator[object]:
    """Yield the subject of each control row, see `subject` of `keyedwm.core.in_flight.ControlEntry`."""
    for row in control.to_pylist():
        is_watermark = row["kind"] == ControlKind.WATERMARK.value
        yield (row.get("source"), row["channel"], row["key"]) if is_watermark else None
