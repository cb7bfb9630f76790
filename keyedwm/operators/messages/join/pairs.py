"""Pairs of messages of two sides, and their rows.

Rule: two messages share a window exactly if each is between the start of the other's first window and the end of the
other's last window. A pair belongs to the first window that holds both. Pairs are stored as ranges, so the memory does
not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous
from keyedwm.operators.join.kernels import hash_groups, pairs_from, ranges_of
from keyedwm.operators.messages.grid import HIGHEST, LOWEST
from keyedwm.operators.messages.join.plan import LEFT, RIGHT, Keep, WindowJoinPlan
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output, no_times
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns


@dataclass(frozen=True, slots=True)
class SideMessages:
    """Messages of a side to join. at: positions in the timeline; in windows of rows, from the channel's first offset.

    first: that offset, or 0. order: rank of each message by event time (or offset), topic, partition and offset. late:
    flags of messages whose window was complete.
    """

    rows: pa.Table
    at: Ints
    first: Ints
    partitions: Ints
    order: Ints
    late: Flags

    def part(self, start: int, stop: int | None = None) -> SideMessages:
        """Return the messages in this range."""
        span = slice(start, stop)
        rows = self.rows.slice(start, None if stop is None else stop - start)
        return SideMessages(
            rows, self.at[span], self.first[span], self.partitions[span], self.order[span], self.late[span]
        )


@dataclass(frozen=True, slots=True)
class Matches:
    """left, right: places of messages. `left[i]` matches `right[starts[i]:ends[i]]`."""

    left: Ints
    right: Ints
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return int((self.ends - self.starts).sum())

    def pieces(self, most: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs as places of left and of right messages, at most `most` at a time."""
        row = returned_pairs = 0
        piece_rows = min(most, len(self))
        while piece_rows and row < len(self.starts):
            rows, entries, row, returned_pairs = pairs_from(self.starts, self.ends, row, returned_pairs, piece_rows)
            if len(rows):
                yield self.left[rows], self.right[entries]

    def matched_places(self, side: int) -> Ints:
        """Return the places of the messages of a side that have a match."""
        if side == LEFT:
            return self.left[self.ends > self.starts]
        edges = np.zeros(len(self.right) + 1, np.int64)
        np.add.at(edges, self.starts, 1)
        np.subtract.at(edges, self.ends, 1)
        return self.right[np.cumsum(edges[:-1]) > 0]


def matches(plan: WindowJoinPlan, left: SideMessages, right: SideMessages, *, left_from: int = 0) -> Matches:
    """Return which messages match. left_from: the number added to the places of left messages."""
    none = np.empty(0, np.int64)
    if not (left.rows.num_rows and right.rows.num_rows):
        return Matches(none, none, none, none)
    keys, has_key = keys_of(plan, left, right)
    places = [np.flatnonzero(flags) for flags in has_key]
    left_keys, others = keys[LEFT][places[LEFT]], keys[RIGHT][places[RIGHT]]
    low, high = _span(plan, left.at[places[LEFT]])
    at = right.at[places[RIGHT]]
    order = np.argsort(at, kind="stable")
    slot_hash, slot_group, begins, right_places = hash_groups(others, order)
    starts, ends = ranges_of((slot_hash, slot_group, begins), at[right_places], left_keys, low, high)
    return Matches(places[LEFT] + left_from, places[RIGHT][right_places], starts, ends)


def _span(plan: WindowJoinPlan, at: Ints) -> tuple[Ints, Ints]:
    """Return for each left position the first and the last right position that share a window with it."""
    if not plan.both_windowed:
        return np.full(len(at), LOWEST), np.full(len(at), HIGHEST)
    grid = plan.grid()
    return grid.first_ends(at) - grid.size, grid.last_ends(at) - 1


def keys_of(plan: WindowJoinPlan, left: SideMessages, right: SideMessages) -> tuple[list[Ints], list[Flags]]:
    """Return for each side the numbers of the keys, and flags of the messages with a key: one without a null."""
    fields = [pa.field(str(at), plan.left.schema.field(name).type) for at, name in enumerate(plan.left.on)]
    by_partition = plan.is_rows and plan.both_windowed
    keys = KeyDictionary([*fields, *([pa.field("partition", pa.int64())] if by_partition else [])])
    numbers, has_key = [], []
    for side, messages in zip(plan.sides, (left, right), strict=True):
        columns = key_columns(side.on, messages.rows)
        some = np.ones(messages.rows.num_rows, bool)
        for column in columns:
            some &= pc.is_valid(column).to_numpy(zero_copy_only=False)
        further = [pa.array(messages.partitions)] if by_partition else []
        numbers.append(keys.numbers([*columns, *further], messages.rows.num_rows))
        has_key.append(some)
    return numbers, has_key


NONE = -1


def one_pair_per_key(plan: WindowJoinPlan, left: SideMessages, right: SideMessages) -> tuple[Ints, Ints]:
    """Pair the first, or last, messages of each key; NONE is the missing side of an outer join."""
    keys, has_key = keys_of(plan, left, right)
    heads = []
    for numbers, some, messages in zip(keys, has_key, (left, right), strict=True):
        places = np.flatnonzero(some)
        order = messages.order[places] if plan.keep is Keep.FIRST else -messages.order[places]
        places = places[np.lexsort((order, numbers[places]))]
        heads.append(places[np.flatnonzero(np.diff(numbers[places], prepend=-1))])
    left_keys, others = (numbers[places] for numbers, places in zip(keys, heads, strict=True))
    _, left_rows, right_rows = np.intersect1d(left_keys, others, return_indices=True)
    pairs = [heads[LEFT][left_rows], heads[RIGHT][right_rows]]
    for number in plan.outer:
        # A message without a key has no match, and forms a row alone.
        heads[number] = np.append(heads[number], np.flatnonzero(~has_key[number]))
        unmatched = np.setdiff1d(heads[number], pairs[number])
        pairs[number] = np.append(pairs[number], unmatched)
        pairs[1 - number] = np.append(pairs[1 - number], np.full(len(unmatched), NONE))
    return pairs[LEFT], pairs[RIGHT]


def window_output(
    plan: WindowJoinPlan,
    left: SideMessages,
    right: SideMessages,
    pairs: tuple[Ints, Ints],
    *,
    end: int,
    timing: PaneTiming,
) -> Output:
    """Return pairs of one window as rows of the result, in order of the right message, then of the left one."""
    left_rows, right_rows = pairs
    order = np.lexsort((np.append(left.order, NONE)[left_rows], np.append(right.order, NONE)[right_rows]))
    places, count = (left_rows[order], right_rows[order]), len(order)
    ends = np.full(count, end, np.int64)
    return rows_output(plan, (left, right), places, _edges(plan, ends), pa.repeat(timing.value, count))


def unmatched_output(
    plan: WindowJoinPlan, side: int, messages: SideMessages, rows: Ints, *, timing: PaneTiming
) -> Output:
    """Return unmatched messages of a side, each with its first window, by window and in order. rows: their places."""
    ends = plan.grid().first_ends(messages.at[rows])
    order = np.lexsort((messages.order[rows], ends))
    nothing = messages.part(0, 0)
    sides = (messages, nothing) if side == LEFT else (nothing, messages)
    none = np.full(len(order), NONE)
    places = (rows[order], none) if side == LEFT else (none, rows[order])
    return rows_output(plan, sides, places, _edges(plan, ends[order]), pa.repeat(timing.value, len(order)))


def pair_outputs(
    plan: WindowJoinPlan, left: SideMessages, right: SideMessages, pairs: Sequence[Matches], most: int
) -> Iterator[Output]:
    """Yield pairs as rows of the result, by window, then in order of the right message and of the left one.

    More than `most` pairs come in pieces, each in that order.
    """
    pieces = [piece for one in pairs for piece in one.pieces(most)] if sum(map(len, pairs)) <= most else None
    if pieces is None:
        for one in pairs:
            for piece in one.pieces(most):
                yield _pair_output(plan, left, right, *piece)
    elif pieces:
        left_rows, right_rows = (np.concatenate(places) for places in zip(*pieces, strict=True))
        yield _pair_output(plan, left, right, left_rows, right_rows)


def _pair_output(
    plan: WindowJoinPlan, left: SideMessages, right: SideMessages, left_rows: Ints, right_rows: Ints
) -> Output:
    grid = plan.grid()
    places = (left.at[left_rows], right.at[right_rows])
    windowed = LEFT if not plan.left.unbounded else RIGHT
    ends = grid.first_ends(np.maximum(*places) if plan.both_windowed else places[windowed])
    order = np.lexsort((left.order[left_rows], right.order[right_rows], ends))
    ordered_places, sides = (left_rows[order], right_rows[order]), (left, right)
    ends = ends[order] + sides[windowed].first[ordered_places[windowed]]
    late = left.late[ordered_places[LEFT]] | right.late[ordered_places[RIGHT]]
    timing = pc.if_else(pa.array(late), PaneTiming.LATE.value, PaneTiming.EARLY.value)
    return rows_output(plan, sides, ordered_places, _edges(plan, ends), timing)


def _edges(plan: WindowJoinPlan, ends: Ints) -> tuple[Ints, Ints]:
    return ends - plan.grid().size, ends


def rows_output(
    plan: WindowJoinPlan,
    sides: tuple[SideMessages, SideMessages],
    places: tuple[Ints, Ints],
    edges: tuple[Ints, Ints],
    timing: pa.Array,
) -> Output:
    """Return rows of the result for these places of each side, NONE for no message. edges: the windows' edges."""
    ends = edges[1]
    indices = [pa.array(at, mask=at == NONE) for at in places]
    columns = []
    for one, side, name in plan.columns:
        values = _values_at(sides[side], name, indices[side], one.type)
        if side == LEFT and name in plan.shared and indices[LEFT].null_count:
            values = pc.coalesce(values, _values_at(sides[RIGHT], plan.shared[name], indices[RIGHT], one.type))
        columns.append(values)
    rows = pa.Table.from_arrays([*columns, plan.windows(*edges), timing], schema=plan.result_schema)
    return Output(rows, no_times(rows.num_rows) if plan.is_rows else ends - 1)


def _values_at(messages: SideMessages, name: str, at: pa.Array, kind: pa.DataType) -> pa.Array:
    if at.null_count == len(at):
        return pa.nulls(len(at), kind)
    return contiguous(messages.rows[name]).take(at)
