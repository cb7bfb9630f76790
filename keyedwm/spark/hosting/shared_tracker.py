"""The channels of a bucket's input, computed once for all buckets of a process that have the same state.

Every bucket gets the same control rows, and nearly always has the same state as the other buckets. So the last results
are kept: a bucket in the same state uses them, and a bucket in another state computes its own.
Rule: a tracker that is kept is never changed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from keyedwm.core.control_row import ControlRow
from keyedwm.spark.hosting.channel_tracker import BatchWatermarks, ChannelTracker

# The number of inputs and axes whose results are kept, and of states for each: the state before the batch, the state
# after it, and another bucket's state.
_INPUTS = 16
_STATES = 3


@dataclass(frozen=True, slots=True)
class _Step:
    """One batch of a tracker: its control rows, their result, and the tracker and state after them."""

    before: ChannelTracker
    rows: Sequence[ControlRow]
    received: BatchWatermarks
    after: ChannelTracker
    state: Mapping[str, Any]


@dataclass(slots=True)
class _Shared:
    """The last results of this process's buckets for one input and axis. states: the newest one is last."""

    owner: str
    key: int
    states: list[tuple[Mapping[str, Any] | None, ChannelTracker]] = field(default_factory=list)
    last: _Step | None = None

    def opened(self, state: Mapping[str, Any] | None) -> ChannelTracker:
        """Return the tracker in this state, None for a new bucket. Raises FormatError for a damaged state."""
        for known, tracker in self.states:
            if known == state:
                return tracker
        owner, key = self.owner, self.key
        tracker = ChannelTracker(owner, key) if state is None else ChannelTracker.restore(owner, key, state)
        self._keep(state, tracker)
        return tracker

    def apply(self, before: ChannelTracker, rows: Sequence[ControlRow]) -> _Step:
        """Return the step from `before` by these rows. Raises InputError if barriers are missing."""
        last = self.last
        if last is not None and last.before is before and last.rows == rows:
            return last
        after = ChannelTracker.restore(self.owner, self.key, before.state())
        received = after.apply(rows)
        self.last = _Step(before, rows, received, after, after.state())
        self._keep(self.last.state, after)
        return self.last

    def state_of(self, tracker: ChannelTracker) -> Mapping[str, Any]:
        """Return the state of a tracker."""
        return self.last.state if self.last is not None and self.last.after is tracker else tracker.state()

    def _keep(self, state: Mapping[str, Any] | None, tracker: ChannelTracker) -> None:
        self.states = [*self.states, (state, tracker)][-_STATES:]


@functools.lru_cache(maxsize=_INPUTS)
def _shared(owner: str, key: int) -> _Shared:
    return _Shared(owner, key)


class SharedTracker:
    """A `ChannelTracker` that shares its results with other buckets in the same state."""

    def __init__(self, owner: str, key: int, state: Mapping[str, Any] | None) -> None:
        self._shared = _shared(owner, key)
        self._tracker = self._shared.opened(state)

    @property
    def watermark_ms(self) -> int | None:
        """The watermark as of the last batch."""
        return self._tracker.watermark_ms

    @property
    def idle(self) -> bool:
        """Whether all channels were idle at the end of the last batch."""
        return self._tracker.idle

    def apply(self, rows: Sequence[ControlRow]) -> BatchWatermarks:
        """Apply all control rows of a batch, in any order. Raises InputError if barriers are missing."""
        step = self._shared.apply(self._tracker, rows)
        self._tracker = step.after
        return step.received

    def state(self) -> Mapping[str, Any]:
        """Return the state that the next batch needs, ready for JSON."""
        return self._shared.state_of(self._tracker)
