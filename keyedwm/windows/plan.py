"""What the user asks for: windows, aggregates, panes and late rows, checked where they are written down.

Rule: a plan that can be built can run. Everything wrong with it is told by an OptionError of one sentence with the fix,
before any row is read; two plans with the same digest have the same state and the same results.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.late import LateRule
from keyedwm.core.sessions import Touching
from keyedwm.windows.aggregates import AggregateSpec
from keyedwm.windows.kinds import Kind, column_type

WINDOW, PANE, CONTROL = "window", "pane", "control"
HIDDEN = "__"
START, END, LAST, ROWS = "__start", "__end", "__last", "__rows"
_MILLIS, _MICROS = pa.int64(), pa.timestamp("us", tz="UTC")
WINDOW_TYPE = pa.struct([("start", _MICROS), ("end", _MICROS)])
FARTHEST_MS = 2**52  # 140,000 years; a result's timestamp in microseconds must hold the window's end
PANE_TYPE = pa.struct([("timing", pa.string()), ("index", pa.int32()), ("last", pa.bool_())])


class Timing(Enum):
    """Why a pane came."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    EXPIRED = "expired"  # late rows that no window takes any more, shown by `late="emit"`


class LatePolicy(Enum):
    """What becomes of late rows."""

    DROP = "drop"
    EMIT = "emit"
    FAIL = "fail"


def _check_length(what: str, ms: int) -> None:
    if ms > FARTHEST_MS:
        raise OptionError(f"the {what} is {ms} ms, it must be {FARTHEST_MS} ms (140,000 years) or less")


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows `[end - size, end)`, one every `slide`; their ends stand at `offset + n * slide`."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.slide_ms < 1:
            raise OptionError(f"the slide of a window is {self.slide_ms} ms, it must be 1 or more")
        _check_length("size of a window", self.size_ms)
        if self.size_ms < self.slide_ms or self.size_ms % self.slide_ms:
            nearest_ms = max(1, round(self.size_ms / self.slide_ms)) * self.slide_ms
            raise OptionError(
                f"a window of {self.size_ms} ms every {self.slide_ms} ms is no whole number of frames: "
                f"the slide must divide the size (a size of {nearest_ms} ms would do)"
            )
        if not 0 <= self.offset_ms < self.slide_ms:
            raise OptionError(
                f"the offset of a window is {self.offset_ms} ms, it must be 0 or more and below {self.slide_ms} ms"
            )


def tumbling(size_ms: int, offset_ms: int = 0) -> Sliding:
    """Windows that meet end to end: the slide is the size."""
    return Sliding(size_ms, size_ms, offset_ms)


@dataclass(frozen=True, slots=True)
class Session:
    """Intervals `[t, t + gap)` that merge when they overlap, and with MERGE also when they touch (DESIGN rule 11)."""

    gap_ms: int
    touching: Touching = Touching.MERGE

    def __post_init__(self) -> None:
        if self.gap_ms < 1:
            raise OptionError(f"the gap of a session is {self.gap_ms} ms, it must be 1 or more")
        _check_length("gap of a session", self.gap_ms)


@dataclass(frozen=True, slots=True)
class Early:
    """Panes before the watermark: after so many new rows of a window, after so much wall-clock time, or both."""

    rows: int | None = None
    every_ms: int | None = None

    def __post_init__(self) -> None:
        if self.rows is None and self.every_ms is None:
            raise OptionError("early panes need a number of rows, an interval, or both")
        for name, value in (("number of rows", self.rows), ("interval in ms", self.every_ms)):
            if value is not None and value < 1:
                raise OptionError(f"the {name} between early panes is {value}, it must be 1 or more")
        _check_length("interval between early panes", self.every_ms or 0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One aggregation. `schema` is the input's: `by` columns, `time` (timestamp, or int64 ms) and the columns used.

    With `accumulating` every pane of a window holds its whole total, else only what came since the pane before.
    `order` names columns that order rows of equal event time for first, last and collect (topic, partition, offset).
    """

    schema: pa.Schema
    by: tuple[str, ...]
    window: Sliding | Session
    aggregates: tuple[tuple[str, AggregateSpec], ...]
    time: str = "event_time"
    order: tuple[str, ...] = ()
    late: LatePolicy = LatePolicy.DROP
    late_rule: LateRule = LateRule.WINDOW
    lateness_ms: int = 0
    early: Early | None = None
    accumulating: bool = True
    kinds: tuple[Kind, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_names()
        self._check_time()
        self._check_late()
        kinds = tuple(spec.bind(self.schema, self.order) for _, spec in self.aggregates)
        object.__setattr__(self, "kinds", kinds)

    @property
    def is_session(self) -> bool:
        """Whether windows are sessions."""
        return isinstance(self.window, Session)

    @property
    def has_panes(self) -> bool:
        """Whether a window can have several panes."""
        return self.early is not None or self.lateness_ms > 0

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The input columns that are used, each once."""
        used = [*self.by, self.time, *self.order, *(spec.column for _, spec in self.aggregates if spec.column)]
        return tuple(dict.fromkeys(used))

    @cached_property
    def partial_schema(self) -> pa.Schema:
        """Of the rows between the two stages: by columns, start (and end, for sessions), rows, accumulators.

        With the late rule EVENT also the event time of the last row: a partial is late by that one.
        """
        times = [START, *([END] if self.is_session else []), *([LAST] if self.late_rule is LateRule.EVENT else [])]
        return pa.schema(
            [
                *self.key_fields,
                *(pa.field(name, _MILLIS) for name in times),
                pa.field(ROWS, pa.int64()),
                *self.accumulator_fields,
            ]
        )

    @cached_property
    def result_schema(self) -> pa.Schema:
        """Of what an operator emits: by columns, `window`, one column per aggregate, `pane`."""
        values = [pa.field(name, kind.result) for (name, _), kind in zip(self.aggregates, self.kinds, strict=True)]
        return pa.schema([*self.key_fields, pa.field(WINDOW, WINDOW_TYPE), *values, pa.field(PANE, PANE_TYPE)])

    @property
    def key_fields(self) -> list[pa.Field]:
        """The by columns."""
        return [pa.field(name, self.schema.field(name).type) for name in self.by]

    @property
    def order_fields(self) -> list[pa.Field]:
        """The columns that order rows of equal event time."""
        return [self.schema.field(name) for name in self.order]

    def type_of(self, name: str) -> pa.DataType:
        """The type of an input column."""
        return self.schema.field(name).type

    @property
    def accumulator_fields(self) -> list[pa.Field]:
        """The hidden columns that hold the accumulators, aggregate by aggregate."""
        return [
            inner.with_name(f"{HIDDEN}{number}_{inner.name}")
            for number, kind in enumerate(self.kinds)
            for inner in kind.fields
        ]

    def trimmed(self) -> Plan:
        """Without order columns that decide nothing, which need not be read."""
        return self if any(getattr(kind, "order", ()) for kind in self.kinds) else replace(self, order=())

    def digest(self) -> str:
        """A short text that differs when state of one plan cannot serve the other."""
        told = [
            str(self.window),
            f"{self.late_rule} {self.lateness_ms} {self.accumulating} {self.early}",
            *(f"{name} {spec.describe()}" for name, spec in self.aggregates),
            *(f"{inner.name} {inner.type}" for inner in self.partial_schema),
        ]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]

    def _check_names(self) -> None:
        if not self.aggregates:
            raise OptionError("an aggregation needs at least one aggregate, for example count()")
        outputs = [*self.by, *(name for name, _ in self.aggregates)]
        for name in outputs:
            if name.lower() in (WINDOW, PANE, CONTROL) or name.startswith(HIDDEN):
                raise OptionError(
                    f"a result column cannot be called {name!r}: {WINDOW}, {PANE}, {CONTROL} and names that begin with "
                    f"{HIDDEN} are taken; give it another name"
                )
        lower = [name.lower() for name in outputs]  # Spark does not tell names of another case apart
        doubled = sorted({name for name in outputs if lower.count(name.lower()) > 1})
        if doubled:
            raise OptionError(f"the result would have two columns called {doubled[0]!r}; name one of them differently")
        for name in (*self.by, self.time, *self.order):
            column_type(self.schema, name)
        for name in self.by:
            if pa.types.is_nested(self.type_of(name)):
                raise OptionError(
                    f"the key column {name!r} is of type {self.type_of(name)}, which cannot be a key: take its parts, "
                    f"or a text of it"
                )

    def _check_time(self) -> None:
        found = column_type(self.schema, self.time)
        if not (pa.types.is_timestamp(found) or pa.types.is_int64(found)):
            raise OptionError(
                f"the event-time column {self.time!r} is of type {found}, it must be a timestamp or int64 milliseconds"
            )

    def _check_late(self) -> None:
        if self.lateness_ms < 0:
            raise OptionError(f"the allowed lateness is {self.lateness_ms} ms, it must be 0 or more")
        _check_length("allowed lateness", self.lateness_ms)
        if self.lateness_ms and self.late_rule is not LateRule.WINDOW:
            raise OptionError(
                f"an allowed lateness of {self.lateness_ms} ms needs the late rule 'window', "
                f"not {self.late_rule.value!r}: the other rules keep no closed window"
            )
        if self.late_rule is LateRule.FRAME and self.is_session:
            raise OptionError("sessions have no frames: their late rule must be 'window' or 'event', not 'frame'")
