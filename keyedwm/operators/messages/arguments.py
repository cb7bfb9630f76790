"""Arguments of listings, validated before anything is read: ranges, and the values of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from keyedwm.config.validation import MS, number
from keyedwm.core.errors import OptionError
from keyedwm.core.text import shown

# A place on the axis (event time in ms, or offset), or an event time and the offset within it.
Edge: TypeAlias = "int | tuple[int, int]"

_BITS = 64


def checked_range(start: object, end: object) -> tuple[int, int]:
    """Return both edges as plain numbers; raise OptionError if one is none, or the second lies before the first."""
    low, high = _place("start", start), _place("end", end)
    if low > high:
        raise _turned(start, end)
    return low, high


def checked_edges(start: object, end: object) -> tuple[Edge, Edge]:
    """Return both edges, of which each may be a time and an offset, in plain numbers; see `checked_range`."""
    low, high = _edge("start", start), _edge("end", end)
    first, behind = (edge if isinstance(edge, tuple) else (edge,) for edge in (low, high))
    shared = min(len(first), len(behind))
    if first[:shared] > behind[:shared]:
        raise _turned(start, end)
    return low, high


def checked_values(by: Sequence[str], join_keys: object, key: object) -> dict[str, Any]:
    """Return the values that columns must have: those of any columns, and those of by columns."""
    mappings = []
    for what, value in (("join_keys", join_keys), ("key", key)):
        if value is not None and not isinstance(value, Mapping):
            raise OptionError(
                f"{what} is {shown(value)}: columns and their values are expected, such as {{'key': 'a'}}"
            )
        mappings.append(dict(value or {}))
    for name, value in mappings[1].items():
        if name not in by:
            raise OptionError(f"{name!r} is no by column, they are {', '.join(by) or 'none'}")
        if name in mappings[0] and mappings[0][name] != value:
            raise OptionError(
                f"{name!r} is asked for {shown(value)} in key and for {shown(mappings[0][name])} in join_keys: give one"
            )
    return {**mappings[0], **mappings[1]}


def wanted(name: str, kind: pa.DataType, value: object) -> pa.Scalar:
    """Return a value as one of a column's type; raise OptionError if it is none."""
    try:
        made = pa.scalar(value, kind)
        if not pa.types.is_integer(kind) or made.as_py() == value:  # Arrow cuts fractions off
            return made
        problem = None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = error
    raise OptionError(f"{name!r} is asked for {shown(value)}: a value of its type, {kind}, is expected") from problem


def _edge(what: str, value: object) -> Edge:
    if isinstance(value, tuple):
        if len(value) != 2:
            raise OptionError(f"{what} is {shown(value)}: a number of ms is expected, or (ms, offset)")
        return _place(what, value[0]), _place(f"the offset of {what}", value[1])
    return _place(what, value)


def _place(what: str, value: object) -> int:
    place = number(what, value, MS)
    if not -(2 ** (_BITS - 1)) <= place < 2 ** (_BITS - 1):
        raise OptionError(f"{what} is {place}: a number of {_BITS} bits is expected")
    return place


def _turned(start: object, end: object) -> OptionError:
    return OptionError(f"start is {shown(start)}, and end, {shown(end)}, lies before it: give the earlier one first")
