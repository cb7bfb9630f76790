"""Steps of both kinds of join before rows are matched: late rows, and rows that nothing can match.

Rule: a row is late if it stands below a watermark of its own side, whatever the other side has seen.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags
from keyedwm.core.errors import InputError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.join.keys import HASH
from keyedwm.operators.join.plan import LEFT, JoinPlan
from keyedwm.operators.join.results import alone
from keyedwm.operators.results import Output, late_sentence

PIECE_ROWS = 200_000
# So much of one side is looked up at once.
_GROUP_BYTES = 256 << 20
Leaving = Generator[Output, None, pa.Table]


class Inputs:
    """The rows of both sides on their way in.

    received: the last watermark by axis, which its owner changes.
    """

    def __init__(self, plan: JoinPlan, received: Mapping[int, int]) -> None:
        self._plan, self._received = plan, received
        self.late_rows = 0

    def taken(self, side: int, rows: pa.Table) -> Leaving:
        """Yield what leaves unmatched; return the rows that may be matched."""
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
        """Drop, emit or refuse late rows; return the others."""
        late = np.zeros(rows.num_rows, bool)
        for name, watermark_ms in self._watermarks(side):
            late |= _flags(pc.less(rows[name], watermark_ms))
        if not late.any():
            return rows
        self.late_rows += int(late.sum())
        if self._plan.late is LatePolicy.FAIL:
            self._refuse(side, rows.filter(pa.array(late)))
        if self._plan.late is LatePolicy.EMIT and (side == LEFT or self._plan.pairs_leave):
            yield from alone_in_pieces(self._plan, side, rows.filter(pa.array(late)), late=True)
        return rows.filter(pa.array(~late))

    def _refuse(self, side: int, late: pa.Table) -> None:
        for name, watermark_ms in self._watermarks(side):
            earliest_ms = pc.min(late[name]).as_py()
            if earliest_ms is not None and earliest_ms < watermark_ms:
                raise InputError(late_sentence(late.num_rows, earliest_ms, watermark_ms))

    def _watermarks(self, side: int) -> Iterator[tuple[str, int]]:
        """The time columns of a side that have a watermark."""
        first = self._plan.first_axis(side)
        for at, name in enumerate(self._plan.sides[side].times):
            if first + at in self._received:
                yield name, self._received[first + at]

    def _matchable(self, side: int, rows: pa.Table) -> Leaving:
        """Let rows leave that no row can match, as they have no event time or a null key; return the others."""
        timeless = np.zeros(rows.num_rows, bool)
        for name in self._plan.sides[side].times:
            if rows[name].null_count:
                timeless |= _flags(pc.is_null(rows[name]))
        lost = timeless | _flags(pc.is_null(rows[HASH])) if rows[HASH].null_count else timeless
        if not lost.any():
            return rows
        if self._plan.pads(side):
            yield from alone_in_pieces(self._plan, side, rows.filter(pa.array(lost)))
        return rows.filter(pa.array(~lost))


def in_groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a batch in groups of bounded size."""
    size = max(1, rows.num_rows * _GROUP_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def alone_in_pieces(plan: JoinPlan, side: int, rows: pa.Table, *, late: bool = False) -> Iterator[Output]:
    """Yield rows of one side, padded, so many at a time."""
    for at in range(0, rows.num_rows, PIECE_ROWS):
        yield alone(plan, side, rows.slice(at, PIECE_ROWS), late=late)


def _flags(column: pa.ChunkedArray) -> Flags:
    return pc.fill_null(column, fill_value=False).to_numpy()
