"""What early panes by the clock have to show: what was touched since the last ones, and when the next are due.

Rule: the clock starts with the first partials; it fires when `due_ms` has come and is then due an interval later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from keyedwm.windows.columns import Ints, contiguous, ints
from keyedwm.windows.keys import Keys, key_columns
from keyedwm.windows.plan import START, Plan
from keyedwm.windows.state import packed, unpacked

_TOUCHED = "touched"


class Touched:
    """(key, frame) pairs; none unless the plan has early panes by the clock."""

    def __init__(self, plan: Plan, keys: Keys, due_ms: int | None, state: Mapping[str, bytes]) -> None:
        self._plan = plan
        self._numbers = keys
        self._every_ms = None if plan.early is None else plan.early.every_ms
        self._keys, self._frames = np.empty(0, np.int64), np.empty(0, np.int64)
        self.due_ms = due_ms
        if _TOUCHED in state:
            table = unpacked(state[_TOUCHED])
            self.add(keys.numbers(key_columns(plan.by, table), table.num_rows), ints(contiguous(table[START])))

    def add(self, keys: Ints, frames: Ints) -> None:
        """These were touched."""
        if self._every_ms is not None:
            pairs = np.stack([np.concatenate([self._keys, keys]), np.concatenate([self._frames, frames])])
            self._keys, self._frames = np.unique(pairs, axis=1)

    def start(self, now_ms: int | None) -> None:
        """The clock runs from now on, if it does not yet."""
        if self._every_ms is not None and self.due_ms is None and now_ms is not None:
            self.due_ms = now_ms + self._every_ms

    def due(self, now_ms: int) -> tuple[Ints, Ints]:
        """What is to be shown now."""
        if self._every_ms is None or self.due_ms is None or now_ms < self.due_ms:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        self.due_ms = now_ms + self._every_ms
        keys, frames = self._keys, self._frames
        self.clear()
        return keys, frames

    def forget(self, last: int) -> None:
        """Frames up to this one cannot come early any more."""
        kept = self._frames > last
        self._keys, self._frames = self._keys[kept], self._frames[kept]

    def clear(self) -> None:
        """Nothing was touched."""
        self.forget(2**62)

    def used_keys(self) -> list[Ints]:
        """The numbers of keys that were touched."""
        return [self._keys]

    def renumber(self, renumbered: Ints) -> None:
        """Follow a compaction of the keys."""
        self._keys = renumbered[self._keys]

    def blobs(self) -> Iterator[tuple[str, bytes]]:
        """One blob, if the plan has a clock."""
        if self._every_ms is not None:
            schema = pa.schema([*self._plan.key_fields, (START, pa.int64())])
            columns = [*self._numbers.columns(self._keys), pa.array(self._frames)]
            yield _TOUCHED, packed(pa.Table.from_arrays(columns, schema=schema))
