"""The times at which keys may become idle, so that a batch reads only the watermarks of keys that do.

Rule: a key that is not idle has an entry at or before the W at which the key may be idle. New rows of the key move no
entry: when W reaches the entry, the key is idle, or gets another entry at a later W. So a key is written about once per
`idle`, and a batch reads the entries of one slice of W. But an idle key with a window open beyond W gets an entry at
each next W. Two entries of a key do no harm: they are replaced by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.operators.keyed.key_watermark_log import DUE, WatermarkKeyPlan, idle_prefix
from keyedwm.operators.state.hashed_keys import HASH, HashedKeys
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import SlicedTable

# The number of slices of one `idle`.
_SLICES = 16


class IdleLog:
    """The entries of one bucket."""

    def __init__(
        self, plan: WatermarkKeyPlan, idle_ms: int, logs: TableLogs, state: Mapping[str, Any], name: str
    ) -> None:
        """state: the result of `state`. name: the name of the first log of watermarks."""
        self._owner_columns, self._owner_fields = plan.owners, plan.owner_fields
        self._entries = SlicedTable(logs, idle_prefix(name))
        self._width_ms = max(1, idle_ms // _SLICES)
        self._removed_to_ms: int | None = state.get("own_idle_ms")  # entries up to this W were removed

    def state(self) -> dict[str, Any]:
        """The state beside the log, ready for JSON."""
        return {"own_idle_ms": self._removed_to_ms}

    def add(self, owners: HashedKeys, numbers: Ints, due_ms: Ints) -> None:
        """Add entries of owners; due_ms: the W of each."""
        table = pa.Table.from_arrays(owners.columns(numbers), schema=pa.schema(self._owner_fields))
        table = table.append_column(HASH, pa.array(owners.hashes[numbers])).append_column(DUE, pa.array(due_ms))
        self._entries.add(table, due_ms // self._width_ms)

    def pop_due(self, front_ms: int) -> list[pa.Table] | None:
        """Remove the entries up to W; return their keys, each once, or None if every key must be examined."""
        before, self._removed_to_ms = self._removed_to_ms, front_ms
        since = front_ms if before is None else before
        tables, last = [], front_ms // self._width_ms
        for number in self._entries.between(since // self._width_ms, last + 1) if since < front_ms else ():
            for table in self._entries.read(number):
                due_ms = ints(contiguous(table[DUE]))
                due_places = np.flatnonzero((since < due_ms) & (due_ms <= front_ms))
                if len(due_places):
                    tables.append(table.select([*self._owner_columns, HASH]).take(pa.array(due_places)))
        self._entries.drop_below(last)
        return None if before is None else tables

    def end(self) -> None:
        """Clear the state."""
        self._entries.clear()
