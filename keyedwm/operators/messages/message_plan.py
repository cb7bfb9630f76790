"""The parts that the plans of a store and of a window join share, and the columns of the messages of an input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.config.validation import expect, expect_member
from keyedwm.core.errors import OutOfTurnError
from keyedwm.core.rows import REASON
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.messages.arguments import check_gap
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import (
    AnyWindow,
    CompletedBy,
    HoppingWindow,
    RowWindow,
    WindowKind,
    kind_of,
)
from keyedwm.operators.panes import Early, EveryBy, Late
from keyedwm.operators.results import HIDDEN_PREFIX, WINDOW, WINDOW_TYPE, window_column

# An added column of a message, if panes hold only new messages: the number of its call.
ARRIVAL = f"{HIDDEN_PREFIX}arrival"
ROWS_WINDOW_TYPE = pa.struct([("first_offset", pa.int64()), ("last_offset", pa.int64())])

_Kind = TypeVar("_Kind", bound=WindowKind)


@dataclass(frozen=True, kw_only=True)
class MessageLayout:
    """The messages of one input: of a store, or of a side of a join.

    `topic`, `partition` and `offset` name the columns that identify messages, and order messages of equal event time.
    by: the columns of their keys. is_rows: whether messages are ordered by offset, not by event time.
    """

    schema: pa.Schema
    by: tuple[str, ...]
    time: str = "event_time"
    topic: str = "topic"
    partition: str = "partition"
    offset: str = "offset"
    is_rows: bool = field(init=False, repr=False, compare=False, default=False)

    @property
    def record(self) -> tuple[str, str, str]:
        """The columns that identify a message: topic, partition and offset."""
        return self.topic, self.partition, self.offset

    @cached_property
    def key_fields(self) -> list[pa.Field]:
        """The key columns."""
        return [pa.field(name, self.schema.field(name).type) for name in self.by]

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of held messages."""
        return self.schema

    @cached_property
    def rejected_schema(self) -> pa.Schema:
        """The columns of rejected messages: the input's columns, with `reason`."""
        return pa.schema([*self.schema, pa.field(REASON, pa.string())])


@dataclass(frozen=True, kw_only=True)
class MessagePlan(ABC):
    """Windows that keep their messages. `full` says what completes a window."""

    window: AnyWindow
    retention: Retention
    full: CompletedBy = CompletedBy.WATERMARK

    def __post_init__(self) -> None:
        expect("the window", self.window, (SlidingWindow, SessionWindow, WindowKind), "one such as tumbling(60_000)")
        check_gap(self.window)
        expect("the retention", self.retention, Retention, "one such as Retention(time_ms=3_600_000)")
        expect_member("full", self.full, CompletedBy)

    @property
    @abstractmethod
    def early(self) -> Early | None:
        """When messages of open windows are shown."""

    @property
    @abstractmethod
    def late(self) -> Late:
        """When late messages are shown."""

    @property
    @abstractmethod
    def result_schema(self) -> pa.Schema:
        """The columns of results."""

    @cached_property
    def kind(self) -> WindowKind:
        """The properties of the window's kind."""
        return kind_of(self.window)

    def kind_as(self, kind: type[_Kind]) -> _Kind:
        """Return the window, typed as this kind."""
        if not isinstance(self.kind, kind):
            raise OutOfTurnError(f"{self.window} is no {kind.__name__}")
        return self.kind

    def grid(self, first: int = 0) -> Grid:
        """Return the windows on their axis. first: the first offset of a channel, if windows count offsets."""
        return self.kind.grid(first) if isinstance(self.kind, RowWindow) else self.kind_as(HoppingWindow).grid()

    @property
    def window_field(self) -> pa.Field:
        """The column of windows; of rows it is a struct of the first and the last offset, both inclusive."""
        return pa.field(WINDOW, ROWS_WINDOW_TYPE if self.kind.is_rows else WINDOW_TYPE)

    def windows(self, starts: Ints, ends: Ints) -> pa.Array:
        """Return windows with these edges as a column of results."""
        if not self.kind.is_rows:
            return window_column(starts, ends)
        return pa.StructArray.from_arrays([pa.array(starts), pa.array(ends - 1)], fields=list(ROWS_WINDOW_TYPE))

    @property
    def wake_intervals_ms(self) -> tuple[int, ...]:
        """The intervals of results by wall-clock time."""
        early_ms = self.early.every_ms if self.early is not None and self.early.by_clock else None
        late_ms = self.late.every_ms if self.late.by is EveryBy.CLOCK else None
        return tuple(ms for ms in (early_ms, late_ms) if ms is not None)

    @property
    def by_clock(self) -> bool:
        """Whether some results are due by wall-clock time."""
        return bool(self.wake_intervals_ms)
