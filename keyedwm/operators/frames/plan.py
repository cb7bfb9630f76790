"""The plan of an aggregation: windows, aggregates, panes and late rows, checked at construction.

Rule: a plan that can be built can run. Every mistake raises an OptionError of one sentence with the fix,
before any row is read; two plans with the same digest have the same state and the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.config.validation import MS, expect_member, number, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.core.lateness import horizon_ms
from keyedwm.core.text import span_text
from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction
from keyedwm.operators.aggregates.functions import Aggregate
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.kernels import frames_of
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.panes import Early, RepeatedTotals
from keyedwm.operators.plan_checks import (
    check_aggregation,
    check_gap_column,
    check_length,
    settle_spans,
)
from keyedwm.operators.results import CHANNEL, END, LAST, PANE, PANE_TYPE, ROWS, START, WINDOW, WINDOW_TYPE
from keyedwm.operators.state.description import described, typed
from keyedwm.operators.state.entries import accumulator_fields
from keyedwm.operators.state.formats_0_2 import described_by_code, digest_v1


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Windows `[end - size, end)`, one every `slide`; their ends stand at `offset + n * slide`."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        settle_spans(self, "slide")
        window = f"a window of {span_text(self.size_ms)} every {span_text(self.slide_ms)}"
        if self.size_ms < self.slide_ms:
            raise OptionError(
                f"{window}: the slide is longer than the size, which leaves times without a window; are they "
                "exchanged? If not, take hopping and aggregate(..., store=)"
            )
        if self.size_ms % self.slide_ms:
            nearest_ms = round(self.size_ms / self.slide_ms) * self.slide_ms
            raise OptionError(
                f"{window} is no whole number of slides: the slide must divide the size (a size of "
                f"{span_text(nearest_ms)} would do), or take hopping and aggregate(..., store=)"
            )

    @property
    def frames_each(self) -> int:
        """The number of frames of a window; a frame is as long as the slide, and one begins at each start."""
        return self.size_ms // self.slide_ms

    def frames_of(self, times: Ints) -> Ints:
        """Return the number of the frame of each time."""
        return frames_of(times, self.slide_ms, self.offset_ms)

    def starts_of(self, frames: Ints) -> Ints:
        """Return when frames begin."""
        return self.offset_ms + frames * self.slide_ms

    def frame_of(self, time_ms: int) -> int:
        """Return the number of the frame of a time."""
        return (time_ms - self.offset_ms) // self.slide_ms

    def start_of(self, frame: int) -> int:
        """Return when a frame begins."""
        return self.offset_ms + frame * self.slide_ms

    def names_of(self, frames: Ints) -> Ints:
        """Return the names of frames in the state: their numbers."""
        return frames

    def frames_named(self, names: Ints) -> Ints:
        """Return the frames with these names."""
        return names


FrameWindow: TypeAlias = SlidingWindow | ZonedWindow


def tumbling(size_ms: int, offset_ms: int = 0) -> SlidingWindow:
    """Windows that meet end to end: the slide is the size."""
    return SlidingWindow(size_ms, size_ms, offset_ms)


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Intervals `[t, t + gap)` that merge when they overlap, and with MERGE also when they touch (rule 11)."""

    gap_ms: int
    touching: Touching = Touching.MERGE

    def __post_init__(self) -> None:
        set_fields(self, gap_ms=number("the gap of a session", self.gap_ms, MS))
        expect_member("touching", self.touching, Touching)
        if self.gap_ms < 1:
            raise OptionError(f"the gap of a session is {self.gap_ms} ms, it must be 1 or more")
        check_length("gap of a session", self.gap_ms)

    def horizon_ms(self, watermark_ms: int | None, lateness_ms: int = 0) -> int:
        """Return the horizon by which sessions have ended at a watermark; see `core/lateness.py`."""
        return horizon_ms(watermark_ms, lateness_ms, self.touching)


@dataclass(frozen=True, slots=True)
class RowGapWindow(SessionWindow):
    """Sessions in which each row has its own gap, a duration in `gap_column`; `gap_ms` is the shortest possible gap.

    As in Spark's `session_window` with a column, rows with a gap of null, 0 or less belong to no session.
    """

    gap_ms: int = 1
    touching: Touching = Touching.MERGE
    gap_column: str = ""


# The names of windows in descriptions.
_KINDS = {SlidingWindow: "sliding", ZonedWindow: "zoned", SessionWindow: "session", RowGapWindow: "row gaps"}


def window_of(description: Mapping[str, Any]) -> FrameWindow | SessionWindow:
    """Return the window of a plan's description."""
    settings = {name: value for name, value in description.items() if name != "kind"}
    if "touching" in settings:
        settings["touching"] = Touching(settings["touching"])
    return next(window for window, kind in _KINDS.items() if kind == description["kind"])(**settings)


@dataclass(frozen=True, kw_only=True)
class WindowPlan(OperatorSpec):
    """One aggregation. `schema` is the input's: `by` columns, `time` (timestamp, or int64 ms) and the columns used.

    With `accumulating` every pane of a window holds its whole total, else the total of the rows since the previous
    pane. `order` names columns that order rows of equal event time for first, last and collect (topic, partition,
    offset). `read_from` says where keys and event times are read, if their columns' names do not say it. `most_rows`:
    the most results that close in one batch of a bucket, and those that close together with the last of them; it may
    change at any time. `key_watermark`: keys have their own watermarks; the last column of `order` is then the place
    within a partition.
    """

    kind = "aggregate"
    schema: pa.Schema
    by: tuple[str, ...]
    window: FrameWindow | SessionWindow
    aggregates: tuple[tuple[str, AggregateSpec], ...]
    time: str = "event_time"
    order: tuple[str, ...] = ()
    late: LatePolicy = LatePolicy.DROP
    late_rule: LateRule = LateRule.WINDOW
    lateness_ms: int = 0
    early: Early | None = None
    accumulating: bool = True
    read_from: tuple[str, ...] = ()
    most_rows: int | None = None
    key_watermark: PerKey | None = None
    _digest: str = field(init=False, repr=False, compare=False)
    _earlier: tuple[str, ...] = field(init=False, repr=False, compare=False)
    functions: tuple[AggregateFunction, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        result_names = [name for name, _ in self.aggregates]
        check_aggregation(self.schema, by=self.by, time=self.time, order=self.order, aggregates=result_names)
        if isinstance(self.window, RowGapWindow):
            check_gap_column(self.schema, self.window.gap_column)
        self._check_late()
        if self.key_watermark is not None:
            self.key_watermark.check_plan(self.by, self.lateness_ms, self.most_rows)
            if isinstance(self.window, RowGapWindow) and self.key_watermark.idle_ms is not None:
                raise OptionError(
                    f"per_key: idle with a gap of each row ({self.window.gap_column!r}): how long a key has "
                    "sessions does not follow from its last row, so omit idle, or take one gap"
                )
        functions = tuple(spec.bind(self.schema, self.order) for _, spec in self.aggregates)
        object.__setattr__(self, "functions", functions)
        described = [spec.describe() for _, spec in self.aggregates]
        object.__setattr__(self, "_digest", self._digest_of(described))  # once, and the same in every process
        object.__setattr__(self, "_earlier", self._digests_by_code())

    @property
    def short_name(self) -> str:
        """The beginning of the name of an aggregate without a name."""
        return "session" if self.is_session else "window"

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """The count of rows without a gap, if each row has its own."""
        return ("no_gap_rows",) if isinstance(self.window, RowGapWindow) else ()

    @property
    def is_session(self) -> bool:
        """Whether windows are sessions."""
        return isinstance(self.window, SessionWindow)

    @property
    def merges_touching(self) -> bool:
        """Whether an event exactly at a window's end still belongs to it."""
        return isinstance(self.window, SessionWindow) and self.window.touching is Touching.MERGE

    @property
    def has_panes(self) -> bool:
        """Whether a window can have several panes."""
        return self.early is not None or self.lateness_ms > 0

    @property
    def repeated_totals(self) -> RepeatedTotals | None:
        """Why results cannot be added up, None if they can."""
        return RepeatedTotals.EARLY_OR_LATE if self.has_panes and self.accumulating else None

    @property
    def by_clock(self) -> bool:
        """Whether the wall clock causes panes."""
        return self.early is not None and self.early.by_clock

    @property
    def owners(self) -> tuple[str, ...]:
        """The key columns by which keys are spread over buckets: those that own a watermark, by default all."""
        return self.by if self.key_watermark is None else self.key_watermark.by or self.by

    @property
    def owner_fields(self) -> list[pa.Field]:
        """The key columns that own a watermark, with their Arrow types."""
        return [self.schema.field(name) for name in self.owners]

    @property
    def channel(self) -> tuple[str, ...]:
        """The columns with the partition of a row, if a key's watermark follows its slowest partition."""
        return self.order[:-1] if self.key_watermark is not None and self.key_watermark.slowest else ()

    @property
    def row_by_row(self) -> bool:
        """Whether the lateness of rows is decided one by one, so that stage one combines none."""
        return self.key_watermark is not None and self.late_rule is LateRule.EVENT

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The input columns that are used, each once."""
        names = [
            *self.by,
            self.time,
            *self.order,
            *([self.window.gap_column] if isinstance(self.window, RowGapWindow) else []),
            *(name for _, spec in self.aggregates for name in spec.inputs(self.schema.names)),
        ]
        return tuple(dict.fromkeys(names))

    @cached_property
    def partial_schema(self) -> pa.Schema:
        """The columns between the two stages: key columns, start (and end, for sessions), rows, accumulators.

        With the late rule EVENT also the event time of the last row, which decides whether a partial is late.
        Watermarks of keys rise by this time. If they follow the slowest partition, there is also a number for the
        partition.
        """
        has_last = self.late_rule is LateRule.EVENT or self.key_watermark is not None
        times = [START, *([END] if self.is_session else []), *([LAST] if has_last else [])]
        times += [CHANNEL] if self.channel else []
        return pa.schema(
            [
                *self.key_fields,
                *(pa.field(name, pa.int64()) for name in times),
                pa.field(ROWS, pa.int64()),
                *self.accumulator_fields,
            ]
        )

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns that an operator emits: key columns, `window`, one column per aggregate, `pane`."""
        values = [
            pa.field(name, function.result) for (name, _), function in zip(self.aggregates, self.functions, strict=True)
        ]
        return pa.schema([*self.key_fields, pa.field(WINDOW, WINDOW_TYPE), *values, pa.field(PANE, PANE_TYPE)])

    @property
    def key_fields(self) -> list[pa.Field]:
        """The key columns."""
        return [pa.field(name, self.schema.field(name).type) for name in self.by]

    @property
    def order_fields(self) -> list[pa.Field]:
        """The columns that order rows of equal event time."""
        return [self.schema.field(name) for name in self.order]

    @property
    def accumulator_fields(self) -> list[pa.Field]:
        """The hidden columns that hold the accumulators, aggregate by aggregate."""
        return accumulator_fields(self.functions)

    def trimmed(self) -> WindowPlan:
        """Return the plan without order columns that decide nothing, which need not be read."""
        is_used = bool(self.channel) or any(getattr(function, "order", ()) for function in self.functions)
        return self if is_used else replace(self, order=())

    def digest(self) -> str:
        """Return the digest, which was computed when the plan was built."""
        return self._digest

    @property
    def earlier_digests(self) -> tuple[str, ...]:
        """The digest of the plan in keyedwm 0.2.0, if the byte-code of a user's functions was part of it."""
        return self._earlier

    def description(self) -> dict[str, Any]:
        """Return the plan's description: it decides the layout of state, and `rescale` compares it with another plan's.

        aggregates: name, description, and the accumulator's columns with their types, in order.
        """
        return {
            "kind": self.kind,
            "window": {"kind": _KINDS[type(self.window)], **described(self.window)},
            **{name: described(getattr(self, name)) for name in ("late_rule", "lateness_ms", "accumulating", "early")},
            "by": typed(self.key_fields),
            "read_from": list(self.read_from),
            "aggregates": [
                [name, spec.describe(), typed(function.fields)]
                for (name, spec), function in zip(self.aggregates, self.functions, strict=True)
            ],
            **({} if self.key_watermark is None else {"key_watermark": described(self.key_watermark)}),
        }

    def _digests_by_code(self) -> tuple[str, ...]:
        """Return the digest of this plan in keyedwm 0.2.0, if the code of a user's functions was part of it."""
        if not any(isinstance(spec, Aggregate) for _, spec in self.aggregates):
            return ()
        try:
            return (self._digest_of([described_by_code(spec) for _, spec in self.aggregates]),)
        except ValueError:  # 0.2.0 rejected such functions, so there is no state of them
            return ()

    def _digest_of(self, texts: Sequence[str]) -> str:
        return digest_v1(self.description(), texts, self.partial_schema)

    def _check_late(self) -> None:
        if self.lateness_ms < 0:
            raise OptionError(f"the allowed lateness is {self.lateness_ms} ms, it must be 0 or more")
        check_length("allowed lateness", self.lateness_ms)
        if self.lateness_ms and self.late_rule is not LateRule.WINDOW:
            raise OptionError(
                f"an allowed lateness of {self.lateness_ms} ms needs the late rule 'window', "
                f"not {self.late_rule.value!r}: the other rules keep no closed window"
            )
        if self.late_rule is LateRule.FRAME and self.is_session:
            raise OptionError("sessions have no frames: their late rule must be 'window' or 'event', not 'frame'")
