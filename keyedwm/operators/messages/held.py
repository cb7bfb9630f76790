"""What the state of a store holds, read from its blobs by somebody who has not got the plan: windows and messages.

Rule: it is the state as a batch left it; nothing is computed and nothing changes. See `looking` for a store that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from keyedwm.operators.messages import held_keys, held_sessions
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.held_keys import HeldWindow
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.plan import ARRIVAL
from keyedwm.operators.messages.timeline import LOWEST
from keyedwm.operators.state.blobs import read_stored
from keyedwm.operators.state.store import PART
from keyedwm.operators.summary import Summary

INDEX, MESSAGES = ("slices-", held_keys.INDEX, held_sessions.INDEX), "messages-"
# Of a plan: how many axes a channel of windows of rows has. A join has one for each side.
AXES = "axes"


def is_rows(told: Mapping[str, Any]) -> bool:
    """Return whether the windows of a plan count offsets; told: of the plan."""
    return bool(told["store"][1] == str(True))


def is_on_demand(told: Mapping[str, Any]) -> bool:
    """Return whether messages open the windows of a plan; told: of the plan."""
    return str(told["store"][0]).startswith(OnDemandWindow.__name__)


def windows(
    told: Mapping[str, Any], buckets: Iterable[tuple[Mapping[str, Any], Mapping[str, bytes]]]
) -> list[HeldWindow]:
    """Return the windows that are held, in order of end, topic and partition; see `held_on_demand` for those.

    told: of the plan. buckets: the store's note of each, and its blobs that tell of slices.
    """
    found: dict[tuple[int, str, int], HeldWindow] = {}
    of_bucket = held_keys.windows if held_keys.counts_keys(told) else _of_bucket
    for facts, blobs in buckets:
        for one in of_bucket(told, facts, blobs):
            place = one.end, one.topic, one.partition
            found[place] = found[place].joined(one) if place in found else one
    return [found[place] for place in sorted(found)]


def axis_of(name: str) -> str:
    """Return the number of the axis that a blob of messages lies on, as the note has it."""
    return name.removeprefix(MESSAGES).partition("-")[0]


def grid_of(told: Mapping[str, Any], facts: Mapping[str, Any], axis: int) -> Grid:
    """Return the windows on an axis, of rows from the first offset of its channel on."""
    size, step, origin = told["grid"]
    if is_rows(told):
        first = facts["channels"][axis // told.get(AXES, 1)][2]
        return Grid(size, step, first, first)
    return Grid(size, step, origin)


def _of_bucket(told: Mapping[str, Any], facts: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Iterator[HeldWindow]:
    """One row for each slice, channel and window."""
    for name, blob in blobs.items():
        axis = name.partition(PART)[0].removeprefix(INDEX[0])
        marks, grid = facts["axes"][axis], grid_of(told, facts, int(axis))
        horizon, floor = (LOWEST if marks[one] is None else marks[one] for one in ("horizon", "floor"))
        columns = (column.to_pylist() for column in read_stored(name, blob).columns)
        for start, number, first, last, rows, size in zip(*columns, strict=True):
            topic, partition = facts["channels"][number][:2]
            if start < floor - grid.size + grid.step:
                continue  # the slice is gone, its row leaves when the log is written anew
            for end in grid.ends_of(start):
                if end > floor:
                    yield HeldWindow(
                        end - grid.size, end, topic, partition, first, last, rows, size, is_complete=end <= horizon
                    )


def summary(told: Mapping[str, Any], blobs: Mapping[str, int], facts: Mapping[str, Any]) -> Summary:
    """Return what a bucket holds, from its notes alone; told: of the plan, blobs: name → bytes.

    `frames` are the windows that hold a message, and `rows` the messages.
    """
    if held_keys.counts_keys(told):
        return held_keys.summary(blobs, facts)
    if held_sessions.of_sessions(told) or is_on_demand(told):
        return held_sessions.summary(blobs, facts)
    logs = {name.partition(PART)[0] for name in blobs if name.startswith(MESSAGES)}
    ends: set[tuple[str, int]] = set()
    for log in logs:
        axis, _, start = log.removeprefix(MESSAGES).partition("-")
        mark = facts["axes"][axis]["floor"]
        held = grid_of(told, facts, int(axis)).ends_of(int(start))
        ends.update((axis, end) for end in held if mark is None or end > mark)
    rows = facts.get("rows", {})
    oldest = None if is_rows(told) else min((end for _, end in ends), default=None)
    return Summary(
        frames=len(ends),
        rows=sum(rows.get(log, 0) for log in logs),
        size_bytes=sum(blobs.values()),
        oldest_ms=None if oldest is None else oldest - told["grid"][0],
    )


def messages(name: str, blob: bytes) -> pa.Table:
    """Return the messages of a blob; raise DamagedError if it is damaged. name: the blob's."""
    rows = read_stored(name, blob)
    return rows.select([name for name in rows.schema.names if name != ARRIVAL])
