"""What a trigger of a vector is in the product: early panes, late ones, allowed lateness, and what it has not.

Rule: the product's early panes repeat, a window always speaks when it is over, and late panes come at once or together.
A trigger that is otherwise is played with the panes nearest to it: `decided.py` says which differences that makes. One
for which there is no setting at all is played with a pane for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from conformance.trigger_words import OR_FINALLY, SINCE_FIRST, Trigger, read_trigger
from keyedwm.operators.panes import Early

_COUNT, _WATERMARK, _REPEAT, _ANY = "count", "watermark", "repeat", "any"
_PARTS = (_COUNT, SINCE_FIRST, _WATERMARK)


@dataclass(frozen=True, slots=True)
class Panes:
    """How a window speaks.

    late_rows, late_ms: late panes come together. is_done: nothing is said after the pane on time. is_once: early panes
    do not repeat. stops: nothing at all is said after the first early pane. has_end: the watermark is part of the
    trigger. only_news: a pane on time without news is left out. is_known: there are settings for the trigger.
    is_late_first: see `with_late_first`.
    """

    early: Early | None = None
    late_rows: int | None = None
    late_ms: int | None = None
    is_done: bool = False
    is_once: bool = False
    stops: bool = False
    has_end: bool = True
    only_news: bool = False
    is_known: bool = True
    is_late_first: bool = False

    def with_late_first(self) -> Panes:
        """The same for a vector in which a window speaks for the first time when a late row comes to it.

        The product has no setting for a late pane that does not wait while the next ones do, or is the only one.
        """
        return replace(self, is_late_first=True)

    def a_millisecond_later(self) -> Panes | None:
        """The same for timers that run only when their time is over; None if there are none."""
        early = self.early
        if early is not None and early.every_ms is not None:
            early = Early(rows=early.rows, every_ms=early.every_ms + 1)
        late_ms = None if self.late_ms is None else self.late_ms + 1
        panes = replace(self, early=early, late_ms=late_ms)
        return None if panes == self else panes

    @property
    def is_late_together(self) -> bool:
        """Whether late panes come together, and can be played so."""
        return not self.is_late_first and self.late_goes_together

    @property
    def is_shut(self) -> bool:
        """Whether no window takes a late row."""
        return self.is_done and not self.is_late_first

    @property
    def late_goes_together(self) -> bool:
        """Whether late panes come together."""
        return self.late_rows is not None or self.late_ms is not None


def panes_of(config: Mapping) -> Panes:
    """The panes that a vector's config asks for."""
    if "clock" in config:  # Samza: the window's end always fires, and cancels the early trigger
        early = config.get("early")
        panes = Panes(is_done=True) if early is None else _before_end(_early(read_trigger(early)))
        return replace(panes, only_news=config.get("mode") == "discarding")
    panes = _panes(read_trigger(config.get("trigger", "default")))
    on_time = config.get("on_time", config.get("on_time_behavior", ""))
    return replace(panes, only_news=str(on_time).endswith("if-non-empty"))


def _panes(trigger: Trigger) -> Panes:
    if trigger.name == "default":
        return Panes()
    if trigger.name == _WATERMARK:
        early, late = trigger.part("early"), trigger.part("late")
        panes = Panes() if early is None else replace(_before_end(_early(early)), is_once=False, is_done=False)
        return replace(panes, is_done=True) if late is None else _with_late(panes, late)
    if trigger.name == "each" and trigger.parts:
        return _in_turn(trigger)
    if trigger.name == OR_FINALLY and trigger.parts[1].name == _WATERMARK:
        return _before_end(_early(trigger.parts[0]))
    return _early(trigger)


def _in_turn(trigger: Trigger) -> Panes:
    """One trigger after the other, where the first ends with the window."""
    first, *rest = trigger.parts
    if first.name == _REPEAT:  # nobody's turn comes after it
        return _panes(first)
    if first.name in {OR_FINALLY, _WATERMARK} and [one.name for one in rest] == [_REPEAT]:
        return _with_late(replace(_panes(first), is_done=False), rest[0])
    return _early(trigger)


def _before_end(early: Panes) -> Panes:
    """Early panes of a window that speaks once more, when it is over."""
    return replace(early, stops=False, has_end=True, is_done=True)


def _early(trigger: Trigger) -> Panes:
    """Panes of a count, a time since the first row, or any of these and the watermark; once, or again and again."""
    is_once = trigger.name != _REPEAT
    parts = trigger
    while parts.name == _REPEAT and len(parts.parts) == 1:
        parts = parts.parts[0]
    leaves = parts.parts if parts.name == _ANY else (parts,)
    if not leaves or any(one.name not in _PARTS or one.named_parts or one.parts for one in leaves):
        return Panes(early=Early(rows=1), has_end=False, is_known=False)
    rows = min((one.number for one in leaves if one.name == _COUNT), default=None)
    every_ms = min((one.number for one in leaves if one.name == SINCE_FIRST), default=None)
    has_end = any(one.name == _WATERMARK for one in leaves)
    early = None if rows is None and every_ms is None else Early(rows=rows, every_ms=every_ms)
    return Panes(early=early, is_once=is_once, stops=is_once, has_end=has_end, is_done=is_once and has_end)


def _with_late(panes: Panes, late: Trigger) -> Panes:
    early = _early(late).early
    if early is None or (early.rows is not None and early.every_ms is not None):
        return panes
    if early.every_ms is not None:
        return replace(panes, late_ms=early.every_ms)
    return panes if early.rows == 1 else replace(panes, late_rows=early.rows)
