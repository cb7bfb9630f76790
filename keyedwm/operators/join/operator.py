"""The join of two streams, whole columns at once (the scalar model stands in conformance/models).

Rule: a late row is dropped, even by an outer join. A row is joined at once with the rows that the other side holds, and
held as long as a future row can match it. An unmatched row of an outer side is emitted padded when it is forgotten, or
at once if it cannot be held. Rows are emitted before the watermarks of the same step.

The calls are those of `operators.protocol.Operator`, with two inputs, left 0 and right 1. The caller
writes what `drain` returned before its next call.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous
from keyedwm.operators.join.bounds import UNBOUNDED, Bound, JoinHorizons
from keyedwm.operators.join.exchange_side import same_keys
from keyedwm.operators.join.inputs import (
    FORMAT,
    JoinBase,
    alone_in_pieces,
    pairs,
)
from keyedwm.operators.join.kernels import hash_groups, pairs_from, ranges_of
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.operators.join.side_buffer import SideBuffer, SidePiece
from keyedwm.operators.results import Output
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import BlobStore, StateChanges, limits_of

_PIECE_BYTES = 64 << 20
_PREFIXES = ("left", "right")


class JoinOperator(JoinBase):
    """One instance of the operator."""

    def __init__(self, plan: JoinPlan, store: BlobStore) -> None:
        state = FORMAT.read(plan.digest(), store)
        self._limits = JoinHorizons(plan.time, {int(axis): ms for axis, ms in state.get("received", {}).items()})
        super().__init__(plan, self._limits.received)
        self._result_rows = limits_of(store).result_rows
        self._main = plan.time.main
        low, high = _ends(self._main)
        mains = (self._main.left, self._main.right)
        self._buffers = tuple(
            SideBuffer(
                plan.sides[side],
                _PREFIXES[side],
                store,
                state.get(_PREFIXES[side], ()),
                main=mains[side],
                gap_ms=min(high - low, UNBOUNDED),
                keeps_matched=plan.pairs_leave or side == RIGHT,
            )
            for side in (LEFT, RIGHT)
        )

    @property
    def open_entries(self) -> int:
        """The number of rows that the state holds."""
        return sum(buffer.rows for buffer in self._buffers)

    def output_watermarks_ms(self, watermark_ms: int | None) -> dict[int, int]:  # noqa: ARG002  it has axes
        """The output watermarks of the result, by axis, for axes that have one: no later row is behind them."""
        passed_on = self._limits.passed_on
        return {axis: passed_on[axis] for axis in self._plan.passed_on if axis in passed_on}

    def limit_ms(self, axis: int) -> int | None:
        """Return the time below which rows of this axis are forgotten."""
        return self._limits.forgotten_below(axis)

    def buffered_rows(self, side: int) -> list[dict[str, Any]]:
        """Return the held rows of a side, for readers of the state."""
        pieces = self._buffers[side].live_pieces(self._limits_of(side))
        return [row for piece in pieces for row in piece.table.select(self._plan.sides[side].schema.names).to_pylist()]

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Apply the watermark of a side and its key; yield the padded rows that it forgets.

        A watermark that does not increase has no effect. Raises InputError for a key that the side does not have.
        """
        axis = self._inputs.axis_of(input_number, key)
        other = RIGHT if input_number == LEFT else LEFT
        before = self._limits_of(other)
        if not self._limits.rise(axis, time_ms):
            return
        for piece in self._buffers[other].forget(before, self._limits_of(other), pads=self._plan.pads(other)):
            yield from self._emit_padded(other, piece.table)

    def on_end(self) -> Iterator[Output]:
        """Yield the unmatched rows, and clear the state."""
        for side in (LEFT, RIGHT):
            limits = self._limits_of(side)
            everything: list[int | None] = [UNBOUNDED] * len(limits)
            for piece in self._buffers[side].forget(limits, everything, pads=self._plan.pads(side)):
                yield from self._emit_padded(side, piece.table)

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""
        changes = [buffer.drain(self._limits_of(side)) for side, buffer in enumerate(self._buffers)]
        state = {prefix: buffer.state() for prefix, buffer in zip(_PREFIXES, self._buffers, strict=True)}
        blobs = {MANIFEST: FORMAT.write(self._plan.digest(), {"received": self._limits.received, **state})}
        for change in changes:
            blobs.update(change.blobs)
        return StateChanges(blobs, changes[LEFT].removed | changes[RIGHT].removed)

    def _limits_of(self, side: int) -> list[int | None]:
        first = self._plan.first_axis(side)
        return [self._limits.forgotten_below(first + at) for at in range(len(self._plan.sides[side].axes))]

    def _accept_rows(self, side: int, rows: pa.Table) -> Iterator[Output]:
        rows = yield from self._inputs.accept_rows(side, rows)
        if not rows.num_rows:
            return
        new = SidePiece.of(self._plan.sides[side], rows)
        yield from self._matched(side, new)
        if side == LEFT and not self._plan.pairs_leave:
            new = yield from self._once(new)
        is_forgotten = new.forgotten(self._limits_of(side))
        if self._plan.pads(side):
            yield from self._emit_padded(side, new.take_rows(np.flatnonzero(is_forgotten & ~new.matched)).table)
        self._buffers[side].add(new.take_rows(np.flatnonzero(~is_forgotten)) if is_forgotten.any() else new)

    def _matched(self, side: int, new: SidePiece) -> Iterator[Output]:
        """Join new rows with the rows that the other side holds; note the matched rows on both sides."""
        other = RIGHT if side == LEFT else LEFT
        low, high = _ends(self._main)
        if side == LEFT:
            low, high = -high, -low
        times = new.times[self._main.left if side == LEFT else self._main.right]
        order = np.argsort(times, kind="stable")
        ordered = times[order]
        index: tuple[Ints, ...] | None = None
        for one, piece in self._buffers[other].in_reach(ordered, low, high):
            index = index or hash_groups(new.hashes, order)
            slot_hash, slot_group, begins, places = index
            groups = slot_hash, slot_group, begins
            buffered_times = piece.times[self._main.right if side == LEFT else self._main.left]
            ranges = ranges_of(groups, times[places], piece.hashes, buffered_times + low, buffered_times + high)
            fresh = []
            for at_buffered, at_new in self._candidates(side, new, piece, ranges, places):
                new.matched[at_new] = True
                if self._plan.counts_matches(other):
                    fresh.append(self._buffers[other].match(one, piece, at_buffered))
                if self._plan.pairs_leave:
                    yield self._pairs(side, new, piece, at_new, at_buffered)
            if other == LEFT and not self._plan.pairs_leave and fresh:
                yield from self._once_buffered(piece, np.concatenate(fresh))

    def _candidates(
        self, side: int, new: SidePiece, piece: SidePiece, ranges: tuple[Ints, Ints], places: Ints
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs that match, as places in the held piece and in the new piece, in parts of bounded size."""
        starts, ends = ranges
        size = (new.table.nbytes // len(new)) + (piece.table.nbytes // len(piece))
        most = max(1, min(self._result_rows, _PIECE_BYTES // max(1, size), int((ends - starts).sum())))
        row = returned_pairs = 0
        while row < len(starts):
            at_buffered, at_new, row, returned_pairs = pairs_from(starts, ends, row, returned_pairs, most)
            at_new = places[at_new]
            at_left, at_right = (at_new, at_buffered) if side == LEFT else (at_buffered, at_new)
            left, right = (new, piece) if side == LEFT else (piece, new)
            agrees = self._agree(left, right, at_left, at_right)
            if agrees is not None:
                at_buffered, at_new = at_buffered[agrees], at_new[agrees]
            if len(at_buffered):
                yield at_buffered, at_new

    def _agree(self, left: SidePiece, right: SidePiece, at_left: Ints, at_right: Ints) -> Flags | None:
        """Return which candidates match in full; None if all do, since the look-up has checked everything."""
        plan = self._plan
        agrees: Flags | None = None
        for bound in plan.time.others:
            low, high = _ends(bound)
            apart = right.times[bound.right][at_right] - left.times[bound.left][at_left]
            inside = (low <= apart) & (apart <= high)
            agrees = inside if agrees is None else agrees & inside
        if not plan.exact_hash:
            left_keys, right_keys = _columns(left, plan.left.on, at_left), _columns(right, plan.right.on, at_right)
            same = same_keys(list(left_keys.values()), list(right_keys.values()), len(at_left))
            agrees = same if agrees is None else agrees & same
        if plan.matches is not None:
            columns = plan.matches.columns
            holds = plan.matches.holds(
                _columns(left, columns[LEFT], at_left), _columns(right, columns[RIGHT], at_right)
            )
            agrees = holds if agrees is None else agrees & holds
        return agrees

    def _pairs(self, side: int, new: SidePiece, piece: SidePiece, at_new: Ints, at_buffered: Ints) -> Output:
        if side == LEFT:
            return pairs(self._plan, new.table, piece.table, at_new, at_buffered)
        return pairs(self._plan, piece.table, new.table, at_buffered, at_new)

    def _once(self, new: SidePiece) -> Generator[Output, None, SidePiece]:
        """Emit the matched left rows of a semi-join; return the rows that can still be matched."""
        places = np.flatnonzero(new.matched)
        if not len(places):
            return new
        yield from self._once_buffered(new, places)
        return new.take_rows(np.flatnonzero(~new.matched))

    def _once_buffered(self, piece: SidePiece, places: Ints) -> Iterator[Output]:
        if len(places) and self._plan.counts_matches(LEFT) and not self._plan.pads(LEFT):
            yield from self._emit_padded(LEFT, piece.take_rows(np.sort(places)).table)

    def _emit_padded(self, side: int, rows: pa.Table) -> Iterator[Output]:
        return alone_in_pieces(self._plan, side, rows)


def _columns(piece: SidePiece, names: Sequence[str], places: Ints) -> dict[str, pa.Array]:
    at = pa.array(places)
    return {name: contiguous(piece.table[name]).take(at) for name in names}


def _ends(bound: Bound) -> tuple[int, int]:
    return (
        -UNBOUNDED if bound.low_ms is None else bound.low_ms,
        UNBOUNDED if bound.high_ms is None else bound.high_ms,
    )
