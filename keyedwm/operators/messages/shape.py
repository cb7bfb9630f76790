"""The contract between the driver and a kind of window over kept messages; see `driver.MessageOperator`.

Rule: a shape decides which windows there are, what they hold and when they are complete. It knows no replays, it is
given messages that fit the plan and have an event time where that counts, and it says once what becomes of each: it
admits or rejects a message (`Account.admit`), and releases one that it held (`Account.release`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages.account import Account, Messages
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.listing import Listing
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.results import Output
from keyedwm.operators.state.store import TableLogs


@dataclass(frozen=True, slots=True)
class ShapeContext:
    """The parts that a shape shares with the driver. accounts: of the messages of each input."""

    plan: StorePlan
    channels: Channels
    logs: TableLogs
    accounts: Sequence[Account]


class MessageShape:
    """Windows of one kind. state: as `state` of an earlier instance gave it, empty at first."""

    # Whether messages lie by event time; else by offset, so that no watermark says anything of them.
    of_time: ClassVar[bool] = True

    def __init__(self, kept: ShapeContext, state: Mapping[str, Any]) -> None:
        del state
        self._plan, self.channels, self._logs = kept.plan, kept.channels, kept.logs
        self._accounts = kept.accounts

    @property
    def _account(self) -> Account:
        """The account of the only input."""
        return self._accounts[0]

    def check(self, rows: pa.Table) -> None:
        """Called when messages came, before anything changes: raise InputError for messages that cannot be taken."""

    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Called when messages came for the first time: hold them, open their windows, and yield the panes due at once.

        now_ms: wall-clock time, for panes by the clock.
        """
        raise NotImplementedError

    def due(self, watermark_ms: int) -> Iterator[Output]:
        """Called when a watermark came, maybe no higher one: show what it completes, and release what it outlives."""
        del watermark_ms
        return iter(())

    def next_due(self) -> int | None:
        """Called when the host plans its next wake-up: the wall-clock time of the next panes, None if none wait."""
        return None

    def fire(self, now_ms: int) -> Iterator[Output]:
        """Called when wall-clock time has passed: show the panes that are due by it."""
        del now_ms
        return iter(())

    def shrink(self) -> Iterator[Output]:
        """Called at the end of a batch, if the store has limits of size: release what is beyond them, oldest first."""
        return iter(())

    def end(self) -> Iterator[Output]:
        """Called when the input has ended: show every window that is not complete, and release everything."""
        raise NotImplementedError

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Called when a watermark was taken: return the one that results keep. Panes of rows have no event time."""
        return watermark_ms

    def held(self) -> int:
        """Return how many messages are held."""
        raise NotImplementedError

    def compact(self) -> None:
        """Called before state is written: write logs anew of which most rows are needed no more."""

    def merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        """Called when parts of a log are written as one: return that one."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Called when state is written: return what a later instance needs to know beside the logs, ready for JSON."""
        raise NotImplementedError

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """Called for a listing: yield the windows that overlap `[start, end]`, in order of their ends."""
        raise NotImplementedError

    def read(self, low: int, high: int) -> pa.Table:
        """Called for a listing: return all held messages from low to high, and maybe others, in no order."""
        raise NotImplementedError

    def oldest(self) -> tuple[Ints, Ints]:
        """Called when a store must be made anew from its records: return channels, and offsets that each is read from.

        Channels are told by number, maybe several times; of one that is not among them all held messages are gone.
        """
        raise NotImplementedError
