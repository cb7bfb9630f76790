"""A standalone operator that is played steps, with a restart after each, and what its blobs tell without it."""

from __future__ import annotations

import json

from keyedwm.operators.messages import held, held_keys, held_on_demand, held_sessions
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.staged import StagedStore
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import MemoryStore
from keyedwm.operators.summary import Summary
from tests.operators.laws.kinds import Step
from tests.operators.stored import Restarted, table

EVERYWHERE = (-(10**6), 10**6)
COLUMNS = ["start", "end", "topic", "partition", "first_offset", "last_offset", "messages", "bytes", "is_complete"]


class Played(Restarted):
    """An operator that is put away and built anew after each step."""

    def play(self, step: Step) -> list[tuple]:
        """Play a step; return its panes."""
        name, given, now_ms = step
        return self.step(name, table(given), now_ms) if name == "add_message" else self.step(name, given)

    def holding(self) -> list[tuple]:
        return [tuple(one.values()) for one in self.operator.get_messages(*EVERYWHERE).to_pylist()]

    def listed(self) -> list[tuple]:
        return [tuple(one.values()) for one in self.operator.get_windows(*EVERYWHERE, by_key=True).to_pylist()]

    def adds_up(self) -> None:
        """Every message was taken, rejected or known as a replay, and those that were taken are held or left."""
        counts = self.operator.counts
        assert counts.given == counts.taken + counts.rejected + counts.replayed
        assert counts.rejected == len(self.rejected)
        assert counts.taken - counts.expired - counts.dropped_messages == len(self.holding())


class Blobs:
    """What the blobs of a store tell to somebody who has the description of the plan and not the plan."""

    def __init__(self, plan: StorePlan, store: MemoryStore) -> None:
        self._told = json.loads(json.dumps(StagedStore(plan=plan).told()))
        self._blobs, self._sizes = store.blobs, store.sizes
        self._facts = json.loads(store.get(NOTE))

    def listed(self) -> list[tuple]:
        """The windows, without their keys."""
        if held_sessions.of_sessions(self._told):
            found = held_sessions.windows(self._told, [(self._facts, self._index)])
        elif held.is_on_demand(self._told):
            found = held_on_demand.windows(self._told, self._facts, self._blobs)
        else:
            return [
                tuple(getattr(one, name) for name in COLUMNS)
                for one in held.windows(self._told, [(self._facts, self._index)])
            ]
        return [] if found is None else [tuple(one.values()) for one in found.select(COLUMNS).to_pylist()]

    def holding(self) -> list[tuple]:
        found = []
        for name, blob in self._blobs.items():
            if name.startswith(held.MESSAGES):
                rows = held.messages(name, blob)
                if held_keys.counts_keys(self._told):
                    rows = held_keys.messages(self._told, self._facts, self._index, rows)
                elif held_sessions.of_sessions(self._told):
                    rows = held_sessions.messages(self._told, self._index, rows)
                found += [tuple(one.values()) for one in rows.to_pylist()]
        return found

    def summary(self) -> Summary:
        return held.summary(self._told, self._sizes, self._facts)

    @property
    def _index(self) -> dict[str, bytes]:
        return {name: blob for name, blob in self._blobs.items() if name.startswith(held.INDEX)}
