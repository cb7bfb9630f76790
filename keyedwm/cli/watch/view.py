"""The view, which keys change: the partitions shown, their order, and the first row.

Rule: values only. `pressed` returns the view after a key; one table has the effects of keys, and the foot shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from keyedwm.cli.query.picture import PartitionPicture, slowest_first
from keyedwm.core.watermark import Status

_Key = Callable[[PartitionPicture], tuple]


class Sort(Enum):
    """The order of partitions, by the name that the foot shows."""

    SLOWEST = "slowest"
    BACKLOG = "backlog"
    BEHIND = "behind"
    LATE = "late"
    SILENT = "silent"
    NAME = "name"

    def key(self) -> _Key:
        """Return the key to sort by; partitions with equal keys are sorted by the slowest first."""
        return _KEYS[self]


_KEYS = MappingProxyType({
    Sort.SLOWEST: slowest_first,
    Sort.BACKLOG: lambda one: (-(one.backlog or 0), *slowest_first(one)),
    Sort.BEHIND: lambda one: (-(one.behind_ms or 0), *slowest_first(one)),
    Sort.LATE: lambda one: (-one.late, -one.unreadable, *slowest_first(one)),
    Sort.SILENT: lambda one: (one.last_news_ms, *slowest_first(one)),
    Sort.NAME: lambda one: (one.channel,),
})  # fmt: skip


class Key(Enum):
    """Keys that are no letters, by the bytes that a terminal sends."""

    UP = b"\x1b[A"
    DOWN = b"\x1b[B"
    PAGE_UP = b"\x1b[5~"
    PAGE_DOWN = b"\x1b[6~"
    HOME = b"\x1b[H"
    END = b"\x1b[F"
    ESCAPE = b"\x1b"
    ENTER = b"\r"
    NEW_LINE = b"\n"
    DELETE = b"\x7f"
    BACKSPACE = b"\x08"


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """needle: the text that the shown partitions' names contain. is_typing: the user is typing it.

    first: the number of rows scrolled past. actives: idle partitions are hidden. is_over: the user has ended the view.
    """

    sort: Sort = Sort.SLOWEST
    needle: str = ""
    is_typing: bool = False
    actives: bool = False
    first: int = 0
    is_over: bool = False

    def selected(self, partitions: Sequence[PartitionPicture]) -> list[PartitionPicture]:
        """Return the selected partitions, in order."""
        needle = self.needle.lower()
        matches = [
            one for one in partitions
            if needle in str(one.channel).lower() and not (self.actives and one.status is Status.IDLE)
        ]  # fmt: skip
        return sorted(matches, key=self.sort.key())

    def window(self, count: int, rows: int) -> slice:
        """Return the range of `count` partitions that is shown in `rows` rows; the last page is full."""
        first = max(min(self.first, count - rows), 0)
        return slice(first, first + rows)

    def foot(self) -> str:
        """Return the line about keys."""
        if self.is_typing:
            return f"filter: {self.needle}_   Enter: keep   Esc: none"
        active = "on" if self.actives else "off"
        needle = f" {self.needle!r}" if self.needle else ""
        return f"q end  s sort: {self.sort.value}  / filter{needle}  a active only: {active}  ↑↓ PgUp PgDn Home"


FIRST_VIEW = View()
WAITING_FOOT = "q end"


def pressed(view: View, typed: bytes, rows: int) -> View:
    """Return the view after these keys. rows: how many partitions a page has. Empty keys: the terminal is gone."""
    if not typed:
        return replace(view, is_over=True)
    for key in _keys(typed):
        view = _typed(view, key) if view.is_typing else _commanded(view, key, rows)
    return view


def _keys(typed: bytes) -> list[Key | str]:
    """Cut what a terminal sent into keys; ignore unknown sequences."""
    keys: list[Key | str] = []
    while typed:
        longest = max((key for key in Key if typed.startswith(key.value)), key=lambda key: len(key.value), default=None)
        if longest is Key.ESCAPE and len(typed) > 1 and typed[1:2] in {b"[", b"O"}:  # of another key
            end = next((n for n in range(2, len(typed)) if 0x40 <= typed[n] <= 0x7E), len(typed) - 1)
            typed = typed[end + 1 :]
        elif longest is not None:
            keys.append(longest)
            typed = typed[len(longest.value) :]
        else:
            keys.append(chr(typed[0]))
            typed = typed[1:]
    return keys


def _typed(view: View, key: Key | str) -> View:
    if key in {Key.ENTER, Key.NEW_LINE}:
        return replace(view, is_typing=False)
    if key is Key.ESCAPE:
        return replace(view, is_typing=False, needle="")
    if key in {Key.DELETE, Key.BACKSPACE}:
        return replace(view, needle=view.needle[:-1])
    return replace(view, needle=view.needle + key, first=0) if isinstance(key, str) and key.isprintable() else view


def _commanded(view: View, key: Key | str, rows: int) -> View:
    moves = {
        Key.UP: -1, Key.DOWN: 1, "k": -1, "j": 1, Key.PAGE_UP: -rows, Key.PAGE_DOWN: rows, " ": rows,
        Key.HOME: -view.first,
    }  # fmt: skip
    if key in moves:
        return replace(view, first=max(view.first + moves[key], 0))
    if key in {"q", "Q"}:
        return replace(view, is_over=True)
    if key in {"s", "S"}:
        orders = list(Sort)
        step = 1 if key == "s" else -1
        return replace(view, sort=orders[(orders.index(view.sort) + step) % len(orders)], first=0)
    if key == "/":
        return replace(view, is_typing=True, first=0)
    if key in {"a", "A"}:
        return replace(view, actives=not view.actives, first=0)
    return replace(view, needle="", first=0) if key is Key.ESCAPE else view
