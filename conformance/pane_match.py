"""A run of the product against a vector, step by step, pane by pane.

Rule: of the panes of a step the ones that agree in every field that the vector tells are paired; what is left over must
be what a rule of the design makes (`pane_rules.py`), or the step fails. `nonspec_index` counts the panes that are not
early. A pane set aside does not count in the index of the later ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance import decided
from conformance.pane_rules import Rules


@dataclass
class Window:
    """What is known of one window."""

    seen: list[dict] = field(default_factory=list)
    aside: list[dict] = field(default_factory=list)  # set aside since the last pane that the vector told
    away: int = 0
    away_nonspec: int = 0
    nonspec: int = 0


class Matcher:
    """Compares one vector. skipped: fields that are not compared."""

    def __init__(self, rules: Rules, skipped: frozenset[str], *, is_ordered: bool) -> None:
        self._rules, self._skipped, self._is_ordered = rules, skipped, is_ordered
        self._windows: dict[tuple, Window] = {}
        self._value = rules.told.field
        self._passed_ms: int | None = None  # the watermark of the step
        self._ending: list[Window] = []  # windows whose pane on time comes with the step
        self._nothing: set[tuple] = set()  # windows of which the vector tells a pane that says nothing
        self.reasons: list[str] = []

    def ignore(self, made: list[dict]) -> None:
        """Take panes of which the vector says nothing."""
        for pane in made:
            self._tell(self._numbered(pane))

    def step(self, step: Mapping, made: list[dict]) -> bool:
        """Whether what a step gives is what the vector tells, or what a rule makes of it."""
        expected = step["out"]
        if "output_ts" in self._skipped and not all(self._may_stand(wanted) for wanted in expected):
            return False
        self._passed_ms = step["ts"] if step["do"] == "watermark" and step["ts"] != "max" else None
        left = [self._numbered(pane) for pane in made]
        self._ending = [self._window(pane) for pane in left if pane["timing"] == "ON_TIME"]
        missing, paired = [], []
        for wanted in expected:
            got = next((pane for pane in left if not self._differences(wanted, self._whole(pane))), None)
            if got is None:
                missing.append(wanted)
                continue
            left.remove(got)
            paired.append(got)
            self._tell(got)
        if self._is_ordered and _places(paired) != sorted(_places(paired)):
            return False
        left = self._set_aside(left, timings=("EARLY",))
        missing, left = self._nearly(missing, left)
        left = self._set_aside(left, timings=("ON_TIME", "LATE"))
        missing = [wanted for wanted in missing if not self._was_aside(wanted)]
        missing, left = self._split(missing, left)
        missing = [wanted for wanted in missing if not self._is_nothing(wanted)]
        return not missing and not left

    def is_answered(self) -> bool:
        """Whether no late pane that came at once is still to be told; asked after a watermark."""
        if not self._rules.answers_late_at_watermark:
            return True
        return not any(pane["timing"] == "LATE" for window in self._windows.values() for pane in window.aside)

    def _may_stand(self, wanted: Mapping) -> bool:
        is_told = "output_ts" in wanted and "end" in wanted and not self._rules.told.is_global
        return not is_told or self._rules.may_stand(wanted)

    def _window(self, pane: Mapping) -> Window:
        return self._windows.setdefault((pane["start"], pane["end"], pane["key"], pane["name"]), Window())

    def _numbered(self, pane: dict) -> dict:
        """A pane with the numbers that it has among those which are not set aside."""
        window = self._window(pane)
        index = pane["index"] - window.away
        is_early = pane["timing"] == "EARLY"
        nonspec = -1 if is_early else window.nonspec - window.away_nonspec
        window.nonspec += not is_early
        return pane | {"index": index, "first": not index, "nonspec_index": nonspec}

    def _differences(self, wanted: Mapping, pane: Mapping) -> list[str]:
        told = {name: value for name, value in wanted.items() if name not in self._skipped}
        return [name for name, value in told.items() if self._plain(name, pane.get(name)) != self._plain(name, value)]

    def _plain(self, name: str, value: Any) -> Any:
        """A value as it is compared: what Beam lists has no order."""
        is_list = name == self._value and self._rules.told.aggregate == "list" and isinstance(value, list)
        return sorted(value) if is_list and self._rules.told.is_beam else value

    def _tell(self, pane: dict) -> None:
        """Note that the vector tells a pane: what was set aside before is part of it."""
        self._window(pane).seen.append(pane)
        for window in self._within(pane):
            window.aside.clear()

    def _set_aside(self, left: list[dict], timings: tuple[str, ...]) -> list[dict]:
        rest = []
        for pane in left:
            window = self._window(pane)
            before = self._before(pane)
            ends_now = any(window is ending for ending in self._ending)
            why = self._rules.too_many(pane, before, ends_now=ends_now) if pane["timing"] in timings else None
            if why is None:
                rest.append(pane)
                continue
            self.reasons.append(why)
            window.seen.append(pane)
            if why != decided.BY_WINDOW:  # the vector never tells those rows
                window.aside.append(pane)
            window.away += 1
            window.away_nonspec += pane["timing"] != "EARLY"
        return rest

    def _before(self, pane: Mapping) -> list[dict]:
        """The panes of a window so far; of a session those of the ones that it meets."""
        if self._rules.told.session is None:
            start, end, key, name = (pane.get(part) for part in ("start", "end", "key", "name"))
            return [
                one
                for (its_start, its_end, its_key, its_name), window in self._windows.items()
                for one in window.seen
                if start in {None, its_start} and end in {None, its_end} and (its_key, its_name) == (key, name)
            ]
        low, high = pane.get("start", -(1 << 62)), pane.get("end", 1 << 62)
        return [
            one
            for (start, end, key, name), window in self._windows.items()
            if start < high and low < end and (key, name) == (pane.get("key"), pane.get("name"))
            for one in window.seen
        ]

    def _within(self, pane: Mapping) -> list[Window]:
        low, high = pane.get("start", -(1 << 62)), pane.get("end", 1 << 62)
        is_session = self._rules.told.session is not None
        return [
            window
            for (start, end, key, name), window in self._windows.items()
            if (key, name) == (pane.get("key"), pane.get("name"))
            and ((low <= start and end <= high) if is_session or "end" not in pane else (low, high) == (start, end))
            and start >= low
        ]

    def _nearly(self, missing: list[dict], left: list[dict]) -> tuple[list[dict], list[dict]]:
        """Pair panes that differ in a field that a rule excuses, or by what was set aside before."""
        rest, left = [], list(left)
        for wanted in missing:
            for pane in left:
                why = self._reasons(wanted, self._whole(pane))
                if why is not None:
                    self.reasons += why
                    left.remove(pane)
                    self._tell(pane)
                    break
            else:
                rest.append(wanted)
        return rest, left

    def _whole(self, pane: dict) -> dict:
        """A pane with what was set aside before, where panes hold what is new."""
        aside = [one for window in self._within(pane) for one in window.aside]
        if not aside or self._rules.told.accumulating:
            return pane
        return pane | {self._value: self._rules.together([one[self._value] for one in [*aside, pane]])}

    def _reasons(self, wanted: Mapping, pane: dict) -> list[str] | None:
        """Why two panes differ, None if they are not one."""
        why = []
        for name in self._differences(wanted, pane):
            reason = self._rules.differs(wanted, pane, name, self._passed_ms)
            if reason is None:
                return None
            why.append(reason)
        return why

    def _was_aside(self, wanted: Mapping) -> bool:
        """Whether panes that were set aside say what the vector tells now."""
        windows = [window for window in self._within(wanted) if window.aside]
        aside = [one for window in windows for one in window.aside]
        if not aside:
            return False
        whole = aside[-1]
        if not self._rules.told.accumulating:
            whole = whole | {self._value: self._rules.together([one[self._value] for one in aside])}
        why = self._reasons(wanted, whole)
        if why is None:
            return False
        self.reasons += why
        for window in windows:
            window.away -= 1  # the last of them is the one that the vector tells
            window.away_nonspec -= window.aside[-1]["timing"] != "EARLY"
            window.aside.clear()
        return True

    def _split(self, missing: list[dict], left: list[dict]) -> tuple[list[dict], list[dict]]:
        """Sessions that timers found later than their gap: the vector has one for several of the product."""
        if not self._rules.is_samza_session:
            return missing, left
        rest = []
        for wanted in missing:
            parts = [pane for pane in left if pane["key"] == wanted.get("key")]
            whole = parts and parts[0] | {self._value: self._rules.together([pane[self._value] for pane in parts])}
            if not whole or self._differences(wanted, whole):
                rest.append(wanted)
                continue
            left = [pane for pane in left if pane not in parts]
            self.reasons.append(decided.SPLIT)
        return rest, left

    def _is_nothing(self, wanted: Mapping) -> bool:
        place = tuple(wanted.get(name) for name in ("start", "end", "key", "name"))
        why = self._rules.too_few(wanted, self._before(wanted), self._passed_ms)
        if why is None or place in self._nothing:
            return False
        self._nothing.add(place)
        self.reasons.append(why)
        return True


def _places(panes: list[dict]) -> list[tuple]:
    """Where results stand in the order of their windows."""
    return [(pane["end"], pane["start"]) for pane in panes]
