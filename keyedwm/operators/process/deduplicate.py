"""Deduplication: the first row of a key passes, and rows of the key near it in event time are dropped.

Rule: a row is a duplicate if a row of its key passed that is at most `within` before or after it. Rows are processed in
the order of their channels, or in order of arrival if they have no channel. The state has a passed row until the
watermark is more than `within` above it: then only a late row can be its duplicate. So a restart does not change which
rows pass. Nor do the limits of batches, if all rows of a key are in one channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous, millis
from keyedwm.core.errors import OptionError
from keyedwm.core.lateness import horizon_ms, is_behind
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.kernels import pass_within
from keyedwm.operators.plan_checks import check_key_columns, check_length, check_named_once
from keyedwm.operators.process.passed_keys import NOT_PASSED, STATE_COLUMNS, PassedKeys, PassedRows
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.process.running_state import RECORD
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns


@dataclass(frozen=True, kw_only=True)
class DeduplicatePlan:
    """Rows of `schema`; a row that passes drops later rows of its key `on` with event times within `within_ms` of it.

    time: the event-time column.
    """

    schema: pa.Schema
    on: tuple[str, ...]
    within_ms: int
    time: str = EVENT_TIME

    def __post_init__(self) -> None:
        check_key_columns(self.schema, (*self.on, self.time), self.on)
        check_named_once("deduplicate: on", self.on)
        reserved = next((name for name in self.on if name in STATE_COLUMNS), None)
        if reserved is not None:
            raise OptionError(f"deduplicate: a key column cannot be called {reserved!r}: the state has one; rename it")
        if not self.on:
            raise OptionError("deduplicate: on=[]: name at least one column; rows with equal values are duplicates")
        if self.within_ms < 1:
            raise OptionError(f"deduplicate: within={self.within_ms} ms, it must be 1 ms or more")
        check_length("within of deduplicate", self.within_ms)

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of rows that pass, without `event_time`."""
        return pa.schema([one for one in self.schema if one.name != EVENT_TIME])

    @cached_property
    def order(self) -> list[tuple[str, str]]:
        """The columns that order the rows of a batch; none if the rows do not have them."""
        there = set(RECORD) <= set(self.schema.names)
        return [(name, "ascending") for name in RECORD] if there else []


class Deduplicate(Processor):
    """The operator. Its state: the passed keys, by event time."""

    def __init__(self, plan: DeduplicatePlan) -> None:
        self._plan = plan
        self._fields = [plan.schema.field(name) for name in plan.on]

    def on_rows(self, input_number: int, rows: pa.Table) -> Iterator[pa.Table]:  # noqa: ARG002
        """Yield the rows that pass; late ones are dropped and counted."""
        rows = rows.select(self._plan.schema.names)
        times = millis(contiguous(rows[self._plan.time]))
        if (late := is_behind(times, horizon_ms(self.watermark_ms))).any():
            self.late_rows += int(late.sum())
            rows, times = rows.filter(pa.array(~late)), times[~late]
        if not rows.num_rows:
            return
        if self._plan.order:
            order = pc.sort_indices(rows.select([name for name, _ in self._plan.order]), sort_keys=self._plan.order)
            rows, times = rows.take(order), times[order.to_numpy()]
        keys = key_columns(self._plan.on, rows)
        earlier = PassedKeys(self.state, self._fields)
        passes = self._passing(keys, times, earlier.near(keys, times, self._plan.within_ms))
        places = np.flatnonzero(passes)
        if len(places):
            passing = rows.take(pa.array(places))
            from_ms = int(times.min()) if self.watermark_ms is None else self.watermark_ms
            earlier.add(passing, times[places], self._plan.within_ms, from_ms)
            columns = [passing[name] for name in self._plan.result_schema.names]
            yield pa.table([*columns, passing[self._plan.time]], [*self._plan.result_schema.names, EVENT_TIME])

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[pa.Table]:  # noqa: ARG002
        """Forget the keys that no row can repeat any more."""
        PassedKeys(self.state, self._fields).forget(time_ms - self._plan.within_ms)
        yield from ()

    def _passing(self, keys: list[pa.Array], times: Ints, earlier: PassedRows) -> Flags:
        """Return which rows pass. earlier: the rows of these keys that passed before."""
        row_count, within_ms = len(times), self._plan.within_ms
        dictionary = KeyDictionary(self._fields)
        numbers = np.concatenate(
            [dictionary.numbers(keys, row_count), dictionary.numbers(earlier.keys, len(earlier.times))]
        )
        both = np.concatenate([times, earlier.times])
        # Two rows of a key in one cell are duplicates, so at most one of them passes; further duplicates are in
        # adjacent cells.
        cells = both // (within_ms + 1)
        order = np.lexsort((cells, numbers))
        same_key = np.diff(numbers[order], prepend=-1) == 0
        steps = np.diff(cells[order], prepend=0)
        begins = ~same_key | (steps != 0)
        ids = np.empty(len(both), np.int64)
        ids[order] = np.cumsum(begins) - 1
        meets = (same_key & (steps == 1))[begins]  # whether the cell before is adjacent, and of the same key
        count = len(meets)
        lowest, highest = np.full(count, NOT_PASSED), np.full(count, NOT_PASSED)
        if len(earlier.times):
            of_passed, by_time = ids[row_count:], np.argsort(earlier.times, kind="stable")
            highest[of_passed[by_time]] = earlier.times[by_time]
            lowest[of_passed[by_time[::-1]]] = earlier.times[by_time[::-1]]
        return pass_within(times, ids[:row_count], meets, (lowest, highest), within_ms)
