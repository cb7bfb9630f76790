"""A standalone operator that is played steps, with a restart after each, and what its blobs tell without it."""

from __future__ import annotations

import json

from keyedwm.cli.query.held_state import Summary, summary
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.read_only_store import ReadBlobs, listed_store
from keyedwm.operators.messages.store_description import describe, plan_of
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from tests.operators.laws.kinds import Step
from tests.operators.stored import Restarted, table

EVERYWHERE = (-(10**6), 10**6)
COLUMNS = ["start", "end", "topic", "partition", "first_offset", "last_offset", "messages", "bytes", "is_complete"]


class PlayedOperator(Restarted):
    """An operator that is put away and built anew after each step."""

    def play(self, step: Step) -> list[tuple]:
        """Play a step; return its panes."""
        name, argument, now_ms = step
        return self.step(name, table(argument), now_ms) if name == "add_message" else self.step(name, argument)

    def holding(self) -> list[tuple]:
        return [tuple(one.values()) for one in self.operator.get_messages(*EVERYWHERE).to_pylist()]

    def listed_windows(self) -> list[tuple]:
        return [tuple(one.values()) for one in self.operator.get_windows(*EVERYWHERE, by_key=True).to_pylist()]

    def adds_up(self, held_count: int) -> None:
        """Every message was taken, rejected or known as a replay, and those that were taken are held or left."""
        counts = self.operator.counts
        assert counts.given == counts.taken + counts.rejected + counts.replayed
        assert counts.rejected == len(self.rejected)
        assert counts.taken - counts.expired - counts.dropped_messages == held_count


class Blobs:
    """What the blobs of a store tell to somebody who has the description of the plan and not the plan."""

    def __init__(self, plan: StorePlan, store: MemoryStore) -> None:
        self._description = json.loads(json.dumps(describe(plan)))
        assert describe(plan_of(self._description)) == self._description
        self._sizes, self._state = store.sizes, json.loads(store.get(MANIFEST))
        blobs = {name: blob for name, blob in store.blobs.items() if name != MANIFEST}
        self._store_listing = listed_store(self._description, ReadBlobs(self._sizes, blobs, self._state))

    def listed_windows(self) -> list[tuple]:
        """The windows, without their keys."""
        return [tuple(one.values()) for one in self._store_listing.windows(by_key=False).select(COLUMNS).to_pylist()]

    def holding(self) -> list[tuple]:
        return [tuple(one.values()) for one in self._store_listing.messages().to_pylist()]

    def summary(self) -> Summary:
        return summary(self._sizes, self._state)
