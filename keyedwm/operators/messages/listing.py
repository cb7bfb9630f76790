"""Lists the content of a store: its windows, from the index of slices or from the messages, and messages by range.

Rule: listing changes nothing. Windows are listed in order of expiry; ranges are inclusive at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.core.errors import OptionError
from keyedwm.core.lateness import has_ended
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.kernels import add_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.messages.arguments import Edge, typed_value
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.grid import LOWEST, Grid
from keyedwm.operators.messages.grid_buffer import GridBuffer
from keyedwm.operators.messages.message_counter import Input
from keyedwm.operators.messages.message_plan import MessageLayout
from keyedwm.operators.messages.messages import in_order, message_bytes, places
from keyedwm.operators.messages.results import key_numbers
from keyedwm.operators.state.key_dictionary import KeyDictionary

_COUNTS = ("first_offset", "last_offset", "messages", "bytes")


def windows_schema(plan: MessageLayout, *, by_key: bool) -> pa.Schema:
    """Return the columns of `windows`: start and end are ms of event time, or offsets; the end is after the window."""
    channel = [plan.schema.field(name).with_name(role) for name, role in zip(plan.record, _ROLES, strict=False)]
    numbers = [pa.field(name, pa.int64()) for name in ("start", "end")]
    columns = [pa.field(name, pa.int64()) for name in _COUNTS]
    listed = pa.schema([*numbers, *channel, *columns, pa.field("is_complete", pa.bool_())])
    keys = [field.with_name(shown_name(field.name, listed.names)) for field in plan.key_fields] if by_key else []
    return pa.schema([*keys, *listed])


_ROLES = ("topic", "partition")


def shown_name(key: str, listed: Sequence[str]) -> str:
    """Return a name for a key column that differs from these columns of a listing."""
    return f"key_{key}" if key.lower() in listed else key


@dataclass(frozen=True, slots=True)
class Listing:
    """Windows in order of a listing, one row for each topic and partition; see `windows_schema`.

    keys: the columns of their keys; none if messages of several keys are listed together. channels: by number.
    """

    keys: Sequence[pa.Array]
    starts: Ints
    ends: Ints
    channels: Ints
    first: Ints
    last: Ints
    rows: Ints
    sizes: Ints
    is_complete: Flags

    def table(self, plan: MessageLayout, channels: Channels, *, by_key: bool) -> pa.Table:
        """Return the listing as a table of `get_windows`."""
        columns = [
            *(self.keys if by_key else ()), self.starts, self.ends, *channels.columns(plan.schema, self.channels),
            self.first, self.last, self.rows, self.sizes, self.is_complete,
        ]  # fmt: skip
        arrays = [pa.array(one) if isinstance(one, np.ndarray) else one for one in columns]
        return pa.Table.from_arrays(arrays, schema=windows_schema(plan, by_key=by_key))


@dataclass(frozen=True, slots=True)
class BufferedAxes:
    """The messages of an input on its axes; see `window_content.BufferedMessages`.

    floor: the end of the last window that no input accepts messages for, if the axes do not know it.
    """

    of: Input
    axes: Mapping[int, GridBuffer]
    floor: int = LOWEST

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """List the windows of each axis: from the index of slices; with by_key, from the messages themselves."""
        for _, axis in sorted(self.axes.items()):
            after = max(start, axis.dropped_end, self.floor)
            yield _listed(self.of.columns, self.of.channels, axis, (start, after, end), by_key=by_key)

    def read(self, low: int, high: int) -> pa.Table:
        """Read the slices of these places."""
        tables = [axis.store.read(low - axis.grid.size, high + 1) for axis in self.axes.values()]
        return pa.concat_tables([self.of.columns.stored_schema.empty_table(), *tables])

    def oldest(self) -> tuple[Ints, Ints]:
        """The first offset of each slice; windows of rows are counted from the first offset that was read."""
        if self.of.columns.is_rows:
            return np.arange(len(self.of.channels.first)), np.array(self.of.channels.first, np.int64)
        indexes, none = [axis.store.index for axis in self.axes.values()], np.empty(0, np.int64)
        return (
            np.concatenate([none, *(index.channels for index in indexes)]),
            np.concatenate([none, *(index.first for index in indexes)]),
        )


def _listed(
    plan: MessageLayout, channels: Channels, axis: GridBuffer, edges: tuple[int, int, int], *, by_key: bool
) -> Listing:
    """Return the windows that hold a message: one row for each channel (and key).

    edges: start, a place behind which the windows end, and the highest start.
    """
    keys, (start, after, end) = KeyDictionary(plan.key_fields), edges
    if by_key:
        rows = axis.store.read(start - axis.grid.size - axis.grid.step, end + axis.grid.size + 1)
        at, sizes, one = places(plan, rows), message_bytes(rows), np.ones(rows.num_rows, np.int64)
        offsets, owners = channels.offsets(rows), channels.numbers(rows)
        slices, numbers = axis.grid.slices(at), key_numbers(plan, keys, rows)
        columns = [slices, owners, offsets, offsets, one, sizes, numbers]
    else:
        index = axis.store.index
        columns = [*index.columns(), np.zeros(len(index.slices), np.int64)]
    places_of, ends = _expanded(axis.grid, columns[0])
    inside = ~has_ended(ends, after) & (ends - axis.grid.size <= end)
    _, owners, first, last, rows, sizes, numbers = (column[places_of[inside]] for column in columns)
    ends = ends[inside]
    ranks = keys.ranks(numbers) if by_key else numbers
    width = max(1, len(channels.known))
    minor = ranks * width + channels.ranks()[owners]
    ids, at, _ = pair_groups(ends, minor, int(minor.max(initial=0)) + 1)
    count = len(at)
    heads = np.empty(count, np.int64)
    heads[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return Listing(
        keys.columns(numbers[heads]) if by_key else (), at - axis.grid.size, at, owners[heads],
        lowest_by_group(first, ids, count), highest_by_group(last, ids, count), add_by_group(rows, ids, count),
        add_by_group(sizes, ids, count), has_ended(at, axis.complete),
    )  # fmt: skip


def _expanded(grid: Grid, slices: Ints) -> tuple[Ints, Ints]:
    """Return for each pair of a slice and a window of it the place of the slice and the end of the window."""
    distinct, which = np.unique(slices, return_inverse=True)
    each = [grid.ends_of(start) for start in distinct.tolist()]
    counts = np.array([len(ends) for ends in each], np.int64)
    flat = np.concatenate([np.empty(0, np.int64), *(np.arange(e.start, e.stop, e.step) for e in each)])
    first = np.cumsum(counts) - counts
    repeats = counts[which] if len(which) else np.empty(0, np.int64)
    starts = np.repeat(first[which] - (np.cumsum(repeats) - repeats), repeats) if len(which) else repeats
    return np.repeat(np.arange(len(slices)), repeats), flat[np.arange(int(repeats.sum())) + starts]


def select_messages(
    plan: MessageLayout, channels: Channels, rows: pa.Table, edges: tuple[Edge, Edge], equal: Mapping[str, Any]
) -> pa.Table:
    """Return the messages among `rows` in this closed range whose columns have these values, in order."""
    (start, end), (low, high) = edges, numbers_of(edges)
    at, offsets = places(plan, rows), channels.offsets(rows)
    inside = (at >= low) & (at <= high)
    if isinstance(start, tuple):
        inside &= (at > low) | (offsets >= start[1])
    if isinstance(end, tuple):
        inside &= (at < high) | (offsets <= end[1])
    rows = rows.filter(pa.array(inside))
    for name, value in equal.items():
        if name not in plan.schema.names:
            raise OptionError(f"messages have no column {name!r}, they have {', '.join(plan.schema.names)}")
        rows = rows.filter(_equal(name, rows[name], value))
    return in_order(plan, channels, rows.select(plan.schema.names))


def _equal(name: str, column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    """Return for each value whether it equals this one; null equals null and NaN equals NaN, as for keys."""
    if value is None:
        return pc.is_null(column)
    if pa.types.is_floating(column.type) and value != value:  # noqa: PLR0124
        return pc.is_nan(column)
    return pc.equal(column, typed_value(name, column.type, value))


def numbers_of(edges: tuple[Edge, Edge]) -> tuple[int, int]:
    """Return the places of both edges."""
    start, end = (edge[0] if isinstance(edge, tuple) else edge for edge in edges)
    return start, end
