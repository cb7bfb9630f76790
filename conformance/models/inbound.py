"""Several channels read as one: watermarks coalesced, barriers aligned, every channel's own order kept.

Rule: the scalar model of an operator's input (rules 1 to 5 and 12). A pass reads every readable channel in
order of its name, up to and including its first control item; events come out before what the control items made true.
A held channel is not read. A completed barrier ends the pass, so nothing that stands behind it comes out before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from conformance.models.alignment import Alignment, AlignmentState, Completed
from conformance.models.single_steps import SingleSteps
from keyedwm.core.coalescer import ChannelAdded, CoalescerState
from keyedwm.core.errors import InputError, OutOfTurnError
from keyedwm.core.watermark import Guarantee, IdleMarker, Status, Watermark


@dataclass(frozen=True, slots=True)
class Barrier:
    """The cut of snapshot `snapshot_id`: ids start at 0 and go up by one (rule 12)."""

    snapshot_id: int

    def __post_init__(self) -> None:
        if self.snapshot_id < 0:
            raise InputError(f"a snapshot id is {self.snapshot_id}, it must be 0 or more")


@dataclass(frozen=True, slots=True)
class Event:
    """An event and what it carries; the algebra never looks inside."""

    payload: object


class End(Enum):
    """A channel has finished, or (coming out) all of them have."""

    END = "end"


Item = Event | Watermark | IdleMarker | Barrier | End


@dataclass(frozen=True, slots=True)
class Terminal:
    """A barrier after which nothing follows but the end of its channel."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class InboundState:
    """An input at rest, rows that wait included."""

    waiting: Mapping[str, tuple] = field(default_factory=dict)
    coalescer: CoalescerState = field(default_factory=CoalescerState)
    alignment: AlignmentState = field(default_factory=AlignmentState)
    ended: bool = False


class Inbound:
    """Reads channels fairly; `append_item` appends to a channel, `drain` reads until nothing moves."""

    def __init__(
        self,
        channels: Iterable[str],
        *,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        alignment: type[Alignment] = Alignment,
    ) -> None:
        names = sorted(channels)
        self._guarantee = guarantee
        self._waiting: dict[str, deque] = {channel: deque() for channel in names}
        self._coalescer = SingleSteps(guarantee=guarantee)
        self._coalescer.step([ChannelAdded(channel) for channel in names], 0)
        self._alignment = alignment(names, guarantee=guarantee, subsume=False)
        self._ended = False

    def append_item(self, channel: str, item: Item | Terminal) -> None:
        """Append to a channel."""
        if channel not in self._waiting:
            raise OutOfTurnError(f"channel {channel} is not known")
        self._waiting[channel].append(item)

    def drain(self) -> list[Item | Terminal]:
        """Read until nothing moves; END comes out once, when every channel has finished."""
        output: list[Item | Terminal] = []
        while True:
            is_moving, items = self.read_once()
            output += items
            if not is_moving:
                break
        statuses = {self._coalescer.status(channel) for channel in self._waiting}
        if not self._ended and statuses <= {Status.DONE}:
            self._ended = True
            output.append(End.END)
        return output

    def snapshot(self) -> InboundState:
        """Everything the next step depends on."""
        return InboundState(
            waiting={channel: tuple(items) for channel, items in self._waiting.items()},
            coalescer=self._coalescer.snapshot(),
            alignment=self._alignment.snapshot(),
            ended=self._ended,
        )

    @classmethod
    def restore(cls, state: InboundState, *, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> Inbound:
        """An input that goes on from a snapshot of its own."""
        it = cls((), guarantee=guarantee)
        it._waiting = {channel: deque(state.waiting[channel]) for channel in sorted(state.waiting)}
        it._coalescer = cast("SingleSteps", SingleSteps.restore(state.coalescer, guarantee=guarantee))
        it._alignment = Alignment.restore(state.alignment, subsume=False)
        it._ended = state.ended
        return it

    def read_once(self) -> tuple[bool, list[Item | Terminal]]:
        """One pass: whether anything was read, and what came out."""
        events: list[Item | Terminal] = []
        control: list[Item | Terminal] = []
        is_moving = False
        for channel, waiting in self._waiting.items():
            if channel in self._alignment.blocked_channels():
                continue
            while waiting:
                item = waiting.popleft()
                is_moving = True
                if isinstance(item, Event):
                    events.append(item)
                    control += self._coalescer.event(channel)
                    continue
                outputs, completed = self._process_item(channel, item)
                control += outputs
                if completed:
                    return is_moving, events + control
                break
        return is_moving, events + control

    def _process_item(self, channel: str, item: Item | Terminal) -> tuple[list[Item | Terminal], bool]:
        """What a control item makes true, and whether a barrier was completed."""
        if isinstance(item, Watermark):
            return list(self._coalescer.watermark(channel, item.key, item.time_ms)), False
        if isinstance(item, IdleMarker):
            return list(self._coalescer.idle(channel)), False
        if isinstance(item, End):
            outputs: list[Item | Terminal] = list(self._coalescer.done(channel))
            completed = self._alignment.done(channel)
            return outputs + [Barrier(change.snapshot_id) for change in completed], bool(completed)
        terminal = isinstance(item, Terminal)
        barrier = item.barrier if isinstance(item, Terminal) else item
        if not isinstance(barrier, Barrier):
            raise OutOfTurnError(f"channel {channel} carried {item!r}, which is no item of a channel")
        changes = self._alignment.barrier(channel, barrier.snapshot_id, terminal=terminal)
        completed_now = any(isinstance(change, Completed) for change in changes)
        return [item] if completed_now else [], completed_now
