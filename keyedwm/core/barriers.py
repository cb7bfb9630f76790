"""Barriers and the snapshots they cut (rule 12), as the source's planner, the operators and the sink apply it.

Rule: values in, values out; the caller makes the message of an error. A cut is the part of a snapshot's barriers, of
one source, that is in one batch. It is whole when every channel of the source has delivered its barrier. A source
without channels says itself that its cut is whole. The ids of one source increase by one. No event of a channel is at
or after its barrier. Rows after a barrier wait until every channel has delivered its barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True, slots=True)
class BarrierCut:
    """The barriers of one snapshot in a batch.

    source: the source of the barriers, None if they do not name it (rows of format version 1). Then several sources
    with equal ids and equal numbers of channels form one cut. expected: how many channels of the source must deliver.
    arrived: the channels that have delivered, sorted.
    """

    source: str | None
    snapshot: int
    expected: int
    arrived: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every channel delivered its barrier; for unnamed sources, whether the number fits whole sources."""
        if self.source is None:
            return len(self.arrived) % self.expected == 0
        return len(self.arrived) == self.expected

    @property
    def delivered(self) -> int:
        """The number of barriers that arrived from an incomplete source; all of them if the cut is whole."""
        if self.source is None and not self.is_whole:
            return len(self.arrived) % self.expected
        return len(self.arrived)


def collect_cuts(rows: Iterable[ControlRow]) -> list[BarrierCut]:
    """Collect the barriers among the control rows into cuts, ordered by source, snapshot and number of channels."""
    arrived: dict[tuple[str | None, int, int], set[str]] = {}
    for row in rows:
        if row.kind is not ControlKind.BARRIER or row.snapshot is None or row.channels is None:
            continue  # a barrier has both by construction
        channels = arrived.setdefault((row.source, row.snapshot, row.channels), set())
        if row.channel is not None:
            channels.add(row.channel)
    return [
        BarrierCut(source=source, snapshot=snapshot, expected=expected, arrived=tuple(sorted(channels)))
        for (source, snapshot, expected), channels in sorted(arrived.items(), key=_cut_order)
    ]


def first_incomplete(cuts: Iterable[BarrierCut]) -> BarrierCut | None:
    """Return the first cut that is not whole, None if all are."""
    return next((barrier for barrier in cuts if not barrier.is_whole), None)


def silent_sources(cuts: Iterable[BarrierCut], rows: Iterable[ControlRow]) -> tuple[str, ...]:
    """Return the sources that rows name, but of which no barrier arrived, sorted."""
    delivered = {barrier.source for barrier in cuts}
    return tuple(sorted({row.source for row in rows if row.source is not None} - delivered))


def delivered_twice(cuts: Iterable[BarrierCut]) -> str | None:
    """Return the first channel whose barrier came from two sources, None if there is none."""
    owner: dict[str, str | None] = {}
    twice = [
        channel
        for barrier in cuts
        for channel in barrier.arrived
        if owner.setdefault(channel, barrier.source) != barrier.source
    ]
    return min(twice, default=None)


def undelivered(cuts: Iterable[BarrierCut], known: Iterable[str]) -> tuple[str, ...]:
    """Return the known channels that delivered no barrier, sorted."""
    arrived = {channel for barrier in cuts for channel in barrier.arrived}
    return tuple(sorted(set(known) - arrived))


def preceding_snapshot(
    barrier: BarrierCut, last: Mapping[str, int | None], of_sources: Mapping[str, int]
) -> int | None:
    """Return the last snapshot of the cut's source, else the newest of the cut's channels; None if all are new.

    The cut's id must be the next one. A channel that was missing rejoins at its source's id.
    """
    if barrier.source is not None and barrier.source in of_sources:
        return of_sources[barrier.source]
    return max((last_id for channel in barrier.arrived if (last_id := last.get(channel)) is not None), default=None)


def following_snapshot(last: Iterable[int | None]) -> int:
    """Return the id that follows the newest of these snapshots; the first snapshot is 0."""
    return max((snapshot for snapshot in last if snapshot is not None), default=-1) + 1


def first_behind_barrier(barrier_offsets: Mapping[str, int | None], top_offsets: Mapping[str, int]) -> str | None:
    """Return the first channel that has an event at or after its barrier, which carries the next offset."""
    for channel, barrier_offset in sorted(barrier_offsets.items()):
        top = top_offsets.get(channel)
        if top is not None and barrier_offset is not None and top >= barrier_offset:
            return channel
    return None


def align(newest: Mapping[C, int]) -> tuple[int | None, frozenset[C]]:
    """Return the newest snapshot whose barrier every channel has delivered, and the channels that are ahead of it.

    newest: the snapshot of each channel's newest barrier. If a channel is ahead, its rows after the barrier of the
    returned snapshot wait. None without any channel.
    """
    snapshot = min(newest.values(), default=None)
    return snapshot, frozenset(channel for channel, delivered in newest.items() if delivered != snapshot)


def _cut_order(item: tuple[tuple[str | None, int, int], set[str]]) -> tuple[str, int, int]:
    (source, snapshot, expected), _ = item
    return source or "", snapshot, expected
