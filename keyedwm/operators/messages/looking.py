"""Looking into a store: its windows, from what is known of slices or from the messages, and messages by range.

Rule: looking changes nothing. Windows are listed in order of expiry; ranges are inclusive at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints
from keyedwm.core.errors import OptionError
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.kernels import add_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.messages.asked import Edge, wanted
from keyedwm.operators.messages.axis import LOWEST, StoredWindows
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.listed_keys import shown_name
from keyedwm.operators.messages.messages import in_order, message_bytes, places
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.results import key_numbers
from keyedwm.operators.state.key_dictionary import KeyDictionary

_FACTS = ("first_offset", "last_offset", "messages", "bytes")


def windows_schema(plan: StorePlan, *, by_key: bool) -> pa.Schema:
    """Of `windows`: start and end are ms of event time, or offsets of which the end is behind the window."""
    channel = [plan.schema.field(name).with_name(role) for name, role in zip(plan.record, _ROLES, strict=False)]
    numbers = [pa.field(name, pa.int64()) for name in ("start", "end")]
    facts = [pa.field(name, pa.int64()) for name in _FACTS]
    listed = pa.schema([*numbers, *channel, *facts, pa.field("is_complete", pa.bool_())])
    keys = [field.with_name(shown_name(field.name, listed.names)) for field in plan.key_fields] if by_key else []
    return pa.schema([*keys, *listed])


_ROLES = ("topic", "partition")


def windows(
    plan: StorePlan, channels: Channels, axis: StoredWindows, start: int, end: int, *, by_key: bool
) -> pa.Table:
    """Return the windows that overlap `[start, end]` and hold a message: one row for each channel (and key)."""
    keys = KeyDictionary(plan.key_fields)
    if by_key:
        rows = axis.store.read(start - axis.grid.size - axis.grid.step, end + axis.grid.size + 1)
        at, sizes, one = places(plan, rows), message_bytes(rows), np.ones(rows.num_rows, np.int64)
        offsets, owners = channels.offsets(rows), channels.numbers(rows)
        slices, found = axis.grid.slices(at), key_numbers(plan, keys, rows)
        columns = [slices, owners, offsets, offsets, one, sizes, found]
    else:
        index = axis.store.index
        columns = [*index.columns(), np.zeros(len(index.slices), np.int64)]
    return _listed(plan, channels, axis, columns, keys=keys, asked=(start, end), by_key=by_key)


def _listed(
    plan: StorePlan,
    channels: Channels,
    axis: StoredWindows,
    columns: list[Ints],
    *,
    keys: KeyDictionary,
    asked: tuple[int, int],
    by_key: bool,
) -> pa.Table:
    places_of, ends = _expanded(axis.grid, columns[0])
    floor = LOWEST if axis.floor is None else axis.floor
    inside = (ends > max(asked[0], floor)) & (ends - axis.grid.size <= asked[1])
    _, owners, first, last, rows, sizes, found = (column[places_of[inside]] for column in columns)
    ends = ends[inside]
    ranks = keys.ranks(found) if by_key else found
    width = max(1, len(channels.known))
    minor = ranks * width + channels.ranks()[owners]
    ids, at, _ = pair_groups(ends, minor, int(minor.max(initial=0)) + 1)
    count = len(at)
    heads = np.empty(count, np.int64)
    heads[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    named = [channels.known[number] for number in owners[heads].tolist()]
    schema = windows_schema(plan, by_key=by_key)
    horizon = LOWEST if axis.horizon is None else axis.horizon
    made = [
        *(keys.columns(found[heads]) if by_key else ()),
        pa.array(at - axis.grid.size),
        pa.array(at),
        *(pa.array([one[place] for one in named], schema.field(role).type) for place, role in enumerate(_ROLES)),
        pa.array(lowest_by_group(first, ids, count)),
        pa.array(highest_by_group(last, ids, count)),
        pa.array(add_by_group(rows, ids, count)),
        pa.array(add_by_group(sizes, ids, count)),
        pa.array(at <= horizon),
    ]
    return pa.Table.from_arrays(made, schema=schema)


def _expanded(grid: Grid, slices: Ints) -> tuple[Ints, Ints]:
    """Return for each window that holds a slice the slice's place, and the window's end."""
    distinct, which = np.unique(slices, return_inverse=True)
    each = [grid.ends_of(start) for start in distinct.tolist()]
    counts = np.array([len(ends) for ends in each], np.int64)
    flat = np.concatenate([np.empty(0, np.int64), *(np.arange(e.start, e.stop, e.step) for e in each)])
    first = np.cumsum(counts) - counts
    taken = counts[which] if len(which) else np.empty(0, np.int64)
    starts = np.repeat(first[which] - (np.cumsum(taken) - taken), taken) if len(which) else taken
    return np.repeat(np.arange(len(slices)), taken), flat[np.arange(int(taken.sum())) + starts]


def messages(
    plan: StorePlan, channels: Channels, axis: StoredWindows, asked: tuple[Edge, Edge], equal: Mapping[str, Any]
) -> pa.Table:
    """Return the messages in this closed range whose columns have these values, in order."""
    low, high = numbers_of(asked)
    return chosen(plan, channels, axis.store.read(low - axis.grid.step - axis.grid.size, high + 1), asked, equal)


def chosen(
    plan: StorePlan, channels: Channels, rows: pa.Table, asked: tuple[Edge, Edge], equal: Mapping[str, Any]
) -> pa.Table:
    """Return those of some messages that lie in this closed range and whose columns have these values, in order."""
    (start, end), (low, high) = asked, numbers_of(asked)
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


def _equal(name: str, found: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    """Which values are this one; null and NaN are themselves, as keys are."""
    if value is None:
        return pc.is_null(found)
    if pa.types.is_floating(found.type) and value != value:  # noqa: PLR0124
        return pc.is_nan(found)
    return pc.equal(found, wanted(name, found.type, value))


def numbers_of(asked: tuple[Edge, Edge]) -> tuple[int, int]:
    """Return the places of both edges."""
    start, end = (edge[0] if isinstance(edge, tuple) else edge for edge in asked)
    return start, end


def oldest_offsets(channels: Channels, axes: Mapping[int, StoredWindows]) -> dict[tuple[str, int], int]:
    """Return for each channel where its records must be read from to have all that is held again."""
    found = dict(zip(channels.known, channels.next, strict=True))
    for axis in axes.values():
        for number, first in zip(axis.store.index.channels.tolist(), axis.store.index.first.tolist(), strict=True):
            found[channels.known[number]] = min(found[channels.known[number]], first)
    return found
