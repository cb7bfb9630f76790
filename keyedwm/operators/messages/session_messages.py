"""The messages of sessions: slices of event time, each a log of tables with the messages of all keys.

Rule: a batch appends to the slices that it touches and reads none. A slice goes as a whole once no session reaches into
it. One that a long session keeps is written anew without the messages of the others, each time after twice as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.messages import in_order, places
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.sessions import OpenSessions, Sessions
from keyedwm.operators.messages.windows import SessionKind
from keyedwm.operators.state.store import TableLogs

MESSAGES = "messages-"
_SLICES = 64  # in the retention at most


class SessionMessages:
    """Slices by their starts. looks: of those that were written anew, the floor at which they are looked at again."""

    def __init__(
        self, plan: StorePlan, channels: Channels, logs: TableLogs, width_ms: int | None, looks: Mapping[str, int]
    ) -> None:
        """width_ms: of a slice, None for a new store."""
        self._plan, self._channels, self._logs = plan, channels, logs
        self.width_ms = _width_ms(plan) if width_ms is None else width_ms
        self.looks = {int(start): floor for start, floor in looks.items()}
        self._starts = {int(log.removeprefix(MESSAGES)) for log in logs.names(MESSAGES)}

    def add(self, rows: pa.Table, at: Ints) -> None:
        """Hold messages; at: their event times."""
        order = np.argsort(at, kind="stable")
        rows, slices = rows.take(pa.array(order)), (at - at % self.width_ms)[order]
        starts, first = np.unique(slices, return_index=True)
        ends = np.append(first[1:], len(slices))
        for start, low, high in zip(starts.tolist(), first.tolist(), ends.tolist(), strict=True):
            self._logs.append(f"{MESSAGES}{start}", rows.slice(low, high - low))
            self._starts.add(start)

    def read(self, low: int, high: int) -> Iterator[pa.Table]:
        """Yield the messages of the slices that reach into `[low, high)`, slice by slice, also those that are gone."""
        for start in sorted(self._starts):
            if start < high and start + self.width_ms > low:
                yield self._slice(start)

    def of(self, open_: OpenSessions, chosen: Sessions) -> tuple[pa.Table, Ints]:
        """Return the messages of some sessions, in no order, and for each the place of its session among them."""
        tables, owners = [self._plan.schema.empty_table()], [np.empty(0, np.int64)]
        if len(chosen):
            for rows in self.read(int(chosen.starts.min()), int(chosen.ends.max())):
                found = chosen.owners(open_.numbers(rows), places(self._plan, rows))
                tables.append(rows.filter(pa.array(found >= 0)))
                owners.append(found[found >= 0])
        return pa.concat_tables(tables), np.concatenate(owners)

    def tidy(self, open_: OpenSessions, floor: int) -> None:
        """Drop or write anew the slices that are due at this floor."""
        due = [start for start in sorted(self._starts) if self.looks.get(start, start + 2 * self.width_ms) <= floor]
        if not due:
            return
        sessions = open_.sessions
        by_start = np.argsort(sessions.starts, kind="stable")
        reached = np.maximum.accumulate(sessions.ends[by_start])
        before = np.searchsorted(sessions.starts[by_start], np.array(due) + self.width_ms)
        for start, count in zip(due, before.tolist(), strict=True):
            self.looks[start] = 2 * floor - start
            if not (count and reached[count - 1] > start and self._rewritten(open_, start)):
                self._logs.drop(f"{MESSAGES}{start}")
                self._starts.discard(start)
                del self.looks[start]

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of a slice."""
        return in_order(self._plan, self._channels, pa.concat_tables(tables))

    def _slice(self, start: int) -> pa.Table:
        return pa.concat_tables([self._plan.schema.empty_table(), *self._logs.read(f"{MESSAGES}{start}")])

    def _rewritten(self, open_: OpenSessions, start: int) -> bool:
        """Write a slice anew with the messages of open sessions alone; return whether there are any."""
        rows = self._slice(start)
        kept = rows.filter(pa.array(open_.sessions.owners(open_.numbers(rows), places(self._plan, rows)) >= 0))
        if kept.num_rows < rows.num_rows:
            self._logs.replace(f"{MESSAGES}{start}", kept)
        return bool(kept.num_rows)


def _width_ms(plan: StorePlan) -> int:
    return max(plan.kind_as(SessionKind).window.gap_ms, (plan.retention.time_ms or 0) // _SLICES)
