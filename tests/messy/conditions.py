"""Random conditions, as text for `where=` and `condition=`, and as a function of a row in plain Python.

Rule: null is unknown; NaN is equal to itself and above every number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.messy.kinds import NAN

if TYPE_CHECKING:
    from tests.messy.feed import Feed, Row

Truth = bool | None
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other, "==": lambda one, other: one == other,
    "<>": lambda one, other: one != other, "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other, "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other, ">=": lambda one, other: one >= other,
}  # fmt: skip
_PLAIN = {
    "int8",
    "int16",
    "int32",
    "small int64",
    "float32",
    "float64",
    "mild float64",
    "decimal(5,2)",
    "decimal(18,4)",
}


@dataclass(frozen=True)
class Where:
    text: str
    holds: Callable[[Row], Truth]


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def random_where(rng: random.Random, feed: Feed, depth: int = 2) -> Where:
    """A condition that names one column at least."""
    if not depth or rng.random() < 0.4:
        return _leaf(rng, feed)
    one, other = random_where(rng, feed, depth - 1), random_where(rng, feed, depth - 1)
    kind = rng.choice(["AND", "OR", "NOT"])
    if kind == "NOT":
        return Where(f"NOT ({one.text})", lambda row: _not(one.holds(row)))
    join = _and if kind == "AND" else _or
    return Where(f"({one.text}) {kind} ({other.text})", lambda row: join(one.holds(row), other.holds(row)))


def _not(one: Truth) -> Truth:
    return None if one is None else not one


def _and(one: Truth, other: Truth) -> Truth:
    return False if one is False or other is False else None if one is None or other is None else True


def _or(one: Truth, other: Truth) -> Truth:
    return True if one is True or other is True else None if one is None or other is None else False


def _leaf(rng: random.Random, feed: Feed) -> Where:
    at = rng.randrange(len(feed.columns))
    column = feed.columns[at]
    name, kind = quoted(column.name), column.kind
    if (kind.name not in _PLAIN and not kind.name.endswith("text")) or rng.random() < 0.2:
        if rng.random() < 0.5:
            return Where(f"{name} IS NULL", lambda row: row.values[at] is None)
        return Where(f"{name} IS NOT NULL", lambda row: row.values[at] is not None)
    sign = rng.choice(list(_SIGNS))
    same = [number for number, one in enumerate(feed.columns) if one.kind.type == kind.type and one.kind.name in _PLAIN]
    if kind.name in _PLAIN and rng.random() < 0.3:
        other = rng.choice(same)
        text = f"{name} {sign} {quoted(feed.columns[other].name)}"
        return Where(text, lambda row: _compared(sign, feed.value(row, at), feed.value(row, other)))
    if kind.name.endswith("text"):
        word = rng.choice(["", "a", "b", "it''s", "é"])
        return Where(
            f"{name} {sign} '{word}'",
            lambda row: _compared(sign, feed.value(row, at), word.replace("''", "'"), text=True),
        )
    low = rng.choice([0, 1, -1, 3])
    if rng.random() < 0.3:
        high = low + 2
        return Where(
            f"{name} BETWEEN {low} AND {high}",
            lambda row: _and(_compared(">=", feed.value(row, at), low), _compared("<=", feed.value(row, at), high)),
        )
    return Where(f"{name} {sign} {low}", lambda row: _compared(sign, feed.value(row, at), low))


def _compared(sign: str, one: Any, other: Any, *, text: bool = False) -> Truth:
    if one is None or other is None:
        return None
    if text:
        return _SIGNS[sign](one.encode(), other.encode())
    return _SIGNS[sign](*((1, 0) if value == NAN else (0, value) for value in (one, other)))
