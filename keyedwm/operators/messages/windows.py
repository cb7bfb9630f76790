"""Kinds of window over kept messages, as a plan has them.

Rule: a window has the facts that other modules need (`WindowKind`): its name, whether it counts offsets, how messages
are spread, how it is listed, and which limits and panes it cannot have. Its content (`contents`) decides which messages
it holds, and when it is complete. Windows of event time that are also windows over frames get their kind here
(`kind_of`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

import pyarrow as pa

from keyedwm.config.validation import number, set_fields
from keyedwm.core.errors import OptionError, OutOfTurnError
from keyedwm.core.text import span_text
from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.messages.arguments import check_retention
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.plan_checks import FARTHEST_MS, settle_spans
from keyedwm.operators.state.description import described

MOST_WINDOWS = 1_000_000  # that hold one message


class CompletedBy(Enum):
    """The event that completes a window: the watermark, or a message."""

    WATERMARK = "watermark"  # the watermark has come to its end; of rows: the next offset has, so it is known ahead
    MESSAGE = "message"  # the first message past its end


class Settings(Protocol):
    """The settings of a plan that a window may reject with an error."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of messages."""

    @property
    def full(self) -> CompletedBy:
        """The event that completes a window."""

    @property
    def retention(self) -> Retention:
        """How long windows are kept."""

    @property
    def accumulating(self) -> bool:
        """Whether panes hold the whole result."""

    @property
    def has_other_panes(self) -> bool:
        """Whether windows show other panes than one on time and one with each late message."""


class WindowKind(ABC):
    """The interface of a kind of window for plans, listings and joins; its content decides the rest."""

    __slots__ = ()
    called: ClassVar[str]  # in descriptions of plans
    # Whether windows count rows: offsets, or the messages of a key; each topic and partition has separate windows.
    is_rows: ClassVar[bool] = False
    # Whether each window belongs to one key, with which it is listed.
    is_of_key: ClassVar[bool] = True
    # Whether its messages must be read to list a window.
    is_listed_by_messages: ClassVar[bool] = False
    # Whether panes can hold only new messages; else a pane is the whole result of a key and window.
    can_discard: ClassVar[bool] = True
    # The error for a join of such windows, None if they can be joined.
    not_joined: ClassVar[str | None] = "these windows are not joined: take windows of time or of rows"

    @property
    @abstractmethod
    def why_kept(self) -> str:
        """Why their messages must be kept, and by which limit, for the error of an aggregate without a store."""

    def describe(self) -> dict[str, Any]:
        """Return the settings, ready for JSON."""
        return dict(described(self))

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> AnyWindow:
        """Return the window that has these settings; see `describe`."""
        return cls(**settings)

    def spread_by(self, by: tuple[str, ...], record: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns by which messages are spread. by: key columns. record: topic, partition and offset."""
        del record
        return by

    @abstractmethod
    def check(self, settings: Settings) -> None:
        """Raise OptionError for settings that windows of this kind cannot have."""


@dataclass(frozen=True, slots=True)
class HoppingWindow(WindowKind):
    """Windows `[start, start + size)`, one every `step`, in any ratio; starts are at `offset + n * step`."""

    called: ClassVar[str] = "time"
    is_of_key: ClassVar[bool] = False
    not_joined: ClassVar[str | None] = None
    size_ms: int
    step_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        settle_spans(self, "step")

    @property
    def why_kept(self) -> str:
        """The reason why messages must be kept, for the error of an aggregate without a store."""
        return (
            f"hopping({span_text(self.size_ms)!r}, {span_text(self.step_ms)!r}) need not be a whole number of frames, "
            "so its messages must be kept: give store=Store(retention=...), or take sliding(size, slide)"
        )

    def check(self, settings: Settings) -> None:
        """Raise OptionError for settings that such windows cannot have."""
        check_retention(settings.retention, self.size_ms, is_rows=False)
        check_overlap(self.grid())

    def grid(self) -> Grid:
        """Return the windows on the axis of event time."""
        return Grid(self.size_ms, self.step_ms, self.offset_ms)


class RowKind(WindowKind):
    """Windows that count rows."""

    __slots__ = ()
    is_rows: ClassVar[bool] = True

    def check(self, settings: Settings) -> None:
        """Raise OptionError for settings that such windows cannot have."""
        check_retention(settings.retention, 0, is_rows=True)


@dataclass(frozen=True, slots=True)
class RowWindow(RowKind):
    """Windows of `size` offsets of a topic and partition, one every `step`, from the first offset that was read on."""

    called: ClassVar[str] = "rows"
    is_of_key: ClassVar[bool] = False
    not_joined: ClassVar[str | None] = None
    size: int
    step: int

    def __post_init__(self) -> None:
        check_counts(self)

    @property
    def why_kept(self) -> str:
        """The reason why messages must be kept, for the error of an aggregate without a store."""
        return (
            f"hopping_rows({self.size}, {self.step}) counts offsets, so its messages must be kept: give "
            "store=Store(max_windows=...)"
        )

    def spread_by(self, by: tuple[str, ...], record: tuple[str, ...]) -> tuple[str, ...]:
        """By topic and partition, whose offsets are counted."""
        del by
        return record[:2]

    def check(self, settings: Settings) -> None:
        """Raise OptionError for settings that such windows cannot have."""
        RowKind.check(self, settings)
        check_overlap(self.grid(0))

    def grid(self, first: int) -> Grid:
        """Return the windows of a channel, whose first offset this is."""
        return Grid(self.size, self.step, first, first)


@dataclass(frozen=True, slots=True)
class KeyRowWindow(RowKind):
    """Windows of `size` messages of a key in a topic and partition, one every `step`, in order of offset."""

    called: ClassVar[str] = "rows of each key"
    not_joined: ClassVar[str | None] = (
        "windows of a key's messages are not joined: take tumbling_rows or windows of time"
    )
    size: int
    step: int

    def __post_init__(self) -> None:
        check_counts(self)

    @property
    def why_kept(self) -> str:
        """The reason why messages must be kept, for the error of an aggregate without a store."""
        return (
            f"hopping_key_rows({self.size}, {self.step}) counts messages, so they must be kept: give "
            "store=Store(max_messages=...)"
        )

    def check(self, settings: Settings) -> None:
        """Raise OptionError for settings that such windows cannot have."""
        RowKind.check(self, settings)
        check_overlap(Grid(self.size, self.step))
        check_of_keys(settings)


@dataclass(frozen=True, slots=True)
class SessionRowWindow(RowKind):
    """Messages of a key in a topic and partition, with at most `between` offsets from one to the next."""

    called: ClassVar[str] = "session of rows"
    can_discard: ClassVar[bool] = False
    not_joined: ClassVar[str | None] = "sessions by rows are not joined: take a session of time, or tumbling_rows"
    between: int

    def __post_init__(self) -> None:
        set_fields(self, between=number("the rows between two of a session", self.between))
        if not 0 <= self.between < FARTHEST_MS:
            raise OptionError(
                f"a session of rows with {self.between} rows between two of its own: 0 or more is expected"
            )

    @property
    def why_kept(self) -> str:
        """The reason why messages must be kept, for the error of an aggregate without a store."""
        return (
            f"session_rows({self.between}) counts offsets, so its messages must be kept: give "
            "store=Store(max_messages=...)"
        )

    def spread_by(self, by: tuple[str, ...], record: tuple[str, ...]) -> tuple[str, ...]:
        """By topic and partition: the offsets of all keys count."""
        del by
        return record[:2]

    def check(self, settings: Settings) -> None:
        """Raise OptionError for settings that such windows cannot have."""
        RowKind.check(self, settings)
        check_sessions(settings)
        check_of_keys(settings)


@dataclass(frozen=True, slots=True)
class SessionKind(WindowKind):
    """Sessions of event time."""

    called: ClassVar[str] = "session"
    can_discard: ClassVar[bool] = False
    not_joined: ClassVar[str | None] = None
    window: SessionWindow

    @property
    def why_kept(self) -> str:
        """Sessions need no store: those over frames have one accumulator each."""
        raise OutOfTurnError("sessions of event time need not keep their messages")

    def describe(self) -> dict[str, Any]:
        """Return the settings of the session."""
        return dict(described(self.window))

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> AnyWindow:
        """Return the session."""
        return SessionWindow(settings["gap_ms"], Touching(settings["touching"]))

    def check(self, settings: Settings) -> None:
        """Raise OptionError for settings that such windows cannot have."""
        check_retention(settings.retention, self.window.gap_ms, is_rows=False, called="gap")
        check_sessions(settings)


AnyWindow: TypeAlias = SlidingWindow | SessionWindow | WindowKind


def kind_of(window: AnyWindow) -> WindowKind:
    """Return the kind of a window."""
    if isinstance(window, SlidingWindow):
        return HoppingWindow(window.size_ms, window.slide_ms, window.offset_ms)
    return SessionKind(window) if isinstance(window, SessionWindow) else window


def hopping(size_ms: int, step_ms: int, offset_ms: int = 0) -> HoppingWindow:
    """Windows of event time with any step, even if it does not divide the size, or is larger."""
    return HoppingWindow(size_ms, step_ms, offset_ms)


def tumbling_rows(rows: int) -> RowWindow:
    """Windows of `rows` offsets of a topic and partition, end to end."""
    return RowWindow(rows, rows)


def hopping_rows(size: int, step: int) -> RowWindow:
    """Windows of `size` offsets of a topic and partition, one every `step` offsets."""
    return RowWindow(size, step)


def tumbling_key_rows(rows: int) -> KeyRowWindow:
    """Windows of `rows` messages of a key in a topic and partition, end to end."""
    return KeyRowWindow(rows, rows)


def hopping_key_rows(size: int, step: int) -> KeyRowWindow:
    """Windows of `size` messages of a key in a topic and partition, one every `step` of its messages.

    With a step above the size a key between two windows keeps its count, which no limit drops.
    """
    return KeyRowWindow(size, step)


def session_rows(between: int) -> SessionRowWindow:
    """Sessions of a key's messages in a topic and partition, with at most `between` offsets from one to the next."""
    return SessionRowWindow(between)


def check_counts(window: Any) -> None:
    """Raise OptionError for a size or a step that is no number of rows."""
    for name in ("size", "step"):
        rows = number(f"the {name} of a window of rows", getattr(window, name))
        set_fields(window, **{name: rows})
        if not 1 <= rows <= FARTHEST_MS:
            raise OptionError(f"the {name} of a window of rows is {rows}, it must be from 1 to {FARTHEST_MS}")


def check_overlap(grid: Grid) -> None:
    """Raise OptionError if too many windows overlap."""
    if (windows := -(-grid.size // grid.step)) > MOST_WINDOWS:
        raise OptionError(
            f"a message would lie in {windows} windows, each with a result of its own, and at most {MOST_WINDOWS} "
            "are possible: take a longer step"
        )


def check_sessions(settings: Settings) -> None:
    """Raise OptionError for settings that have no meaning for sessions."""
    if settings.full is CompletedBy.MESSAGE:
        raise OptionError(
            "full='message' has no meaning for sessions: a message past the end of one says nothing of those of "
            "other keys; leave it out"
        )
    if not settings.accumulating:
        raise OptionError(
            "sessions join, so new messages since its last pane have no meaning of their own: leave "
            "accumulating=False out"
        )


def check_of_keys(settings: Settings) -> None:
    """Raise OptionError for settings that windows of a key's messages cannot have."""
    if settings.has_other_panes:
        raise OptionError(
            "windows of a key's messages show one pane, when they are complete, and their messages never come late: "
            "leave early and late panes out, and accumulating"
        )
    if settings.retention.max_windows is not None:
        raise OptionError(
            "windows of a key's messages are kept until they are complete, their number is that of the keys: give "
            "max_messages or max_bytes, not max_windows"
        )
