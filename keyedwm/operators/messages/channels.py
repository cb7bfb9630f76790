"""The records that a store has seen: for each channel the next offset, below which everything is a replay.

Rule: one record is one message. Offsets of a channel ascend from call to call, as a consumer gives them; within a call
they may come in any order. So a replayed record is recognized by its offset alone, whether it was stored or rejected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous, ints, sorted_distinct
from keyedwm.core.errors import InputError
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.kernels import highest_by_group, lowest_by_group

Channel = tuple[str, int]


class Channels:
    """The channels of a store, numbered in the order of their first rows."""

    def __init__(self, names: tuple[str, str, str], state: Iterable[Any] = ()) -> None:
        """names: the names of the columns topic, partition and offset. state: the result of `state`."""
        self._names = names
        # Whether a call must have each record once: then two equal rows of a record are an error.
        self.one_row_each = False
        self.known: list[Channel] = []
        self.first: list[int] = []
        self.next: list[int] = []
        for topic, partition, first, behind in state:
            self.known.append((topic, partition))
            self.first.append(first)
            self.next.append(behind)

    def state(self) -> list[list[Any]]:
        """Return the state for a later instance, ready for JSON."""
        return [[*channel, *offsets] for channel, *offsets in zip(self.known, self.first, self.next, strict=True)]

    def numbers(self, rows: pa.Table) -> Ints:
        """Return the number of each row's channel; raise InputError if its columns hold a null."""
        for name in self._names:
            if rows[name].null_count:
                raise InputError(
                    f"{rows[name].null_count} of {rows.num_rows} messages have no {name}: a message is known by its "
                    "topic, partition and offset"
                )
        topic, partition, _ = self._names
        topics, partitions = (pc.dictionary_encode(contiguous(rows[name])) for name in (topic, partition))
        names, width = (topics.dictionary.to_pylist(), partitions.dictionary.to_pylist()), len(partitions.dictionary)
        pairs, ids = np.unique(
            topics.indices.to_numpy().astype(np.int64) * width + partitions.indices.to_numpy(), return_inverse=True
        )
        pair_names = [(names[0][pair // width], names[1][pair % width]) for pair in pairs.tolist()]
        for one in sorted(set(pair_names) - set(self.known)):
            self.known.append(one)
            self.first.append(-1)
            self.next.append(-1)
        places = {one: number for number, one in enumerate(self.known)}
        return np.array([places[one] for one in pair_names], np.int64)[ids]

    def fresh(self, rows: pa.Table, numbers: Ints) -> Ints:
        """Return the places of new rows, in their order, each record once; from now on they count as seen.

        Raises InputError if two rows of one record differ, or if a call must have each record once and has two: one
        would be lost silently.
        """
        offsets = self.offsets(rows)
        places = np.flatnonzero(offsets >= np.array(self.next, np.int64)[numbers])
        if not len(places):
            return places
        fresh_numbers, offsets = numbers[places], offsets[places]
        ids, _, _ = pair_groups(offsets, fresh_numbers, len(self.known))
        _, once = np.unique(ids, return_index=True)
        if len(once) < len(ids):
            self._check_again(rows, places, places[once[ids]])
        low = lowest_by_group(offsets, fresh_numbers, len(self.known))
        high = highest_by_group(offsets, fresh_numbers, len(self.known))
        for number in sorted_distinct(fresh_numbers).tolist():
            if self.next[number] < 0:
                self.first[number] = int(low[number])
            self.next[number] = int(high[number]) + 1
        return places[np.sort(once)]

    def _check_again(self, rows: pa.Table, places: Ints, firsts: Ints) -> None:
        """Raise InputError for rows of one record that differ, or for any second row. firsts: the first row of each."""
        again = places != firsts
        pairs = [rows.take(pa.array(at[again])) for at in (places, firsts)]
        differ = next((name for name in rows.schema.names if _differ(*(one[name] for one in pairs))), None)
        if differ is None and not self.one_row_each:
            return
        while self.first and self.first[-1] < 0:  # only the channels of these rows
            del self.known[-1], self.first[-1], self.next[-1]
        topic, partition, offset = (pairs[0][name][0].as_py() for name in self._names)
        how = "are equal" if differ is None else f"differ in {differ!r}"
        raise InputError(
            f"several rows of one record {how} ({topic}-{partition} at offset {offset}), and a record is one message, "
            "known by its topic, partition and offset: do not make several rows of it before the windows (explode), or "
            "give each an offset of its own"
        )

    def offsets(self, rows: pa.Table) -> Ints:
        """Return the offsets of rows."""
        return ints(contiguous(rows[self._names[2]]))

    def columns(self, schema: pa.Schema, numbers: Ints) -> list[pa.Array]:
        """Return topic and partition of these channels, in the types of the messages' columns."""
        places, arrays = pa.array(numbers), []
        for place, name in enumerate(self._names[:2]):
            arrays.append(pa.array([one[place] for one in self.known], schema.field(name).type).take(places))
        return arrays

    def ranks(self) -> Ints:
        """Return for each number the place of its channel in order of topic and partition."""
        ranks = np.empty(len(self.known), np.int64)
        ranks[self.in_order(range(len(self.known)))] = np.arange(len(self.known))
        return ranks

    def in_order(self, numbers: Iterable[int]) -> list[int]:
        """Return the numbers of channels in order of topic and partition."""
        return sorted(numbers, key=self.known.__getitem__)


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether two columns hold different values; NaN is equal to itself, also inside a value."""
    if one.equals(other):
        return False
    if not (pa.types.is_floating(one.type) or pa.types.is_nested(one.type)):
        return True
    try:
        return repr(one.to_pylist()) != repr(other.to_pylist())
    except (OverflowError, ValueError):  # a time within, beyond those of Python
        return True
