"""Accumulators of when keys may become idle, so that a batch reads the watermarks of those that do.

Rule: a key that is not idle has an entry at a W at which it may be idle, or before. Rows that come of it move no entry:
when W reaches the entry, the key is idle, or has another entry where it will be. So a key is written about once for
each `idle`, and a batch reads the entries of one slice of W; but one that is idle with something open beyond W has an
entry at the next W, each time. Two entries of a key do no harm: the next ones are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.operators.keyed.key_watermark_log import DUE, HASH, WatermarkKeyPlan, idle_prefix
from keyedwm.operators.state.hashed_keys import HashedKeys
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import SlicedTable

# An `idle` has so many slices.
_SLICES = 16


class IdleLog:
    """The entries of one bucket."""

    def __init__(
        self, plan: WatermarkKeyPlan, idle_ms: int, logs: TableLogs, state: Mapping[str, Any], name: str
    ) -> None:
        """state: as `state` gave it. name: of the first log of watermarks."""
        self._by, self._fields = plan.owners, plan.owner_fields
        self._by_w = SlicedTable(logs, idle_prefix(name))
        self._width_ms = max(1, idle_ms // _SLICES)
        self._taken_ms: int | None = state.get("own_idle_ms")  # entries up to this W were taken

    def state(self) -> dict[str, Any]:
        """The state beside the log, ready for JSON."""
        return {"own_idle_ms": self._taken_ms}

    def add(self, owners: HashedKeys, numbers: Ints, due_ms: Ints) -> None:
        """Add entries of owners; due_ms: the W of each."""
        table = pa.Table.from_arrays(owners.columns(numbers), schema=pa.schema(self._fields))
        table = table.append_column(HASH, pa.array(owners.hashes[numbers])).append_column(DUE, pa.array(due_ms))
        self._by_w.add(table, due_ms // self._width_ms)

    def pop_due(self, front_ms: int) -> list[pa.Table] | None:
        """Return the keys of the entries up to W, each once; None where every key is to be looked at."""
        before, self._taken_ms = self._taken_ms, front_ms
        since = front_ms if before is None else before
        tables, last = [], front_ms // self._width_ms
        for number in self._by_w.between(since // self._width_ms, last + 1) if since < front_ms else ():
            for table in self._by_w.read(number):
                due_ms = ints(contiguous(table[DUE]))
                due_places = np.flatnonzero((since < due_ms) & (due_ms <= front_ms))
                if len(due_places):
                    tables.append(table.select([*self._by, HASH]).take(pa.array(due_places)))
        self._by_w.drop_below(last)
        return None if before is None else tables

    def end(self) -> None:
        """Keep nothing."""
        self._by_w.clear()
