"""The windows of each key that the state of a store holds, found from its messages: see `held` for windows of all keys.

Rule: a blob is one part of a slice, so what it tells is a part of a window; whoever asks adds the parts up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, as_key, contiguous, ints, millis
from keyedwm.core.errors import OptionError
from keyedwm.operators.messages import held
from keyedwm.operators.messages.held_keys import counts_keys
from keyedwm.operators.messages.held_sessions import of_sessions
from keyedwm.operators.messages.listed_keys import key_columns
from keyedwm.operators.messages.messages import message_bytes
from keyedwm.operators.messages.timeline import LOWEST

# The columns behind the key's: a window's edges, its channel, and what a blob adds to it.
EDGES, CHANNEL = ("start", "end"), ("topic", "partition")
ADDED = ("first_offset", "last_offset", "messages", "bytes")
COMPLETE = "is_complete"
_HIDDEN = ("__start", "__end", "__topic", "__partition", "__complete", "__offset", "__size")


def check_lists_keys(told: Mapping[str, Any]) -> None:
    """Refuse windows that cannot be listed key by key from their messages alone, or are listed so anyway."""
    if counts_keys(told) or of_sessions(told) or held.is_on_demand(told):
        raise OptionError(
            "windows of a key's messages, windows on demand, and sessions are listed key by key anyway: leave by_key "
            "out"
        )


def parts(told: Mapping[str, Any], facts: Mapping[str, Any], name: str, blob: bytes) -> pa.Table:
    """Return what the messages of a blob add to the windows of their keys.

    Columns: `key_columns`, EDGES, CHANNEL, ADDED, COMPLETE. facts: the store's note of the bucket.
    """
    rows = held.messages(name, blob)
    marks, grid = facts["axes"][held.axis_of(name)], held.grid_of(told, facts, int(held.axis_of(name)))
    horizon, floor = (LOWEST if marks[one] is None else marks[one] for one in ("horizon", "floor"))
    column = contiguous(rows[told["record"][2] if held.is_rows(told) else told["time"]])
    at: Ints = ints(column) if held.is_rows(told) else millis(column)
    places, ends = [], []
    for back in range(-(-grid.size // grid.step)):
        mine = grid.last_ends(at) - back * grid.step
        inside = np.flatnonzero((mine >= grid.first_ends(at)) & (mine - grid.size <= at) & (mine > floor))
        places.append(inside)
        ends.append(mine[inside])
    all_ends = np.concatenate(ends)
    whole = _with_edges(told, rows, np.concatenate(places), (all_ends - grid.size, all_ends, all_ends <= horizon))
    keys = list(key_columns(told))
    sums = [("__offset", "min"), ("__offset", "max"), ("__offset", "count"), ("__size", "sum")]
    found = whole.group_by([*keys, *_HIDDEN[:5]], use_threads=False).aggregate(sums)
    added = [f"{column}_{how}" for column, how in sums]
    found = found.select([*keys, *_HIDDEN[:4], *added, _HIDDEN[4]])
    return found.rename_columns([*keys, *EDGES, *CHANNEL, *ADDED, COMPLETE])


def _with_edges(told: Mapping[str, Any], rows: pa.Table, places: Ints, edges: Sequence[np.ndarray]) -> pa.Table:
    """One row for each message and window that holds it."""
    topic, partition, offset = told["record"]
    mine = rows.take(pa.array(places))
    start, end, complete = (pa.array(one) for one in edges)
    hidden = (start, end, mine[topic], mine[partition], complete, mine[offset], pa.array(message_bytes(mine)))
    keys = {column: as_key(contiguous(mine[name])) for column, name in key_columns(told).items()}
    return pa.table({**keys, **dict(zip(_HIDDEN, hidden, strict=True))})
