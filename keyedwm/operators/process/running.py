"""Running aggregates: each row is emitted with the aggregates of its key's rows up to it, in order of event time.

Rule: rows of equal event time are in order of topic, partition and offset, rows of one record in order of arrival. A
row waits until the watermark (with watermarks of keys, its key's) has passed it; a row behind the watermark is late,
and is in no result. Without late rows, results depend neither on batches nor on the order in which partitions are
read. In SQL: OVER (PARTITION BY ... ORDER BY event_time, topic, partition, offset ROWS UNBOUNDED PRECEDING). With
`keep`, a key's aggregates start from zero after a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, millis
from keyedwm.core.errors import InputError
from keyedwm.core.lateness import NEVER, check_late, horizon_ms, is_behind
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.aggregates.aggregate_function import RowOrder
from keyedwm.operators.grouping import row_groups
from keyedwm.operators.process.processor import KEY_WATERMARK, RISEN, Processor
from keyedwm.operators.process.running_state import RECORD, WITHIN, Elements, RunningKeys, RunningPlan
from keyedwm.operators.state.entries import Accumulators
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.table import SlicedTable

VERSION = 2  # the version of the state: in version 1, rows of one record were in order of their values
_WAITING, _KEYS = "waiting-", "keys"
# A batch appends to the slices of its rows; a watermark reads only the slices that it has reached.
SLICE_MS = 10_000


class Running(Processor):
    """The operator. Its state: the waiting rows, slice by slice, and the accumulators of each key."""

    def __init__(self, plan: RunningPlan) -> None:
        self._plan = plan
        self._sort_keys = [(name, "ascending") for name in (plan.time, *RECORD)]

    def on_rows(self, input_number: int, rows: pa.Table) -> Iterable[pa.Table]:  # noqa: ARG002
        """Store rows until the watermark; drop and count late rows, or reject them with an error."""
        watermarks, per_key = self._row_watermarks(rows), KEY_WATERMARK in rows.column_names
        rows = rows.select(self._plan.schema.names)
        for name in RECORD:
            if rows[name].null_count:
                raise InputError(
                    f"running: {rows[name].null_count} of {rows.num_rows} rows have no {name}, by which rows of equal "
                    "event time are ordered: keep topic, partition and offset as the source has them"
                )
        times = millis(contiguous(rows[self._plan.time]))
        if (late := is_behind(times, watermarks)).any():
            self._count_late(times[late], per_key=per_key)
            rows, times = rows.filter(pa.array(~late)), times[~late]
        self._waiting.add(rows, times // SLICE_MS)
        return ()

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[pa.Table]:  # noqa: ARG002
        """Yield the rows below the watermark with their aggregates, in order."""

        def is_due(rows: pa.Table) -> Flags:
            return is_behind(millis(contiguous(rows[self._plan.time])), time_ms)

        slices = sorted(number for number in self._waiting.numbers if number * SLICE_MS < time_ms)
        yield from self._emit([self._due(number, is_due) for number in slices])

    def on_key_watermark(self, input_number: int, keys: pa.Table) -> Iterator[pa.Table]:  # noqa: ARG002
        """Yield the rows below the watermarks of their keys with their aggregates, in order."""
        owners = keys.column_names[: -len(RISEN)]
        before = ints(contiguous(pc.fill_null(keys[RISEN[0]], NEVER)))
        until = ints(contiguous(keys[RISEN[1]]))
        known = KeyDictionary([keys.schema.field(name) for name in owners])
        known.numbers_of(keys)  # a key's number is its place
        limits = np.append(until, NEVER)

        def is_due(rows: pa.Table) -> Flags:
            numbers = known.numbers_of(rows)
            return is_behind(millis(contiguous(rows[self._plan.time])), limits[np.minimum(numbers, len(until))])

        begins = SLICE_MS * np.array(sorted(self._waiting.numbers), np.int64)
        # The slices that the rise of each key's watermark has reached.
        starts, ends = np.searchsorted(begins + SLICE_MS, before, "right"), np.searchsorted(begins, until)
        steps = np.bincount(starts, minlength=len(begins) + 1) - np.bincount(ends, minlength=len(begins) + 1)
        slices = begins[np.cumsum(steps)[:-1] > 0] // SLICE_MS
        yield from self._emit([self._due(number, is_due) for number in slices.tolist()])

    @cached_property
    def _waiting(self) -> SlicedTable:
        """The rows that wait for the watermark."""
        return self.state.slices(_WAITING)

    def _row_watermarks(self, rows: pa.Table) -> Ints:
        """Return the effective watermark of each row."""
        if KEY_WATERMARK in rows.column_names:
            return ints(contiguous(pc.fill_null(rows[KEY_WATERMARK], NEVER)))
        return np.full(rows.num_rows, horizon_ms(self.watermark_ms))

    def _emit(self, due: list[pa.Table]) -> Iterator[pa.Table]:
        """Yield rows with their aggregates, in order; drop keys that are silent for `keep`."""
        rows = pa.concat_tables([self._plan.schema.empty_table(), *due])
        if not rows.num_rows:
            return
        rows = rows.take(pc.sort_indices(rows, sort_keys=self._sort_keys))  # stable
        rows = rows.append_column(WITHIN, pa.array(self._places_in_record(rows)))
        table = self.state.table(_KEYS)
        keys = RunningKeys(self._plan, table.read())
        most = self.state.limits.running_rows
        for start in range(0, rows.num_rows, most):
            yield self._result(keys, rows.slice(start, most))
        table.add(keys.changed())
        live = keys.live(horizon_ms(self.watermark_ms))
        table.compact(len(live), lambda: keys.table(live))

    def _places_in_record(self, rows: pa.Table) -> Ints:
        """Return the place of each row in its record; rows are in order."""
        places = np.arange(rows.num_rows)
        begins = np.zeros(rows.num_rows, np.bool_)
        begins[:1] = True
        for name, _ in self._sort_keys:
            codes = row_groups([contiguous(rows[name])], rows.num_rows)
            begins[1:] |= codes[1:] != codes[:-1]
        return places - np.maximum.accumulate(np.where(begins, places, 0))

    def _due(self, number: int, is_due: Callable[[pa.Table], Flags]) -> pa.Table:
        """Remove and return the rows of a slice that are due."""
        rows = pa.concat_tables(self._waiting.read(number))
        due_rows = is_due(rows)
        if due_rows.any():
            self._waiting.replace(number, rows.filter(pa.array(~due_rows)))
        return rows.filter(pa.array(due_rows))

    def _result(self, keys: RunningKeys, rows: pa.Table) -> pa.Table:
        """Return rows with their aggregates; update the accumulators of their keys. rows: in order."""
        plan, times = self._plan, millis(contiguous(rows[self._plan.time]))
        order = RowOrder(times, tuple(contiguous(rows[name]) for name in (*RECORD, WITHIN)))
        lifted = [
            function.lift(spec.values_of(rows, plan.schema), order)
            for (_, spec), function in zip(plan.aggregates, plan.functions, strict=True)
        ]
        numbers = keys.numbers_of(rows)
        ones = np.ones(rows.num_rows, np.int64)
        results = keys.go_on(Elements(Accumulators(numbers, ones, tuple(map(tuple, lifted))), times))
        columns = [*(rows[name] for name in plan.result_schema.names[: -len(results)]), *results, rows[plan.time]]
        return pa.table(columns, [*plan.result_schema.names, EVENT_TIME])

    def _count_late(self, times: Ints, *, per_key: bool) -> None:
        self.late_rows += len(times)
        check_late(self._plan.late, len(times), int(times.min()), self.watermark_ms, per_key=per_key, who="running: ")
