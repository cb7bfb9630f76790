"""What a checkpoint's plan has that the plan of the query has not, in words, for the refusal of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keyedwm.core.text import listed, shown

_MOST = 3
# How much of what two long lines share is shown before their first difference.
_SHARED = 20
_LONG = 60
# Kinds of operators whose plans are told in lines.
_IN_LINES = ("process", "join", "join_latest")
_BOOLEANS = ("True", "False")


def difference(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> str:
    """Return what tells two plans apart, "" where what is noted of them does not. old: None in notes of 0.2.0."""
    if old is None:
        return ""
    before, now = list(_lines(old)), list(_lines(new))
    gone, come = (list((Counter(one) - Counter(other)).elements()) for one, other in ((before, now), (now, before)))
    order = ""
    if not gone and not come:  # nothing but the order
        gone, come = ([one for one, other in zip(*both, strict=True) if one != other][:1]
                      for both in ((before, now), (now, before)))  # fmt: skip
        order = "in another order "
    if len(gone) == len(come) == 1:
        gone[0], come[0] = _from_first_difference(gone[0], come[0])
    theirs, ours = (listed([shown(line) for line in lines], _MOST) or "nothing" for lines in (gone, come))
    return f"{order}it has {theirs} where this plan has {ours}" if gone or come else ""


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield a plan as it is noted, a line for each setting and column, with what it is called."""
    if "store" in told:
        yield from _store(told["store"])
    elif "window_join" in told:
        yield from _join(told["window_join"], list(told.get("sides", ())))
    elif kind := next((kind for kind in _IN_LINES if kind in told), None):
        yield from map(_words, told[kind])
    else:
        yield from _windows(told)


def _windows(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"window={told['window']}"
    names = ("late_rule", "lateness_ms", "accumulating", "early")
    yield from map("{}={}".format, names, told["late"].split(" ", len(names) - 1))
    yield from (f"key_watermark={told[name]}" for name in ("key_watermark",) if name in told)
    yield from (f"by={_words(one)}" for one in told["by"])
    yield from (f"read from {_words(one)}" for one in told["read_from"])
    yield from map(_words, told["aggregates"])


def _store(lines: Sequence[str]) -> Iterator[str]:
    window, of_rows, full, panes, by, time, record, *others = lines
    early, _, no_late_every = panes.rpartition(" ")
    names = ("window", "of rows", "full", "early", "late_every", "by", "time", "record")
    yield from map("{}={}".format, names, (window, of_rows, full, early, _given(no_late_every), by, time, record))
    yield from others


def _join(lines: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    window, of_rows, full, no_early, no_late_every, *others = lines
    settings = ("window", "of rows", "full", "early", "late_every")
    yield from map("{}={}".format, settings, (window, of_rows, full, _given(no_early), _given(no_late_every)))
    # Where each side begins: with its name, and whether it is unbounded.
    begins, place = [], 0
    for name in names:
        place = next(at for at in range(place, len(others) - 1) if others[at] == name and others[at + 1] in _BOOLEANS)
        begins.append(place)
        place += 1
    yield from (f"keep, how or emit={one}" for one in others[: begins[0] if begins else None])
    for number, (first, behind) in enumerate(zip(begins, [*begins[1:], len(others)], strict=True)):
        name, unbounded, on, time, record, *columns = others[first:behind]
        yield f"side {number + 1}={name}"
        yield from (f"{name}: {one}" for one in (f"unbounded={unbounded}", f"on={on}", f"time={time}"))
        yield from (f"{name}: {one}" for one in (f"record={record}", *columns))


def _given(is_none: str) -> str:
    return "none" if is_none == str(True) else "given"


def _words(value: Any) -> str:
    return " ".join(map(_words, value)) if isinstance(value, (list, tuple)) else str(value)


def _from_first_difference(one: str, other: str) -> tuple[str, str]:
    shared = next((at for at, both in enumerate(zip(one, other, strict=False)) if both[0] != both[1]), 0)
    if shared < _LONG:
        return one, other
    return f"...{one[shared - _SHARED :]}", f"...{other[shared - _SHARED :]}"
