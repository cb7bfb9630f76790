"""The plan of a join, checked when it is built, and the columns of its rows.

Rule: a plan that can be built can run; two plans with the same digest have the same state and the same results. Time
axes are numbered, the left side's first: that number is also the axis's watermark key in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import CONTROL, EVENT_TIME, WATERMARK
from keyedwm.core.watermark import MAX_KEY
from keyedwm.core.window_rules import LatePolicy
from keyedwm.expressions.condition import Condition
from keyedwm.operators.join.bounds import Bound, TimeBounds
from keyedwm.operators.join.exchange_side import HASH, ExchangeSide, can_be_key, hash_is_key
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.state.description import typed

LEFT, RIGHT = 0, 1
LATE = "late"
TIMESTAMP = pa.timestamp("us", "UTC")
_MILLIS = pa.int64()


class How(Enum):
    """The rows that the join emits: matching pairs, and unmatched rows of the named sides."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    LEFT_SEMI = "left_semi"
    LEFT_ANTI = "left_anti"


# Spark's other names for them.
HOW_INSTEAD = {
    "outer": "full", "full_outer": "full", "fullouter": "full", "left_outer": "left", "leftouter": "left",
    "right_outer": "right", "rightouter": "right", "semi": "left_semi", "leftsemi": "left_semi",
    "anti": "left_anti", "leftanti": "left_anti",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """A time axis of a side: its name in the result, and its watermark key in the side's own rows."""

    name: str
    key: int


@dataclass(frozen=True, slots=True)
class JoinInputSpec:
    """One side: its name, its columns without event times, which of them are keys, and its time axes.

    read_from: which field each column is read from, if its name does not say it.
    """

    name: str
    schema: pa.Schema
    on: tuple[str, ...]
    axes: tuple[Axis, ...]
    read_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.axes:
            raise OptionError(f"join: the {self.name} side has no time axis, at least one is needed")
        for name in self.on:
            if name not in self.schema.names:
                raise OptionError(
                    f"join: the {self.name} side has no column {name!r} to join on, it has "
                    f"{', '.join(self.schema.names)}"
                )
            if not can_be_key(self.schema.field(name).type):
                raise OptionError(
                    f"join: the column {name!r} of the {self.name} side is of type {self.schema.field(name).type}, "
                    f"which cannot be joined on: take its parts, or a text of it"
                )

    @property
    def on_types(self) -> list[pa.DataType]:
        """The types of the key columns."""
        return [self.schema.field(name).type for name in self.on]

    @property
    def times(self) -> list[str]:
        """The hidden columns with the event times in ms, by axis."""
        return [f"{HIDDEN_PREFIX}time{number}" for number in range(len(self.axes))]

    @property
    def shipped(self) -> ExchangeSide:
        """The side as stage one needs it."""
        times = [pa.field(name, _MILLIS) for name in self.times]
        return ExchangeSide(schema=pa.schema([*self.schema, *times]), by=self.on, times=self.times)

    @property
    def exchange_schema(self) -> pa.Schema:
        """The columns of the operator's input rows: the side's columns, the hash of its keys, event times in ms.

        A null hash stands for a key with a null, which equals nothing.
        """
        return pa.schema([*self.schema, pa.field(HASH, pa.int64()), *(pa.field(name, _MILLIS) for name in self.times)])


def shared_keys(left: Sequence[str], right: Sequence[str]) -> dict[str, str]:
    """Return the key columns with one name on both sides: name in the left side → name in the right side."""
    return {one: other for one, other in zip(left, right, strict=True) if one.lower() == other.lower()}


def joined_columns(sides: Sequence[Any], shared: Mapping[str, str]) -> list[tuple[pa.Field, int, str]]:
    """Return the columns of both sides together, each with the side and the column that it comes from.

    A key column that has one name on both sides is one column; other columns with equal names get the name of their
    side as a suffix. sides: each with a name and a schema. shared: see `shared_keys`.
    """
    shared_names = {name.lower() for name in shared}
    left, right = ({name.lower() for name in side.schema.names} - shared_names for side in sides)
    columns = [(sides[LEFT].schema.field(name), LEFT, name) for name in shared]
    for number, side in enumerate(sides):
        for one in side.schema:
            if one.name.lower() not in shared_names:
                name = f"{one.name}_{side.name}" if one.name.lower() in left & right else one.name
                columns.append((one.with_name(name), number, one.name))
    return columns


@dataclass(frozen=True, kw_only=True)
class JoinPlan(OperatorSpec):
    """One join. condition: the text of a further comparison, or None.

    latest: the right side's rows are changes, and each left row is joined with the latest change at or before it.
    """

    left: JoinInputSpec
    right: JoinInputSpec
    bounds: tuple[Bound, ...]
    how: How = How.INNER
    condition: str | None = None
    late: LatePolicy = LatePolicy.DROP
    latest: bool = False
    time: TimeBounds = field(init=False, repr=False, compare=False)
    matches: Condition | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_axes()
        self._check_on()
        left, right = ([axis.name for axis in side.axes] for side in self.sides)
        object.__setattr__(self, "time", TimeBounds(left, right, self.bounds))
        self._check_result()
        condition = None
        if self.condition is not None:
            condition = Condition.parse(self.condition, *((side.name, side.schema) for side in self.sides))
        object.__setattr__(self, "matches", condition)

    @property
    def sides(self) -> tuple[JoinInputSpec, JoinInputSpec]:
        """Left and right."""
        return self.left, self.right

    @property
    def inputs(self) -> list[ExchangeSide]:
        """The inputs of stage one, left and right."""
        return [side.shipped for side in self.sides]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, by their number."""
        return (*self.left.axes, *self.right.axes)

    def first_axis(self, side: int) -> int:
        """Return the number of the side's first axis."""
        return len(self.left.axes) if side == RIGHT else 0

    @property
    def pairs_leave(self) -> bool:
        """Whether the join emits rows of both sides together."""
        return self.how not in (How.LEFT_SEMI, How.LEFT_ANTI)

    def pads(self, side: int) -> bool:
        """Return whether unmatched rows of this side are emitted when they are forgotten."""
        return self.how in ((How.LEFT, How.FULL, How.LEFT_ANTI) if side == LEFT else (How.RIGHT, How.FULL))

    def counts_matches(self, side: int) -> bool:
        """Return whether it matters which rows of this side were matched."""
        return self.pads(side) or (side == LEFT and self.how is How.LEFT_SEMI)

    @property
    def exact_hash(self) -> bool:
        """Whether rows of equal hash always have equal keys."""
        return hash_is_key(self.left.on_types)

    @cached_property
    def result_axes(self) -> tuple[int, ...]:
        """The axes whose event times are in the result."""
        return tuple(range(len(self.axes))) if self.pairs_leave else tuple(range(len(self.left.axes)))

    @cached_property
    def passed_on(self) -> tuple[int, ...]:
        """The axes of the result whose watermarks are passed on: those that some bound points at.

        Rows can match a change for ever, so the changes' axis has no watermark.
        """
        if self.latest:
            return (0,)
        return tuple(axis for axis in self.result_axes if axis in self.time.limited)

    @cached_property
    def columns(self) -> list[tuple[pa.Field, str | None, str | None]]:
        """The result's columns without times: each with its column of the left and of the right side."""
        if not self.pairs_leave:
            return [(one, one.name, None) for one in self.left.schema]
        shared = shared_keys(self.left.on, self.right.on)
        return [
            (column, name, shared.get(name)) if side == LEFT else (column, None, name)
            for column, side, name in joined_columns(self.sides, shared)
        ]

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns that the operator emits: joined columns, `late` if late rows are emitted, and event times."""
        late = [pa.field(LATE, pa.bool_())] if self.late is LatePolicy.EMIT else []
        times = [pa.field(f"{EVENT_TIME}_{self.axes[axis].name}", TIMESTAMP) for axis in self.result_axes]
        fields = [pa.field(one.name, one.type) for one, _, _ in self.columns]
        return pa.schema([*fields, *late, *times])

    @property
    def watermark_columns(self) -> list[str]:
        """The result's watermark columns, by `passed_on`."""
        return [f"{WATERMARK}_{self.axes[axis].name}" for axis in self.passed_on]

    @property
    def kind(self) -> str:
        """The operator's name as users know it."""
        return "join_latest" if self.latest else "join"

    @property
    def short_name(self) -> str:
        """The prefix of the generated name, if the user gave none."""
        return "latest" if self.latest else "join"

    @property
    def time_columns(self) -> tuple[str, ...]:
        """None to add: `result_schema` already has the event times."""
        return ()

    @property
    def watermark_axes(self) -> dict[str, int]:
        """The watermark columns of results, and the axis of each."""
        return dict(zip(self.watermark_columns, self.passed_on, strict=True))

    @cached_property
    def _description(self) -> dict[str, Any]:
        axes = [(self.left.axes[one.left].name, self.right.axes[one.right].name) for one in self.bounds]
        return {
            "kind": self.kind, "how": self.how.value, "condition": self.condition, "late": self.late.value,
            "bounds": [
                f"({left}, {right}): from {bound.low_ms} to {bound.high_ms} ms"
                for (left, right), bound in zip(axes, self.bounds, strict=True)
            ],
            "sides": [
                {
                    "name": side.name, "on": list(side.on), "axes": [[axis.name, axis.key] for axis in side.axes],
                    "schema": typed(side.schema), **({"read_from": list(side.read_from)} if side.read_from else {}),
                }
                for side in self.sides
            ],
        }  # fmt: skip

    def description(self) -> dict[str, Any]:
        """Return the plan's description, which decides whether a state belongs to it."""
        return self._description

    def _check_axes(self) -> None:
        names = [axis.name for axis in self.axes]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise OptionError(
                f"join: both sides have a time axis called {doubled[0]!r}, and each axis of the result needs its own "
                f"name: rename event_time_{doubled[0]} and watermark_{doubled[0]} of one side, or give other "
                f"names=(..., ...) to sides whose axis has no name"
            )
        if len(names) > MAX_KEY:
            raise OptionError(f"join: the sides have {len(names)} time axes, {MAX_KEY} is the most that rows can carry")
        for side in self.sides:
            keys = [axis.key for axis in side.axes]
            if len(set(keys)) < len(keys):
                raise OptionError(f"join: two time axes of the {side.name} side have one watermark key: {keys}")

    def _check_on(self) -> None:
        for one, other, kind, other_kind in zip(
            self.left.on, self.right.on, self.left.on_types, self.right.on_types, strict=True
        ):
            if kind != other_kind:
                raise OptionError(
                    f"join: {one!r} of the {self.left.name} side is of type {kind} and {other!r} of the "
                    f"{self.right.name} side of type {other_kind}: cast one of them, so that equal keys are equal "
                    "values"
                )

    def _check_result(self) -> None:
        names = [name.lower() for name in (*self.result_schema.names, *self.watermark_columns)]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise OptionError(f"join: the result would have two columns called {doubled[0]!r}: rename one before")
        columns = [name for side in self.sides for name in side.schema.names]
        reserved = sorted({CONTROL} & set(names)) or [
            name for name in (*names, *columns) if name.startswith(HIDDEN_PREFIX)
        ]
        if reserved:
            raise OptionError(
                f"join: a column cannot be called {reserved[0]!r}: {CONTROL} and names that begin with "
                f"{HIDDEN_PREFIX} are taken; rename it before"
            )
