"""The aggregates that the vectors name."""

from __future__ import annotations

from operator import add, sub, truediv

from keyedwm.core.aggregate import AccumulatorFunctions


def _zero() -> object:
    return 0


def _count(accumulator: object, _value: object) -> object:
    return add(accumulator, 1)


def _with(accumulator: object, value: object) -> object:
    return accumulator | {value}  # type: ignore[operator]


def _union(one: object, other: object) -> object:
    return one | other  # type: ignore[operator]


def _sorted(accumulator: object) -> object:
    return sorted(accumulator)  # type: ignore[call-overload]


def _none() -> object:
    return None


def _lower(one: object, other: object) -> object:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)  # type: ignore[call-overload]


def _higher(one: object, other: object) -> object:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)  # type: ignore[call-overload]


def _nothing() -> object:
    return (0, 0)


def _with_one(accumulator: object, value: object) -> object:
    return (add(accumulator[0], value), add(accumulator[1], 1))  # type: ignore[index]


def _both(one: object, other: object) -> object:
    return tuple(map(add, one, other))  # type: ignore[call-overload]


def _less(one: object, other: object) -> object:
    return tuple(map(sub, one, other))  # type: ignore[call-overload]


def _mean(accumulator: object) -> object:
    return truediv(*accumulator)  # type: ignore[misc]


def _with_last(accumulator: object, value: object) -> object:
    return (*accumulator, value)  # type: ignore[misc]


_AVG = AccumulatorFunctions(_nothing, _with_one, _both, _less, finish=_mean)
AGGREGATES = {
    "sum": AccumulatorFunctions(_zero, add, add, sub),
    "sum_nodeduct": AccumulatorFunctions(_zero, add, add),
    "count": AccumulatorFunctions(_zero, _count, add, sub),
    "min": AccumulatorFunctions(_none, _lower, _lower),
    "max": AccumulatorFunctions(_none, _higher, _higher),
    "avg": _AVG,
    "mean": _AVG,
    "list": AccumulatorFunctions(tuple, _with_last, add, finish=_sorted),
    "set": AccumulatorFunctions(frozenset, _with, _union, finish=_sorted),
}
