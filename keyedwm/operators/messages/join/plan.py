"""The plan of a join of windows, checked when it is built, and the columns of its pairs.

Rule: both sides have the same windows, or one of them is unbounded. A pair is two messages of equal keys in one window.
With windows of rows, the windows have the same number, in partitions with the same number. The messages of an unbounded
side join every window of the other side.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import pyarrow as pa

from keyedwm.config.validation import MS, expect, expect_member, names, number_or_none, set_fields
from keyedwm.core.errors import OptionError, OutOfTurnError
from keyedwm.core.text import short_repr
from keyedwm.operators.aggregates.aggregate_function import column_type
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.join.exchange_side import can_be_key
from keyedwm.operators.join.plan import How, joined_columns, shared_keys
from keyedwm.operators.messages.arguments import check_record, check_retention
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.message_plan import MessageLayout, MessagePlan
from keyedwm.operators.messages.windows import CompletedBy
from keyedwm.operators.panes import Early, Late
from keyedwm.operators.plan_checks import check_length, check_time_column
from keyedwm.operators.results import HIDDEN_PREFIX, WINDOW

LEFT, RIGHT = 0, 1
# The sides whose unmatched messages are emitted alone.
OUTER = {How.INNER: (), How.LEFT: (LEFT,), How.RIGHT: (RIGHT,), How.FULL: (LEFT, RIGHT)}
TIMING = "timing"


class Keep(Enum):
    """The messages of a key and window that are joined."""

    ALL = "all"  # every pair, when its later message arrives
    FIRST = "first"  # the first of each side by event time, when the window is full
    LAST = "last"  # the last ones


class Emit(Enum):
    """When a session emits its rows."""

    FINAL = "final"  # once both sides have completed it
    PAIRED = "paired"  # once both sides have a message; both messages are then used up
    RUNNING = "running"  # with each message, for the session so far


@dataclass(frozen=True, kw_only=True)
class WindowJoinSide(MessageLayout):
    """One side: its name, the schema of its messages, and the columns to join on.

    unbounded: its messages join every window of the other side, within the retention.
    """

    name: str
    on: tuple[str, ...]
    unbounded: bool = False
    by: tuple[str, ...] = field(init=False, repr=False, compare=False)  # topic and partition are listed anyway

    def __post_init__(self) -> None:
        if not self.name:
            raise OptionError("a side of a join has no name, a text such as 'orders' is expected")
        expect("the name of a side", self.name, str, "a text such as 'orders'")
        expect(f"the schema of {self.name}", self.schema, pa.Schema, "a pyarrow.Schema")
        expect(f"unbounded of {self.name}", self.unbounded, bool, "True or False")
        set_fields(self, on=names(f"on of {self.name}", self.on))
        for name in (*self.on, self.time, *self.record):
            column_type(self.schema, name)
        for name in self.on:
            if not can_be_key(self.schema.field(name).type):
                raise OptionError(
                    f"the column {name!r} of {self.name} is of type {self.schema.field(name).type}, which cannot be "
                    "joined on: take its parts, or a text of it"
                )
        check_time_column(self.schema, self.time)
        check_record(self.schema, self.record)
        set_fields(self, by=tuple(name for name in self.on if name not in self.record[:2]))


@dataclass(frozen=True, kw_only=True)
class WindowJoinPlan(MessagePlan):
    """One join of windows.

    `full` says what completes a window of a side: its watermark, or its first message past the end. A message of an
    open window is joined at once, or with `early_every_ms` together with others, at this interval of the wall clock. A
    message of a complete window is joined at once, or with `late_every_ms` this long after the first waiting message.
    With `keep` FIRST or LAST each key and window has one row, when both sides have completed the window. A late message
    that changes the row emits it again. `how` LEFT, RIGHT or FULL: an unmatched message of that side is emitted alone,
    once both sides have completed its windows. `emit` PAIRED or RUNNING: sessions emit their rows with the messages, in
    order of event time within a call.
    """

    left: WindowJoinSide
    right: WindowJoinSide
    early_every_ms: int | None = None
    late_every_ms: int | None = None
    keep: Keep = Keep.ALL
    how: How = How.INNER
    emit: Emit = Emit.FINAL

    def __post_init__(self) -> None:
        for name, side in (("left", self.left), ("right", self.right)):
            expect(name, side, WindowJoinSide, "a WindowJoinSide(name=..., schema=..., on=...)")
        super().__post_init__()
        self._check_kinds()
        if self.left.name == self.right.name:
            raise OptionError(f"both sides of a join are called {self.left.name!r}; give one of them another name")
        if self.left.unbounded and self.right.unbounded:
            raise OptionError(
                f"both sides of a join, {self.left.name} and {self.right.name}, are unbounded: one of them needs the "
                "windows"
            )
        self._check_on()
        if self.is_sessions:
            self._check_sessions()
        if (refusal := self.kind.not_joined) is not None:
            raise OptionError(refusal)
        if not self.is_sessions:
            check_retention(self.retention, self.grid().size, is_rows=self.is_rows)
        if self.is_rows and self.late_every_ms is not None:
            raise OptionError("messages never come late to windows of rows: leave late_every_ms out")
        if self.how not in OUTER:
            raise OptionError(f"how={self.how.value!r}: windows are joined inner, left, right or full")
        if not self.is_sessions:
            self._check_by_window()
        self._check_result()

    @property
    def sides(self) -> tuple[WindowJoinSide, WindowJoinSide]:
        """Left and right."""
        return self.left, self.right

    @property
    def is_rows(self) -> bool:
        """Whether windows count offsets."""
        return self.kind.is_rows

    @property
    def is_sessions(self) -> bool:
        """Whether windows are sessions, of the messages of both sides together."""
        return isinstance(self.window, SessionWindow)

    @property
    def session(self) -> SessionWindow:
        """The window of a join of sessions."""
        if not isinstance(self.window, SessionWindow):
            raise OutOfTurnError(f"{self.window} is no session")
        return self.window

    @property
    def both_windowed(self) -> bool:
        """Whether no side is unbounded."""
        return not (self.left.unbounded or self.right.unbounded)

    @property
    def outer(self) -> tuple[int, ...]:
        """The sides whose unmatched messages are emitted alone."""
        return OUTER[self.how]

    @property
    def by_window(self) -> bool:
        """Whether rows are emitted once both sides have completed a window."""
        return self.keep is not Keep.ALL or bool(self.outer)

    @property
    def overlap(self) -> int:
        """How far the first window of a message may end before its last one."""
        grid = self.grid()
        return (grid.size - 1) // grid.step * grid.step

    @property
    def early(self) -> Early | None:
        """When waiting early messages are joined."""
        return None if self.early_every_ms is None else Early(every_ms=self.early_every_ms)

    @property
    def late(self) -> Late:
        """When waiting late messages are joined."""
        return Late(every_ms=self.late_every_ms)

    def number_of(self, name: str) -> int:
        """Return the number of the side with this name; raise OptionError if there is none."""
        names = [side.name for side in self.sides]
        if name not in names:
            raise OptionError(f"the join has no side {short_repr(name)}, it has {names[LEFT]} and {names[RIGHT]}")
        return names.index(name)

    def grid_of_side(self, number: int, first: int = 0) -> Grid:
        """Return the windows of a side; an unbounded side is stored in stretches as long as a window."""
        grid = self.grid(first)
        return Grid(grid.size, grid.size, grid.origin) if self.sides[number].unbounded else grid

    @property
    def columns_of_sides(self) -> list[WindowJoinSide]:
        """The columns of the messages of left and right, which are ordered as the windows need it."""
        layouts = [copy(side) for side in self.sides]
        for layout in layouts:
            set_fields(layout, is_rows=self.is_rows)
        return layouts

    @cached_property
    def shared(self) -> dict[str, str]:
        """The columns joined on with one name on both sides: name in the left side → name in the right side."""
        return shared_keys(self.left.on, self.right.on)

    @cached_property
    def columns(self) -> list[tuple[pa.Field, int, str]]:
        """The result's columns without `window` and `timing`: each with its side and its column there."""
        return joined_columns(self.sides, self.shared)

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of pairs: columns of both sides, `window` (the first that holds both), `timing` (early or late).

        The offsets of a window of rows are of the left side if both have windows.
        """
        return pa.schema([*(one for one, _, _ in self.columns), self.window_field, pa.field(TIMING, pa.string())])

    def _check_kinds(self) -> None:
        expect_member("keep", self.keep, Keep)
        expect_member("how", self.how, How)
        expect_member("emit", self.emit, Emit)
        for name in ("early", "late"):
            ms = number_or_none(f"the interval of {name} pairs", getattr(self, f"{name}_every_ms"), MS)
            if ms is not None and ms < 1:
                raise OptionError(f"{name} pairs every {ms} ms: the interval must be 1 ms or more")
            check_length(f"interval between {name} pairs", ms or 0)
            set_fields(self, **{f"{name}_every_ms": ms})

    def _check_sessions(self) -> None:
        for side in self.sides:
            for one in side.schema:
                if pa.types.is_dictionary(one.type) or pa.types.is_run_end_encoded(one.type):
                    raise OptionError(
                        f"{side.name}: the column {one.name!r} is of type {one.type}, and sessions are joined of plain "
                        f"columns: cast it to {one.type.value_type}"
                    )
        check_retention(self.retention, self.session.gap_ms, is_rows=False, called="gap")
        if self.full is CompletedBy.MESSAGE or not self.both_windowed or self.by_clock:
            raise OptionError(
                "sessions of both sides together are joined when the watermark has completed them, and late messages "
                "at once: leave full='message', unbounded sides and intervals out"
            )
        if self.emit is Emit.PAIRED and self.outer:
            raise OptionError(
                f"emit='paired' gives rows of both sides alone: how={self.how.value!r} goes with 'final' or 'running'"
            )

    def _check_by_window(self) -> None:
        if self.emit is not Emit.FINAL:
            raise OptionError(
                f"emit={self.emit.value!r} is for sessions: pairs of other windows come at once, or with keep and how "
                "when a window is full"
            )
        if self.by_window and (self.is_rows or not self.both_windowed or self.by_clock):
            setting = f"how={self.how.value!r}" if self.keep is Keep.ALL else f"keep={self.keep.value!r}"
            raise OptionError(
                f"{setting} gives rows when a window of time is full on both sides: it goes with no windows of rows, "
                "no unbounded side and no interval"
            )

    def _check_on(self) -> None:
        if len(self.left.on) != len(self.right.on):
            raise OptionError(
                f"{self.left.name} is joined on {len(self.left.on)} columns and {self.right.name} on "
                f"{len(self.right.on)}, as many are expected on both sides"
            )
        for one, other in zip(self.left.on, self.right.on, strict=True):
            kinds = self.left.schema.field(one).type, self.right.schema.field(other).type
            if kinds[LEFT] != kinds[RIGHT]:
                raise OptionError(
                    f"the column {one!r} of {self.left.name} is of type {kinds[LEFT]} and {other!r} of "
                    f"{self.right.name} of {kinds[RIGHT]}: cast one of them"
                )

    def _check_result(self) -> None:
        names = [one.name.lower() for one, _, _ in self.columns]
        for name in names:
            if name in (WINDOW, TIMING) or name.startswith(HIDDEN_PREFIX):
                raise OptionError(
                    f"a column of a pair cannot be called {name!r}: {WINDOW}, {TIMING} and names that begin with "
                    f"{HIDDEN_PREFIX} are taken; rename it"
                )
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise OptionError(f"a pair would have two columns called {doubled[0]!r}; name one of them differently")
