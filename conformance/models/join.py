"""A stream-to-stream join with a watermark key per time column (inner, left, right). The scalar reference.

Rule: a late row is dropped, even by an outer join. A row is joined at once with what the other side holds, and held as
long as something to come can match it. An unmatched row of the outer side comes out padded when it is forgotten, or at
once if it cannot be held. Rows stand before the watermarks of the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from conformance.models.time_bounds import Limits, LimitState, Postpone
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.watermark import Guarantee, Watermark

Row = tuple


class Side(Enum):
    """Of a join."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig:
    """`left_keys` and `right_keys`: time column by watermark key. `outer`: the side that is padded, if any."""

    left_keys: Mapping[int, int]
    right_keys: Mapping[int, int]
    left_columns: int
    right_columns: int
    postpone: Postpone
    condition: Callable[[Row, Row], bool]
    outer: Side | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE

    def __post_init__(self) -> None:
        both = sorted(self.left_keys.keys() & self.right_keys.keys())
        if both:
            raise OptionError(f"watermark keys {both} belong to both sides of the join, each must belong to one")
        for one, other in ((self.left_keys, self.right_keys), (self.right_keys, self.left_keys)):
            if not any(out in other for key in one for out in self.postpone.get(key, {})):
                raise OptionError("the join condition bounds the time in one direction only, it must do so in both")


@dataclass(frozen=True, slots=True)
class JoinState:
    """A join at rest: (row, matched) of each side in order of arrival, and the limits."""

    left: tuple[tuple[Row, bool], ...] = ()
    right: tuple[tuple[Row, bool], ...] = ()
    limits: LimitState = field(default_factory=LimitState)


@dataclass(slots=True)
class _BufferedRow:
    row: Row
    matched: bool


class Join:
    """One operator instance."""

    def __init__(self, config: JoinConfig, state: JoinState | None = None) -> None:
        state = state or JoinState()
        self._config = config
        self._limits = Limits(config.postpone, state.limits, guarantee=config.guarantee)
        self._buffers = {
            Side.LEFT: [_BufferedRow(row, matched) for row, matched in state.left],
            Side.RIGHT: [_BufferedRow(row, matched) for row, matched in state.right],
        }

    def row(self, side: Side, row: Row) -> list[Row]:
        """Take a row; the joined and padded rows that became true."""
        times_ms = self._times(side, row)
        if self._limits.is_late(times_ms):
            return []
        own = _BufferedRow(row, matched=False)
        joined = []
        for match in self._buffers[Side.RIGHT if side is Side.LEFT else Side.LEFT]:
            left, right = (row, match.row) if side is Side.LEFT else (match.row, row)
            if self._config.condition(left, right):
                joined.append(left + right)
                own.matched = match.matched = True
        if not self._limits.is_forgotten(times_ms):
            self._buffers[side].append(own)
        elif self._config.outer is side and not own.matched:
            joined.append(self._padded(side, row))
        return joined

    def watermark(self, key: int, time_ms: int) -> list[Row | Watermark]:
        """Take a watermark of one side's key: forget rows, pad the unmatched, send watermarks on."""
        if key not in self._config.left_keys and key not in self._config.right_keys:
            raise InputError(f"a watermark of key {key} came into the join, the key belongs to neither side")
        watermarks = self._limits.watermark(key, time_ms)
        output: list[Row | Watermark] = []
        for side, buffer in self._buffers.items():
            remaining = []
            for one in buffer:
                if not self._limits.is_forgotten(self._times(side, one.row)):
                    remaining.append(one)
                elif self._config.outer is side and not one.matched:
                    output.append(self._padded(side, one.row))
            self._buffers[side] = remaining
        return output + list(watermarks)

    def limit_ms(self, key: int) -> int | None:
        """The forget limit of a key."""
        return self._limits.limit_ms(key)

    def snapshot(self) -> JoinState:
        """Everything the next step depends on."""
        left, right = (tuple((one.row, one.matched) for one in self._buffers[side]) for side in Side)
        return JoinState(left, right, self._limits.snapshot())

    def _times(self, side: Side, row: Row) -> dict[int, int]:
        keys = self._config.left_keys if side is Side.LEFT else self._config.right_keys
        return {key: row[column] for key, column in keys.items()}

    def _padded(self, side: Side, row: Row) -> Row:
        if side is Side.LEFT:
            return row + (None,) * self._config.right_columns
        return (None,) * self._config.left_columns + row
