"""The computation of a window: an accumulator, to which values and other accumulators are added.

Rule: `combine` is associative and commutative with `create()` as its neutral value. If there is a `deduct`,
`deduct(combine(a, b), b)` equals `a`. Accumulators are values: no function changes its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _same(accumulator: object) -> object:
    return accumulator


@dataclass(frozen=True, slots=True)
class AccumulatorFunctions:
    """The functions: create, accumulate a value, combine two accumulators, optionally deduct an accumulator, finish."""

    create: Callable[[], object]
    accumulate: Callable[[object, object], object]
    combine: Callable[[object, object], object]
    deduct: Callable[[object, object], object] | None = None
    finish: Callable[[object], object] = _same
