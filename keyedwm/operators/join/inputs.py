"""Steps that both kinds of join share: input rows (late, or without a match), output rows, manifests.

Rule: a row is late if it is below a watermark of its own side; the other side does not matter. A pair has the event
times of its rows, in one column of the result for each axis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.core.errors import InputError
from keyedwm.core.lateness import check_late, is_behind
from keyedwm.core.watermark import MAX_MS
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.join.exchange_side import HASH
from keyedwm.operators.join.plan import LATE, LEFT, TIMESTAMP, JoinPlan
from keyedwm.operators.results import Output, QuietOperator
from keyedwm.operators.state.manifest import ManifestFormat

_US_PER_MS = 1000


def pairs(plan: JoinPlan, left: pa.Table, right: pa.Table, at_left: Ints, at_right: Ints) -> Output:
    """Return rows of both sides together: pair by pair the rows at these places."""
    return _laid_out(plan, (left, right), (pa.array(at_left), pa.array(at_right)), len(at_left), late=False)


def padded_rows(plan: JoinPlan, side: int, rows: pa.Table, *, late: bool = False) -> Output:
    """Return rows of one side, padded."""
    tables = (rows, None) if side == LEFT else (None, rows)
    return _laid_out(plan, tables, (None, None), rows.num_rows, late=late)


def _laid_out(
    plan: JoinPlan, tables: tuple[pa.Table | None, pa.Table | None], places: tuple[Any, Any], count: int, *, late: bool
) -> Output:
    def column(side: int, name: str) -> pa.Array:
        table = tables[side]
        values = contiguous(table[name])  # type: ignore[index]  # only called for sides with a column
        return values if places[side] is None else values.take(places[side])

    arrays = []
    for one, *names in plan.columns:
        present = [(side, name) for side, name in enumerate(names) if name is not None and tables[side] is not None]
        arrays.append(column(*present[0]) if present else pa.nulls(count, one.type))
    if LATE in plan.result_schema.names[len(plan.columns) : len(plan.columns) + 1]:
        arrays.append(pa.repeat(late, count))
    for axis in plan.result_axes:
        side = int(axis >= len(plan.left.axes))
        if tables[side] is None:
            arrays.append(pa.nulls(count, TIMESTAMP))
        else:
            ms = column(side, plan.sides[side].times[axis - plan.first_axis(side)])
            arrays.append(pc.multiply(ms, _US_PER_MS).cast(TIMESTAMP))
    return Output(pa.Table.from_arrays(arrays, schema=plan.result_schema), None)


PIECE_ROWS = 200_000
# The most rows of one side that are looked up at once.
_GROUP_BYTES = 256 << 20
Leaving = Generator[Output, None, pa.Table]


class Inputs:
    """The input rows of both sides.

    received: the last watermark by axis, which its owner changes.
    """

    def __init__(self, plan: JoinPlan, received: Mapping[int, int]) -> None:
        self._plan, self._received = plan, received
        self.late_rows = 0

    def accept_rows(self, side: int, rows: pa.Table) -> Leaving:
        """Yield rows that are emitted without a match; return the rows that may be matched."""
        rows = yield from self._on_time(side, rows)
        return (yield from self._matchable(side, rows))

    def axis_of(self, side: int, key: int) -> int:
        """Return the number of the axis of a side's watermark key. Raises InputError if there is none."""
        axes = self._plan.sides[side].axes
        axis = next((at for at, one in enumerate(axes) if one.key == key), None)
        if axis is None:
            raise InputError(f"a watermark of key {key} came into the join, the side has none of that key")
        return self._plan.first_axis(side) + axis

    def _on_time(self, side: int, rows: pa.Table) -> Leaving:
        """Drop, emit or reject late rows; return the other rows."""
        late = np.zeros(rows.num_rows, bool)
        for name, watermark_ms in self._watermarks(side):
            late |= is_behind(_times(rows[name]), watermark_ms)
        if not late.any():
            return rows
        self.late_rows += int(late.sum())
        self._check_late(side, rows.filter(pa.array(late)))
        if self._plan.late is LatePolicy.EMIT and (side == LEFT or self._plan.pairs_leave):
            yield from alone_in_pieces(self._plan, side, rows.filter(pa.array(late)), late=True)
        return rows.filter(pa.array(~late))

    def _check_late(self, side: int, late: pa.Table) -> None:
        for name, watermark_ms in self._watermarks(side):
            earliest_ms = int(_times(late[name]).min())
            if is_behind(earliest_ms, watermark_ms):
                check_late(self._plan.late, late.num_rows, earliest_ms, watermark_ms)

    def _watermarks(self, side: int) -> Iterator[tuple[str, int]]:
        """The time columns of a side that have a watermark."""
        first = self._plan.first_axis(side)
        for at, name in enumerate(self._plan.sides[side].times):
            if first + at in self._received:
                yield name, self._received[first + at]

    def _matchable(self, side: int, rows: pa.Table) -> Leaving:
        """Emit the rows that no row can match, as they have no event time or a null key; return the others."""
        timeless = np.zeros(rows.num_rows, bool)
        for name in self._plan.sides[side].times:
            if rows[name].null_count:
                timeless |= _flags(pc.is_null(rows[name]))
        is_unmatchable = timeless | _flags(pc.is_null(rows[HASH])) if rows[HASH].null_count else timeless
        if not is_unmatchable.any():
            return rows
        if self._plan.pads(side):
            yield from alone_in_pieces(self._plan, side, rows.filter(pa.array(is_unmatchable)))
        return rows.filter(pa.array(~is_unmatchable))


def in_groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a batch in groups of bounded size."""
    size = max(1, rows.num_rows * _GROUP_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def alone_in_pieces(plan: JoinPlan, side: int, rows: pa.Table, *, late: bool = False) -> Iterator[Output]:
    """Yield rows of one side, padded, in pieces of bounded size."""
    for at in range(0, rows.num_rows, PIECE_ROWS):
        yield padded_rows(plan, side, rows.slice(at, PIECE_ROWS), late=late)


def _times(column: pa.ChunkedArray) -> Ints:
    """Return event times; a missing time is beyond every watermark."""
    return ints(contiguous(pc.fill_null(column, MAX_MS) if column.null_count else column))


def _flags(column: pa.ChunkedArray) -> Flags:
    return pc.fill_null(column, fill_value=False).to_numpy()


class JoinBase(QuietOperator, ABC):
    """The base of both operators. received: the last watermark by axis, which the operator changes."""

    def __init__(self, plan: JoinPlan, received: Mapping[int, int]) -> None:
        self._plan = plan
        self._inputs = Inputs(plan, received)

    @property
    def late_rows(self) -> int:
        """The number of rows that were late since this instance was built."""
        return self._inputs.late_rows

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:  # noqa: ARG002  no clock
        """Process rows of a side, in its `staged` schema; yield the results that they complete, piece by piece."""
        for some in in_groups(rows):
            yield from self._accept_rows(input_number, some)

    @abstractmethod
    def _accept_rows(self, side: int, rows: pa.Table) -> Iterator[Output]:
        """Process some rows."""


VERSION = 2  # in version 1, of 0.3.0, the manifest of `join_latest` had a list of the blobs of changes
FORMAT = ManifestFormat(
    state="state of the join", version=VERSION, readable=(1, VERSION),
    unchanged="on, how, time bounds, condition, columns, late and the names of the sides",
)  # fmt: skip
