"""What is asked of windows that keep their messages, checked where it is written down.

Rule: a plan that can be built can run, and two plans with the same digest have the same state and the same results.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from keyedwm.config.validation import MS, expect, expect_member, names, number, number_or_none, pairs, settle
from keyedwm.core.errors import OptionError, OutOfTurnError
from keyedwm.core.rows import REASON
from keyedwm.expressions.condition import Condition
from keyedwm.operators.aggregates.functions import AggregateSpec
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.messages.checks import (
    check_early,
    check_gap,
    check_late,
    check_record,
    check_retention,
    check_sessions,
)
from keyedwm.operators.messages.functions import FullState, FullStateSpec, bound
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.key_grid import KeyGrid
from keyedwm.operators.messages.marks import OF_KEYS, OF_SESSIONS
from keyedwm.operators.messages.on_demand import ON_DEMAND, OnDemandWindow, check_limits
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.names import HIDDEN, PANE, PANE_TYPE, WINDOW, WINDOW_TYPE
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.plan_checks import (
    FARTHEST_MS,
    check_aggregation,
    settle_spans,
)

# Beside the columns of a message, where panes hold what is new: the number of the call that brought it.
ARRIVAL = f"{HIDDEN}arrival"
MOST_WINDOWS = 1_000_000  # that hold one message
ROWS_WINDOW_TYPE = pa.struct([("first_offset", pa.int64()), ("last_offset", pa.int64())])


class Full(Enum):
    """What completes a window."""

    WATERMARK = "watermark"  # the watermark has come to its end; of rows: the next offset has, so it is known ahead
    MESSAGE = "message"  # the first message past its end


class Reason(Enum):
    """Why a message was given back."""

    NO_TIME = "no event time"
    RETENTION = "outside the retention"
    GAP = "between windows"


@dataclass(frozen=True, slots=True)
class HoppingWindow:
    """Windows `[start, start + size)`, one every `step`, of any ratio; starts stand at `offset + n * step`."""

    size_ms: int
    step_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        settle_spans(self, "step")


@dataclass(frozen=True, slots=True)
class RowWindow:
    """Windows of `size` offsets of a topic and partition, one every `step`, from the first offset that was read on."""

    size: int
    step: int

    def __post_init__(self) -> None:
        for name in ("size", "step"):
            rows = number(f"the {name} of a window of rows", getattr(self, name))
            settle(self, **{name: rows})
            if not 1 <= rows <= FARTHEST_MS:
                raise OptionError(f"the {name} of a window of rows is {rows}, it must be from 1 to {FARTHEST_MS}")


@dataclass(frozen=True, slots=True)
class KeyRowWindow(RowWindow):
    """Windows of `size` messages of a key in a topic and partition, one every `step`, in order of offset."""


@dataclass(frozen=True, slots=True)
class SessionRowWindow(KeyRowWindow):
    """Messages of a key in a topic and partition, with at most `between` offsets from one to the next."""

    between: int = 0

    def __post_init__(self) -> None:
        RowWindow.__post_init__(self)
        settle(self, between=number("the rows between two of a session", self.between))
        if not 0 <= self.between < FARTHEST_MS:
            raise OptionError(
                f"a session of rows with {self.between} rows between two of its own: 0 or more is expected"
            )


def hopping(size_ms: int, step_ms: int, offset_ms: int = 0) -> HoppingWindow:
    """Windows of event time with any step, also one that does not divide the size or is larger."""
    return HoppingWindow(size_ms, step_ms, offset_ms)


def tumbling_rows(rows: int) -> RowWindow:
    """Windows of so many offsets of a topic and partition, end to end."""
    return RowWindow(rows, rows)


def hopping_rows(size: int, step: int) -> RowWindow:
    """Windows of `size` offsets of a topic and partition, one every `step` offsets."""
    return RowWindow(size, step)


def tumbling_key_rows(rows: int) -> KeyRowWindow:
    """Windows of so many messages of a key in a topic and partition, end to end."""
    return KeyRowWindow(rows, rows)


def hopping_key_rows(size: int, step: int) -> KeyRowWindow:
    """Windows of `size` messages of a key in a topic and partition, one every `step` of its messages."""
    return KeyRowWindow(size, step)


def session_rows(between: int) -> SessionRowWindow:
    """Sessions of a key's messages in a topic and partition, with at most so many offsets from one to the next."""
    return SessionRowWindow(FARTHEST_MS, FARTHEST_MS, between)


def spread_by(window: object, by: tuple[str, ...], record: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns by which messages are spread: the keys, or the topic and partition of which windows count the
    offsets of all keys; record: the topic, partition and offset.
    """
    by_offsets = isinstance(window, RowWindow) and not isinstance(window, KeyRowWindow)
    return record[:2] if by_offsets or isinstance(window, SessionRowWindow) else by


GridWindow: TypeAlias = SlidingWindow | HoppingWindow | RowWindow | OnDemandWindow
AnyWindow: TypeAlias = GridWindow | SessionWindow


@dataclass(frozen=True, kw_only=True)
class StorePlan:
    """One aggregation over messages that are kept. `schema` is theirs: every column is kept and given back.

    `topic`, `partition` and `offset` name the columns that tell messages apart, and order those of equal event time.
    `full` says what completes a window. Late messages inside the retention update its result at once, or with
    `late_every_ms` together, so long (`late_by`: wall clock, or event time) after the first of them, or with
    `late_rows` after so many of a key and window; what is left then is shown when the window goes. Every pane holds the
    whole result, or unless `accumulating` that of the messages which came since the pane before.
    """

    schema: pa.Schema
    by: tuple[str, ...]
    window: AnyWindow
    aggregates: tuple[tuple[str, AggregateSpec | FullStateSpec], ...]
    retention: Retention
    time: str = "event_time"
    topic: str = "topic"
    partition: str = "partition"
    offset: str = "offset"
    full: Full = Full.WATERMARK
    early: Early | None = None
    late_every_ms: int | None = None
    late_rows: int | None = None
    late_by: EveryBy = EveryBy.CLOCK
    accumulating: bool = True
    functions: tuple[FullState, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_kinds()
        named, places = [name for name, _ in self.aggregates], self.record[:2] if self.is_rows else ()
        check_aggregation(self.schema, by=self.by, time=self.time, order=self.record, aggregates=named, places=places)
        check_record(self.schema, self.record)
        order = self.record
        time = self.time if self.is_rows else None
        made = tuple(bound(spec, self.schema, order, time) for _, spec in self.aggregates)
        object.__setattr__(self, "functions", made)
        called = "gap" if self.is_sessions else "window"
        check_retention(self.retention, self.span, is_rows=self.is_rows, called=called)
        by_message = self.full is Full.MESSAGE
        if self.is_sessions or self.is_session_rows:
            check_sessions(by_message=by_message, accumulating=self.accumulating)
        if self.is_on_demand:
            _ = self.opens
            check_limits(self.retention, speaks_otherwise=by_message or self._has_other_panes)
        elif self.counts_keys:
            self._check_key_rows()
        elif not self.is_sessions and (windows := -(-self.grid().size // self.grid().step)) > MOST_WINDOWS:
            raise OptionError(
                f"a message would lie in {windows} windows, each with a result of its own, and at most {MOST_WINDOWS} "
                "are possible: take a longer step"
            )
        if not self.accumulating and ARRIVAL in self.schema.names:
            raise OptionError(f"with accumulating=False a message's column cannot be called {ARRIVAL!r}: rename it")
        check_early(by_event=self.early is not None and self.early.by_event, is_rows=self.is_rows)
        by_event = self.late_by is EveryBy.EVENT
        check_late(self.late_every_ms, self.late_rows, by_event=by_event, is_rows=self.is_rows)

    def _check_kinds(self) -> None:
        expect("the schema of messages", self.schema, pa.Schema, "a pyarrow.Schema")
        kinds = (SlidingWindow, HoppingWindow, RowWindow, OnDemandWindow, SessionWindow)
        expect("the window", self.window, kinds, "one such as tumbling(60_000)")
        check_gap(self.window)
        expect("the retention", self.retention, Retention, "one such as Retention(time_ms=3_600_000)")
        expect("early", self.early, (Early, type(None)), "Early(rows=..., every_ms=...), or nothing,")
        expect("accumulating", self.accumulating, bool, "True or False")
        expect_member("full", self.full, Full)
        expect_member("late_by", self.late_by, EveryBy)
        settle(
            self, by=names("by", self.by), aggregates=pairs("aggregates", self.aggregates, "(('rows', count()),)"),
            late_every_ms=number_or_none("the interval of late panes", self.late_every_ms, MS),
            late_rows=number_or_none("late_rows", self.late_rows),
        )  # fmt: skip

    @property
    def _has_other_panes(self) -> bool:
        """Whether windows speak otherwise than when they are complete, and with each late message."""
        late = self.late_every_ms is not None or self.late_rows is not None
        return late or self.early is not None or not self.accumulating

    def _check_key_rows(self) -> None:
        if self._has_other_panes:
            raise OptionError(
                "windows of a key's messages speak once, when they are complete, and their messages never come late: "
                "leave early and late panes out, and accumulating"
            )
        if self.retention.max_windows is not None:
            raise OptionError(
                "windows of a key's messages are kept until they are complete, their number is that of the keys: give "
                "max_messages or max_bytes, not max_windows"
            )

    @property
    def record(self) -> tuple[str, str, str]:
        """The columns that tell messages apart: topic, partition and offset."""
        return self.topic, self.partition, self.offset

    @property
    def is_rows(self) -> bool:
        """Whether windows count rows: offsets, or the messages of a key."""
        return isinstance(self.window, RowWindow)

    @property
    def counts_keys(self) -> bool:
        """Whether windows count the messages of a key."""
        return isinstance(self.window, KeyRowWindow)

    @property
    def is_sessions(self) -> bool:
        """Whether windows are sessions."""
        return isinstance(self.window, SessionWindow)

    @property
    def is_session_rows(self) -> bool:
        """Whether windows are sessions by rows."""
        return isinstance(self.window, SessionRowWindow)

    @property
    def session_rows(self) -> SessionRowWindow:
        """The window of a plan of sessions by rows."""
        if not isinstance(self.window, SessionRowWindow):
            raise OutOfTurnError(f"{self.window} is no session by rows")
        return self.window

    @property
    def is_on_demand(self) -> bool:
        """Whether messages open windows."""
        return isinstance(self.window, OnDemandWindow)

    @cached_property
    def opens(self) -> Condition:
        """Which messages open a window."""
        if not isinstance(self.window, OnDemandWindow):
            raise OutOfTurnError(f"{self.window} is opened by no message")
        return Condition.parse(self.window.opens, ("", self.schema), of=ON_DEMAND)

    @property
    def session(self) -> SessionWindow:
        """The window of a plan of sessions."""
        if not isinstance(self.window, SessionWindow):
            raise OutOfTurnError(f"{self.window} is no session")
        return self.window

    @property
    def span(self) -> int:
        """How long a window is on its axis; of sessions the gap, which is the shortest."""
        return self.session.gap_ms if self.is_sessions else self.grid().size

    def key_grid(self) -> KeyGrid:
        """Return the windows of each key, where they count its messages."""
        return KeyGrid(self.grid().size, self.grid().step, known_ahead=self.full is Full.WATERMARK)

    def grid(self, first: int = 0) -> Grid:
        """Return the windows on their axis; first: the first offset of a channel, where windows count offsets."""
        if isinstance(self.window, SessionWindow):
            raise OutOfTurnError("sessions lie on no grid")
        return grid_of(self.window, first)

    @cached_property
    def key_fields(self) -> list[pa.Field]:
        """The by columns."""
        return [pa.field(name, self.schema.field(name).type) for name in self.by]

    @cached_property
    def result_schema(self) -> pa.Schema:
        """Of the panes: by columns, `window`, one column per aggregate, `pane`; of rows also topic and partition.

        The window of rows is a struct of its first and its last offset, both of them in it.
        """
        channel = [self.schema.field(name) for name in self.record[:2]] if self.is_rows else []
        window = pa.field(WINDOW, ROWS_WINDOW_TYPE if self.is_rows else WINDOW_TYPE)
        made = [
            pa.field(name, function.result) for (name, _), function in zip(self.aggregates, self.functions, strict=True)
        ]
        return pa.schema([*self.key_fields, *channel, window, *made, pa.field(PANE, PANE_TYPE)])

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """Of the messages as they are held."""
        return self.schema if self.accumulating else self.schema.append(pa.field(ARRIVAL, pa.int64()))

    @cached_property
    def rejected_schema(self) -> pa.Schema:
        """Of the messages that are given back: as they came, with `reason`."""
        return pa.schema([*self.schema, pa.field(REASON, pa.string())])

    @property
    def clock_ms(self) -> tuple[int, ...]:
        """The intervals of panes by wall-clock time."""
        late_ms = self.late_every_ms if self.late_by is EveryBy.CLOCK else None
        early_ms = self.early.every_ms if self.early is not None and self.early.by_clock else None
        return tuple(ms for ms in (early_ms, late_ms) if ms is not None)

    @property
    def by_clock(self) -> bool:
        """Whether some panes are due by wall-clock time."""
        return bool(self.clock_ms)

    def told(self) -> list[str]:
        """Return what decides how state is laid out, line by line."""
        return [
            str(self.window if self.is_sessions or self.is_on_demand else self.grid()),
            str(self.is_rows), str(self.full), f"{self.early} {self.late_every_ms is None}",
            " ".join(self.by), self.time, " ".join(self.record), *(f"{one.name} {one.type}" for one in self.schema),
            *(f"{name} {spec.describe()}" for name, spec in self.aggregates),
            *([] if self.late_rows is None else ["late by rows"]),
            *([] if self.late_by is EveryBy.CLOCK else ["late by event time"]),
            *([OF_KEYS] if self.counts_keys else []),
            *([OF_SESSIONS] if self.is_sessions else []),
            *([str(self.window)] if self.is_session_rows else []),
            *([] if self.accumulating else ["what is new"]),
        ]  # fmt: skip

    @cached_property
    def digest(self) -> str:
        """A short text that differs when the state of one plan cannot be used by the other.

        Limits and intervals may change: they decide what happens next, not what the state means.
        """
        return hashlib.sha256("\n".join(self.told()).encode()).hexdigest()[:16]


def grid_of(window: GridWindow, first: int = 0) -> Grid:
    """Return windows on their axis; first: the first offset of a channel, where windows count offsets."""
    if isinstance(window, RowWindow):
        return Grid(window.size, window.step, first, first)
    if isinstance(window, OnDemandWindow):  # of their slices: a window may begin anywhere
        return Grid(window.size_ms, window.size_ms)
    if isinstance(window, HoppingWindow):
        return Grid(window.size_ms, window.step_ms, window.offset_ms)
    return Grid(window.size_ms, window.slide_ms, window.offset_ms)
