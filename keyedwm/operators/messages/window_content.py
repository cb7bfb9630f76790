"""The contract between the driver and a kind of window over kept messages; see `driver.MessageOperator`.

Rule: a content decides which windows exist, what they hold and when they are complete. It gets no replays. Its messages
fit the plan, and have an event time if windows are of time. It reports each message once: it admits or rejects a
message (`MessageCounter.admit`), and releases a held message (`MessageCounter.release`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages.listing import Listing
from keyedwm.operators.messages.message_counter import Input, Messages
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.windows import WindowKind
from keyedwm.operators.results import Output
from keyedwm.operators.state.store import TableLogs


@dataclass(frozen=True, slots=True)
class ContentContext:
    """The parts that a content shares with the driver."""

    inputs: Sequence[Input]
    logs: TableLogs


Offsets = dict[tuple[str, int], int]  # the topics and partitions


class BufferedMessages(Protocol):
    """The messages and windows of an input, for listings."""

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """Yield the windows that overlap `[start, end]`, in order of their ends."""

    def read(self, low: int, high: int) -> pa.Table:
        """Return all held messages from low to high, and maybe others, in no order."""

    def oldest(self) -> tuple[Ints, Ints]:
        """Called when a store must be rebuilt from its records: return channels, and the offset to read each from.

        Channels are returned by number, maybe several times; a channel that is missing has no held message.
        """


class WindowContent(ABC):
    """Windows of one kind."""

    def __init__(self, context: ContentContext) -> None:
        self._inputs, self._logs = context.inputs, context.logs

    def validated(self, input_number: int, rows: pa.Table) -> pa.Table:
        """Called when messages arrive, before anything changes: return them in the form in which they are held.

        Raises InputError for messages that do not fit.
        """
        return self._inputs[input_number].validated(rows)

    @abstractmethod
    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Called with new messages: store them, open their windows, yield panes that are due at once.

        now_ms: wall-clock time, for panes by the clock.
        """

    def due(self, watermark_ms: int, input_number: int = 0) -> Iterator[Output]:
        """Called with a watermark, maybe no higher than before: show complete windows, release expired ones."""
        del watermark_ms, input_number
        return iter(())

    def next_due(self) -> int | None:
        """Called when the host plans its next wake-up: the wall-clock time of the next panes, None if none wait."""
        return None

    def fire(self, now_ms: int) -> Iterator[Output]:
        """Called when wall-clock time has passed: show the panes that are due by it."""
        del now_ms
        return iter(())

    def shrink(self) -> Iterator[Output]:
        """Called at the end of a batch, if the store has limits of size: release the oldest windows beyond them."""
        return iter(())

    @abstractmethod
    def end(self) -> Iterator[Output]:
        """Called when the input has ended: show every window that is not complete, and release everything."""

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Called after a watermark: return the watermark of the results. Panes of rows have no event time."""
        return watermark_ms

    @abstractmethod
    def message_count(self) -> int:
        """Return how many messages are held."""

    def compact(self) -> None:  # noqa: B027 (not every content has such logs)
        """Called before state is written: rewrite logs in which most rows are not needed."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Called when state is written: return the state for a later instance beside the logs, ready for JSON."""

    @abstractmethod
    def of_input(self, number: int) -> BufferedMessages:
        """Called for a listing: return the held messages of an input."""

    def rejected(self, _input_number: int, rows: pa.Table) -> pa.Table:
        """Called when messages were rejected: return them unchanged, with the reason."""
        return rows

    def offsets_of(self, _input_number: int, offsets: Offsets) -> Offsets:
        """Called with the offsets of all channels: return the offsets of an input, by its own topics."""
        return offsets


class StoreContent(WindowContent):
    """Windows of one kind, of a plan with one input.

    state: the result of `state` of an earlier instance, empty at first. A content is declared for its windows: `class
    OnDemandContent(StoreContent, windows=OnDemandWindow)`.
    """

    of_windows: ClassVar[dict[type[WindowKind], type[StoreContent]]] = {}  # the contents in the package `contents`

    def __init_subclass__(cls, *, windows: type[WindowKind] | None = None) -> None:
        super().__init_subclass__()
        if windows is not None:
            cls.of_windows[windows] = cls

    def __init__(self, plan: StorePlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        del state
        super().__init__(context)
        self._plan, self.channels, self._counter = plan, context.inputs[0].channels, context.inputs[0].counter
