"""The slots of owners: an owner of a watermark, a partition with its rows, and the highest event time of both.

Rule: the slots of an owner are a chain, since most owners have one slot. No slot is ever removed from memory.
"""

from __future__ import annotations

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.runtime.compiled import compiled

# Before every event time, and far enough from the end of 64 bits for additions.
NEVER = -(2**54)
_NONE = np.empty(0, np.int64)


class WatermarkKeySlots:
    """Slots by number, in the order of their first rows."""

    def __init__(self) -> None:
        self._count = 0
        self._first = _NONE  # the newest slot of each owner
        self._next = self._owners = self._channels = self._highs = _NONE

    @property
    def owners(self) -> Ints:
        """The owner of each slot."""
        return self._owners[: self._count]

    @property
    def channels(self) -> Ints:
        """The partition of each slot."""
        return self._channels[: self._count]

    @property
    def highs(self) -> Ints:
        """The highest event time of each slot."""
        return self._highs[: self._count]

    @property
    def is_single(self) -> Flags:
        """Return for each slot whether it is the only slot of its owner."""
        return (self._next[: self._count] < 0) & (self._first[self.owners] == np.arange(self._count))

    def slots_of(self, owners: Ints, channels: Ints, owner_count: int) -> Ints:
        """Return the slot of each (owner, partition), a new slot if needed."""
        self._first = _longer(self._first, owner_count, -1)
        room = self._count + len(owners)
        if room > len(self._next):
            self._next, self._owners, self._channels, self._highs = (
                _longer(one, 2 * room, NEVER) for one in (self._next, self._owners, self._channels, self._highs)
            )
        slots, self._count = _slots_of(
            owners, channels, self._first, self._next, self._owners, self._channels, self._count
        )
        return slots

    def raise_to(self, slots: Ints, highs: Ints) -> None:
        """Raise the highest event times of slots."""
        np.maximum.at(self._highs, slots, highs)

    def follow(  # noqa: PLR0917  columns of the rows, then those of the owners
        self, owners: Ints, slots: Ints, times: Ints, own: Ints, floor_ms: int, lag_ms: int, *, row_by_row: bool
    ) -> Ints:  # fmt: skip
        """Raise highest event times, and the owners' watermarks `own`; return the effective one before each row."""
        return _follow(owners, slots, times, self._first, self._next, self._highs, own, floor_ms, lag_ms, row_by_row)


def _longer(column: Ints, size: int, filled: int) -> Ints:
    if len(column) >= size:
        return column
    longer = np.full(size, filled)
    longer[: len(column)] = column
    return longer


@compiled
def _slots_of(  # noqa: PLR0917  a loop over plain arrays
    owners: Ints, channels: Ints, first: Ints, following: Ints, slot_owners: Ints, slot_channels: Ints, count: int
) -> tuple[Ints, int]:
    """Return the slot of each row and how many slots there are; the tables have room for as many as there are rows."""
    slots = np.empty(owners.shape[0], np.int64)
    for at in range(owners.shape[0]):
        slot = first[owners[at]]
        while slot >= 0 and slot_channels[slot] != channels[at]:
            slot = following[slot]
        if slot < 0:
            slot = count
            following[slot] = first[owners[at]]
            first[owners[at]] = slot
            slot_owners[slot], slot_channels[slot] = owners[at], channels[at]
            count += 1
        slots[at] = slot
    return slots, count


@compiled
def _follow(  # noqa: PLR0917  a loop over plain arrays
    owners: Ints, slots: Ints, times: Ints, first: Ints, following: Ints, highs: Ints, own: Ints, floor: int, lag: int,
    row_by_row: bool,
) -> Ints:  # fmt: skip
    """Raise the slots' highest event times and the owners' watermarks; return the effective watermark before each row.

    An owner's watermark follows the lowest of its slots above the floor.
    """
    before = np.empty(owners.shape[0], np.int64)
    rounds = 1 if row_by_row else 2
    for turn in range(rounds):
        for at in range(owners.shape[0]):
            owner, slot = owners[at], slots[at]
            if turn == 0:
                before[at] = max(own[owner], floor)
                highs[slot] = max(highs[slot], times[at])
            if turn == rounds - 1:
                lowest = np.int64(2**62)
                other = first[owner]
                while other >= 0:
                    if highs[other] - lag > floor:
                        lowest = min(lowest, highs[other] - lag)
                    other = following[other]
                if lowest != np.int64(2**62):
                    own[owner] = max(own[owner], lowest)
    return before
