"""The messages of a store: slices of rows ordered by event time, topic, partition and offset, each a log of tables.

Rule: a batch appends to the slices that it touches and reads none. A slice is read when one of its windows is computed
or listed, and it is dropped as a whole. Offsets, rows and bytes of slices are in a small separate table, one row for
each slice and channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous, ints, millis, sorted_distinct
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.kernels import add_by_group, count_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.message_plan import ARRIVAL, MessageLayout
from keyedwm.operators.state.column_rows import ColumnRows
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import SlicedTable, StateTable

_MESSAGES, _INDEX = "messages-", "slices-"
_INDEX_SCHEMA = pa.schema([(name, pa.int64()) for name in ("slice", "channel", "first", "last", "rows", "bytes")])


@dataclass(frozen=True, slots=True)
class SliceIndex(ColumnRows):
    """The index of slices: for each slice and channel its first and last offset, its messages and their bytes.

    In order of slice and channel.
    """

    slices: Ints
    channels: Ints
    first: Ints
    last: Ints
    rows: Ints
    sizes: Ints

    @classmethod
    def of(cls, tables: Sequence[pa.Table]) -> SliceIndex:
        """Return the index of these tables together."""
        table = pa.concat_tables([_INDEX_SCHEMA.empty_table(), *tables])
        slices, channels, first, last, rows, sizes = (ints(contiguous(column)) for column in table.columns)
        width = int(channels.max(initial=0)) + 1
        ids, at, numbers = pair_groups(slices, channels, width)
        count = len(at)
        return cls(
            at, numbers, lowest_by_group(first, ids, count), highest_by_group(last, ids, count),
            add_by_group(rows, ids, count), add_by_group(sizes, ids, count),
        )  # fmt: skip

    def split_at(self, start: int) -> tuple[SliceIndex, SliceIndex]:
        """Return the entries of the slices before this one, and of the others."""
        at = int(np.searchsorted(self.slices, start))
        return self.take_rows(slice(at)), self.take_rows(slice(at, None))

    def table(self) -> pa.Table:
        """Return the index as a table of the log."""
        return pa.Table.from_arrays([pa.array(column) for column in self.columns()], schema=_INDEX_SCHEMA)


class MessageStore:
    """The messages of one axis. place: its number among the axes of the operator."""

    def __init__(self, plan: MessageLayout, channels: Channels, logs: TableLogs, place: int, expired: int) -> None:
        """expired: the first slice that is not gone."""
        self._plan, self._channels, self._expired = plan, channels, expired
        self._by_slice = SlicedTable(logs, f"{_MESSAGES}{place}-", self._merge_messages)
        self._index = StateTable(logs, f"{_INDEX}{place}", lambda tables: self._unexpired(tables).table())
        self._know(self._unexpired(self._index.read()))

    @property
    def totals(self) -> tuple[int, int]:
        """The number of held messages, and their bytes."""
        return int(self.index.rows.sum()), int(self.index.sizes.sum())

    def _know(self, index: SliceIndex) -> None:
        self.index = index
        # The starts of the slices with messages, ascending: the computation of each window needs them.
        self.slices = sorted_distinct(index.slices)

    def add(self, rows: pa.Table, at: Ints, channels: Ints, slices: Ints) -> None:
        """Store messages.

        at: their places on the axis. channels: the number of each one's channel. slices: their starts.
        """
        order = _order(self._plan, self._channels, rows, at, channels)
        rows, slices, channels = rows.take(pa.array(order)), slices[order], channels[order]
        self._by_slice.add(rows, slices)
        index = _index_of(slices, channels, self._channels.offsets(rows), message_bytes(rows))
        self._index.add(index.table())
        self._know(SliceIndex.of([self.index.table(), index.table()]))

    def read(self, low: int, high: int) -> pa.Table:
        """Return the messages of the slices in `[low, high)`, in no order."""
        first, behind = np.searchsorted(self.slices, (low, high))
        return self.read_slices(self.slices[first:behind])

    def read_slices(self, starts: Ints) -> pa.Table:
        """Return the messages of the slices with these starts, in no order."""
        tables = [table for start in starts.tolist() for table in self._by_slice.read(start)]
        return pa.concat_tables([self._plan.stored_schema.empty_table(), *tables])

    def forget(self, before: int) -> tuple[int, int]:
        """Drop the slices before this one; return how many messages they held, and their bytes."""
        expired, self.index = self.index.split_at(before)
        self.slices, self._expired = self.slices[np.searchsorted(self.slices, before) :], before
        self._by_slice.drop_below(before)
        if not len(self.slices):
            self._index.drop()
        return int(expired.rows.sum()), int(expired.sizes.sum())

    def _merge_messages(self, tables: Sequence[pa.Table]) -> pa.Table:
        return in_order(self._plan, self._channels, pa.concat_tables(tables))

    def _unexpired(self, tables: Sequence[pa.Table]) -> SliceIndex:
        return SliceIndex.of(tables).split_at(self._expired)[1]


def places(plan: MessageLayout, rows: pa.Table) -> Ints:
    """Return the places of messages on the axis: event times in ms, or offsets."""
    return ints(contiguous(rows[plan.offset])) if plan.is_rows else millis(contiguous(rows[plan.time]))


def in_order(plan: MessageLayout, channels: Channels, rows: pa.Table) -> pa.Table:
    """Return messages by event time (or offset), topic, partition and offset."""
    order = _order(plan, channels, rows, places(plan, rows), channels.numbers(rows))
    return rows.take(pa.array(order))


def _order(plan: MessageLayout, channels: Channels, rows: pa.Table, at: Ints, numbers: Ints) -> Ints:
    return np.lexsort((ints(contiguous(rows[plan.offset])), channels.ranks()[numbers], at))


def message_bytes(rows: pa.Table) -> Ints:
    """Return the bytes of each message in Arrow, by its own columns; for nested columns the mean of these rows."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name == ARRIVAL:
            continue
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            lengths = pc.fill_null(pc.binary_length(column), 0)
            sizes += 4 + contiguous(lengths).to_numpy()
        elif pa.types.is_primitive(kind):
            sizes += max(1, kind.bit_width // 8)
        else:
            sizes += -(-column.nbytes // max(1, rows.num_rows))
    return sizes


def _index_of(slices: Ints, channels: Ints, offsets: Ints, sizes: Ints) -> SliceIndex:
    ids, at, numbers = pair_groups(slices, channels, int(channels.max(initial=0)) + 1)
    count = len(at)
    return SliceIndex(
        at, numbers, lowest_by_group(offsets, ids, count), highest_by_group(offsets, ids, count),
        count_by_group(ids, count), add_by_group(sizes, ids, count),
    )  # fmt: skip
