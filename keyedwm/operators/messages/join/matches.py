"""Which messages of two sides are pairs: kept as ranges, so that any number of pairs takes the memory of some of them.

Rule: two messages share a window exactly if each lies in the span from the start of the other's first window to the end
of its last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.join.kernels import hash_groups, pairs_from, ranges_of
from keyedwm.operators.messages.join.plan import LEFT, RIGHT, WindowJoinPlan
from keyedwm.operators.messages.join.side_messages import SideMessages
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns

MOST_PAIRS = 1 << 20  # of a piece
_LOWEST, _HIGHEST = -(2**62), 2**62


@dataclass(frozen=True, slots=True)
class Matches:
    """left, right: places of messages. The left one at i meets the right ones from `first[i]` up to `behind[i]`."""

    left: Ints
    right: Ints
    first: Ints
    behind: Ints

    def __len__(self) -> int:
        return int((self.behind - self.first).sum())

    def pieces(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs, places of left and of right messages, so many at a time."""
        row = skipped = 0
        wanted = min(MOST_PAIRS, len(self))
        while wanted and row < len(self.first):
            rows, entries, row, skipped = pairs_from(self.first, self.behind, row, skipped, wanted)
            if len(rows):
                yield self.left[rows], self.right[entries]

    def met(self, number: int) -> Ints:
        """Return the places of the messages of a side that meet any."""
        if number == LEFT:
            return self.left[self.behind > self.first]
        edges = np.zeros(len(self.right) + 1, np.int64)
        np.add.at(edges, self.first, 1)
        np.subtract.at(edges, self.behind, 1)
        return self.right[np.cumsum(edges[:-1]) > 0]


def matches(plan: WindowJoinPlan, left: SideMessages, right: SideMessages, *, left_from: int = 0) -> Matches:
    """Return which messages meet; left_from: what is added to the places of the left ones."""
    none = np.empty(0, np.int64)
    if not (left.rows.num_rows and right.rows.num_rows):
        return Matches(none, none, none, none)
    keys, known = keys_of(plan, left, right)
    places = [np.flatnonzero(flags) for flags in known]
    mine, others = keys[LEFT][places[LEFT]], keys[RIGHT][places[RIGHT]]
    low, high = _span(plan, left.at[places[LEFT]])
    at = right.at[places[RIGHT]]
    order = np.argsort(at, kind="stable")
    slot_hash, slot_group, begins, found = hash_groups(others, order)
    first, behind = ranges_of((slot_hash, slot_group, begins), at[found], mine, low, high)
    return Matches(places[LEFT] + left_from, places[RIGHT][found], first, behind)


def _span(plan: WindowJoinPlan, at: Ints) -> tuple[Ints, Ints]:
    """Return for each left place the first and the last right place that share a window with it."""
    if not plan.both_windowed:
        return np.full(len(at), _LOWEST), np.full(len(at), _HIGHEST)
    grid = plan.grid()
    return grid.first_ends(at) - grid.size, grid.last_ends(at) - 1


def keys_of(plan: WindowJoinPlan, left: SideMessages, right: SideMessages) -> tuple[list[Ints], list[Flags]]:
    """Return the keys as numbers, for each side, and which messages have one: null equals nothing."""
    fields = [pa.field(str(at), plan.left.schema.field(name).type) for at, name in enumerate(plan.left.on)]
    by_partition = plan.is_rows and plan.both_windowed
    keys = KeyDictionary([*fields, *([pa.field("partition", pa.int64())] if by_partition else [])])
    numbers, known = [], []
    for side, shown in zip(plan.sides, (left, right), strict=True):
        columns = key_columns(side.on, shown.rows)
        some = np.ones(shown.rows.num_rows, bool)
        for column in columns:
            some &= pc.is_valid(column).to_numpy(zero_copy_only=False)
        further = [pa.array(shown.partitions)] if by_partition else []
        numbers.append(keys.numbers([*columns, *further], shown.rows.num_rows))
        known.append(some)
    return numbers, known
