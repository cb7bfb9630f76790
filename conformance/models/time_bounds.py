"""What a join may forget, and how far its output watermarks reach: time bounds between the two sides' columns.

Rule: `postpone[in][out] = c` stands for the bound `out >= in - c`. A watermark T of key `in` raises the forget limit of
`out` to T - c: the other side sends nothing that could match a row below it. A key's output watermark is the lower of
its limit and its last received watermark, and never goes back, restarts included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from keyedwm.core.errors import OptionError, RegressionError
from keyedwm.core.watermark import Guarantee, Watermark

Postpone = Mapping[int, Mapping[int, int]]
_KIND = {">=": ">=", ">": ">=", "<=": "<=", "<": "<=", "=": "="}


def bounds_of(
    operator: str, coefficients: Mapping[int, int], constant_ms: int, watermarked: Collection[int]
) -> dict[int, dict[int, int]]:
    """The bounds in one comparison `sum of coefficient * column + constant OPERATOR 0`.

    Only differences of two watermarked columns bound anything; strict comparisons count as the others. Raises
    OptionError for an operator that is none of >= > <= < =.
    """
    if operator not in _KIND:
        raise OptionError(f"a join condition compares with {operator!r}, it must be one of {', '.join(_KIND)}")
    columns = {column: factor for column, factor in coefficients.items() if factor}
    if len(columns) != 2 or sorted(columns.values()) != [-1, 1] or not set(columns) <= set(watermarked):
        return {}
    (plus,) = (column for column, factor in columns.items() if factor == 1)
    (minus,) = (column for column, factor in columns.items() if factor == -1)
    at_least = {minus: {plus: constant_ms}}
    at_most = {plus: {minus: -constant_ms}}
    kind = _KIND[operator]
    if kind == "=":
        return {**at_least, **at_most}
    return at_least if kind == ">=" else at_most


def tightest(bounds: Iterable[Postpone]) -> dict[int, dict[int, int]]:
    """All bounds together: of several constants for one pair the smallest."""
    together: dict[int, dict[int, int]] = {}
    for bound in bounds:
        for key, of_key in bound.items():
            for other, constant_ms in of_key.items():
                key_bounds = together.setdefault(key, {})
                key_bounds[other] = min(constant_ms, key_bounds.get(other, constant_ms))
    return together


@dataclass(frozen=True, slots=True)
class LimitState:
    """Limits at rest, each by watermark key."""

    limit: Mapping[int, int] = field(default_factory=dict)
    received: Mapping[int, int] = field(default_factory=dict)
    emitted: Mapping[int, int] = field(default_factory=dict)


class Limits:
    """The forget limits and output watermarks of one join."""

    def __init__(
        self,
        postpone: Postpone,
        state: LimitState | None = None,
        *,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        state = state or LimitState()
        self._postpone = {key: dict(of_key) for key, of_key in postpone.items()}
        self._guarantee = guarantee
        self._limit = dict(state.limit)
        self._received = dict(state.received)
        self._emitted = dict(state.emitted)

    def watermark(self, key: int, time_ms: int) -> list[Watermark]:
        """Take a watermark of one input key; the output watermarks that became true, in order of key."""
        before_ms = self._received.get(key)
        if before_ms is not None and time_ms <= before_ms:
            if self._guarantee is Guarantee.EXACTLY_ONCE:
                raise RegressionError(
                    f"the watermark of key {key} into the join went from {before_ms} ms to {time_ms} ms, "
                    f"it must increase"
                )
            return []
        self._received[key] = time_ms
        for other, constant_ms in self._postpone.get(key, {}).items():
            limit_ms = time_ms - constant_ms
            self._limit[other] = max(limit_ms, self._limit.get(other, limit_ms))
        output = []
        for out in sorted(self._limit.keys() & self._received.keys()):
            candidate_ms = min(self._limit[out], self._received[out])
            if out not in self._emitted or candidate_ms > self._emitted[out]:
                self._emitted[out] = candidate_ms
                output.append(Watermark(out, candidate_ms))
        return output

    def is_late(self, times_ms: Mapping[int, int]) -> bool:
        """Whether a row (its time by watermark key) stands below a received watermark of its own side."""
        return any(key in self._received and time_ms < self._received[key] for key, time_ms in times_ms.items())

    def is_forgotten(self, times_ms: Mapping[int, int]) -> bool:
        """Whether nothing to come can match the row."""
        return any(key in self._limit and time_ms < self._limit[key] for key, time_ms in times_ms.items())

    def limit_ms(self, key: int) -> int | None:
        """The forget limit of a key."""
        return self._limit.get(key)

    def snapshot(self) -> LimitState:
        """Everything the next step depends on."""
        return LimitState(dict(self._limit), dict(self._received), dict(self._emitted))
