"""Barriers of several channels become one snapshot (rule 12).

Rule: a snapshot is complete when every live channel delivered its barrier; a finished channel is not waited for.
Exactly-once holds a channel from its barrier until then, and knows one open snapshot. At-least-once holds nobody, and
completing a snapshot silently forgets older open ones, and so does opening too many. A barrier of a closed snapshot is
ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keyedwm.core.errors import OutOfTurnError
from keyedwm.core.watermark import Guarantee

MOST_OPEN = 50  # snapshots that can be open at once under at-least-once: a channel that lost its barriers costs no more


@dataclass(frozen=True, slots=True)
class Completed:
    """Every live channel delivered the barrier of this snapshot."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """This snapshot will not be completed: it was cancelled, or a newer barrier came."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class AlignmentState:
    """An alignment at rest: live channels, channels that delivered each open snapshot, and what is closed."""

    live: frozenset[str] = frozenset()
    delivered: tuple[tuple[int, frozenset[str]], ...] = ()
    closed_through: int = -1
    cancelled: frozenset[int] = frozenset()
    holding: bool = True


class Alignment:
    """Who has delivered which barrier. `subsume`: whether a newer barrier aborts the open snapshot or is refused."""

    def __init__(
        self,
        channels: Iterable[str] = (),
        *,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        subsume: bool = True,
    ) -> None:
        self._live = set(channels)
        self._delivered: dict[int, set[str]] = {}
        self._closed_through = -1
        self._cancelled: set[int] = set()
        self._holding = guarantee is Guarantee.EXACTLY_ONCE
        self._subsume = subsume

    def add(self, channel: str) -> None:
        """A new channel: it is waited for from now on."""
        if channel in self._live:
            raise OutOfTurnError(f"channel {channel} was added twice")
        self._live.add(channel)

    def barrier(self, channel: str, snapshot_id: int, *, terminal: bool = False) -> list[Completed | Aborted]:
        """Take a barrier; a terminal one makes the alignment exactly-once for good (nothing may overtake the end)."""
        self._check_live(channel, f"the barrier of snapshot {snapshot_id}")
        self._holding = self._holding or terminal
        if snapshot_id <= self._closed_through or snapshot_id in self._cancelled:
            return []
        changes: list[Completed | Aborted] = []
        if self._holding or not self._subsume:
            open_id = next(iter(self._delivered), snapshot_id)
            if snapshot_id < open_id:
                return []
            if snapshot_id > open_id:
                if not self._subsume:
                    raise OutOfTurnError(
                        f"channel {channel} delivered the barrier of snapshot {snapshot_id} while snapshot {open_id} "
                        f"was open, it must be {open_id}"
                    )
                changes += self._abort(open_id)
        delivered = self._delivered.setdefault(snapshot_id, set())
        if channel in delivered:
            raise OutOfTurnError(f"channel {channel} delivered the barrier of snapshot {snapshot_id} twice")
        delivered.add(channel)
        if len(self._delivered) > MOST_OPEN:
            del self._delivered[min(self._delivered)]
        return changes + self._complete()

    def done(self, channel: str) -> list[Completed | Aborted]:
        """A channel ends: it is not waited for, even if it had delivered; that can complete a snapshot."""
        self._check_live(channel, "its end")
        self._live.discard(channel)
        return self._complete()

    def cancel(self, snapshot_id: int) -> list[Completed | Aborted]:
        """A snapshot was given up; its barriers are ignored from now on, and older open ones are given up with it."""
        if snapshot_id <= self._closed_through or snapshot_id in self._cancelled:
            return []
        if not self._holding:
            self._cancelled.add(snapshot_id)
        else:
            self._closed_through = snapshot_id
        older = [open_id for open_id in self._delivered if open_id < snapshot_id]
        for open_id in (*older, snapshot_id):
            self._delivered.pop(open_id, None)
        return [Aborted(open_id) for open_id in (*sorted(older), snapshot_id)]

    def blocked_channels(self) -> frozenset[str]:
        """The channels whose rows wait behind their barrier."""
        if not self._holding:
            return frozenset()
        return frozenset().union(*self._delivered.values()) & self._live

    def snapshot(self) -> AlignmentState:
        """Everything the next step depends on."""
        return AlignmentState(
            live=frozenset(self._live),
            delivered=tuple((open_id, frozenset(self._delivered[open_id])) for open_id in sorted(self._delivered)),
            closed_through=self._closed_through,
            cancelled=frozenset(self._cancelled),
            holding=self._holding,
        )

    @classmethod
    def restore(cls, state: AlignmentState, *, subsume: bool = True) -> Alignment:
        """An alignment that goes on from a snapshot of its own."""
        it = cls(state.live, subsume=subsume)
        it._delivered = {open_id: set(channels) for open_id, channels in state.delivered}
        it._closed_through = state.closed_through
        it._cancelled = set(state.cancelled)
        it._holding = state.holding
        return it

    def _check_live(self, channel: str, item: str) -> None:
        if channel not in self._live:
            raise OutOfTurnError(f"channel {channel} is done or was never added, but {item} came")

    def _abort(self, snapshot_id: int) -> list[Completed | Aborted]:
        del self._delivered[snapshot_id]
        self._closed_through = snapshot_id
        return [Aborted(snapshot_id)]

    def _complete(self) -> list[Completed | Aborted]:
        complete = [open_id for open_id, delivered in self._delivered.items() if delivered >= self._live]
        if not complete:
            return []
        newest = max(complete)
        self._closed_through = newest
        self._delivered = {open_id: of for open_id, of in self._delivered.items() if open_id > newest}
        self._cancelled = {open_id for open_id in self._cancelled if open_id > newest}
        return [Completed(newest)]
