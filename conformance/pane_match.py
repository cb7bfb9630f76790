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

    panes: list[dict] = field(default_factory=list)
    aside: list[dict] = field(default_factory=list)  # set aside since the last pane that the vector told
    away: int = 0
    away_nonspec: int = 0
    nonspec: int = 0


class Matcher:
    """Compares one vector. skipped: fields that are not compared."""

    def __init__(self, rules: Rules, skipped: frozenset[str], *, is_ordered: bool) -> None:
        self._rules, self._skipped, self._is_ordered = rules, skipped, is_ordered
        self._windows: dict[tuple, Window] = {}
        self._value = rules.stream.field
        self._passed_ms: int | None = None  # the watermark of the step
        self._ending: list[Window] = []  # windows whose pane on time comes with the step
        self._nothing: set[tuple] = set()  # windows of which the vector tells a pane that says nothing
        self.reasons: list[str] = []

    def ignore(self, panes: list[dict]) -> None:
        """Take panes of which the vector says nothing."""
        for pane in panes:
            self._record_pane(self._numbered(pane))

    def step(self, step: Mapping, panes: list[dict]) -> bool:
        """Whether what a step gives is what the vector tells, or what a rule makes of it."""
        expected = step["out"]
        if "output_ts" in self._skipped and not all(self._may_stand(pane) for pane in expected):
            return False
        self._passed_ms = step["ts"] if step["do"] == "watermark" and step["ts"] != "max" else None
        left = [self._numbered(pane) for pane in panes]
        self._ending = [self._window(pane) for pane in left if pane["timing"] == "ON_TIME"]
        missing, paired = [], []
        for expected_pane in expected:
            match = next((pane for pane in left if not self._differences(expected_pane, self._whole(pane))), None)
            if match is None:
                missing.append(expected_pane)
                continue
            left.remove(match)
            paired.append(match)
            self._record_pane(match)
        if self._is_ordered and _places(paired) != sorted(_places(paired)):
            return False
        left = self._set_aside(left, timings=("EARLY",))
        missing, left = self._nearly(missing, left)
        left = self._set_aside(left, timings=("ON_TIME", "LATE"))
        missing = [pane for pane in missing if not self._was_aside(pane)]
        missing, left = self._split(missing, left)
        missing = [pane for pane in missing if not self._is_nothing(pane)]
        return not missing and not left

    def is_answered(self) -> bool:
        """Whether no late pane that came at once is still to be told; asked after a watermark."""
        if not self._rules.answers_late_at_watermark:
            return True
        return not any(pane["timing"] == "LATE" for window in self._windows.values() for pane in window.aside)

    def _may_stand(self, expected: Mapping) -> bool:
        is_told = "output_ts" in expected and "end" in expected and not self._rules.stream.is_global
        return not is_told or self._rules.may_stand(expected)

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

    def _differences(self, expected: Mapping, pane: Mapping) -> list[str]:
        fields = {name: value for name, value in expected.items() if name not in self._skipped}
        return [name for name, value in fields.items() if self._plain(name, pane.get(name)) != self._plain(name, value)]

    def _plain(self, name: str, value: Any) -> Any:
        """A value as it is compared: what Beam lists has no order."""
        is_list = name == self._value and self._rules.stream.aggregate == "list" and isinstance(value, list)
        return sorted(value) if is_list and self._rules.stream.is_beam else value

    def _record_pane(self, pane: dict) -> None:
        """Note that the vector tells a pane: what was set aside before is part of it."""
        self._window(pane).panes.append(pane)
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
            window.panes.append(pane)
            if why != decided.BY_WINDOW:  # the vector never tells those rows
                window.aside.append(pane)
            window.away += 1
            window.away_nonspec += pane["timing"] != "EARLY"
        return rest

    def _before(self, pane: Mapping) -> list[dict]:
        """The panes of a window so far; of a session those of the ones that it meets."""
        if self._rules.stream.session is None:
            start, end, key, name = (pane.get(part) for part in ("start", "end", "key", "name"))
            return [
                one
                for (its_start, its_end, its_key, its_name), window in self._windows.items()
                for one in window.panes
                if start in {None, its_start} and end in {None, its_end} and (its_key, its_name) == (key, name)
            ]
        low, high = pane.get("start", -(1 << 62)), pane.get("end", 1 << 62)
        return [
            one
            for (start, end, key, name), window in self._windows.items()
            if start < high and low < end and (key, name) == (pane.get("key"), pane.get("name"))
            for one in window.panes
        ]

    def _within(self, pane: Mapping) -> list[Window]:
        low, high = pane.get("start", -(1 << 62)), pane.get("end", 1 << 62)
        is_session = self._rules.stream.session is not None
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
        for expected in missing:
            for pane in left:
                why = self._reasons(expected, self._whole(pane))
                if why is not None:
                    self.reasons += why
                    left.remove(pane)
                    self._record_pane(pane)
                    break
            else:
                rest.append(expected)
        return rest, left

    def _whole(self, pane: dict) -> dict:
        """A pane with what was set aside before, where panes hold what is new."""
        aside = [one for window in self._within(pane) for one in window.aside]
        if not aside or self._rules.stream.accumulating:
            return pane
        return pane | {self._value: self._rules.together([one[self._value] for one in [*aside, pane]])}

    def _reasons(self, expected: Mapping, pane: dict) -> list[str] | None:
        """Why two panes differ, None if they are not one."""
        why = []
        for name in self._differences(expected, pane):
            reason = self._rules.differs(expected, pane, name, self._passed_ms)
            if reason is None:
                return None
            why.append(reason)
        return why

    def _was_aside(self, expected: Mapping) -> bool:
        """Whether panes that were set aside say what the vector tells now."""
        windows = [window for window in self._within(expected) if window.aside]
        aside = [one for window in windows for one in window.aside]
        if not aside:
            return False
        whole = aside[-1]
        if not self._rules.stream.accumulating:
            whole = whole | {self._value: self._rules.together([one[self._value] for one in aside])}
        why = self._reasons(expected, whole)
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
        for expected in missing:
            parts = [pane for pane in left if pane["key"] == expected.get("key")]
            whole = parts and parts[0] | {self._value: self._rules.together([pane[self._value] for pane in parts])}
            if not whole or self._differences(expected, whole):
                rest.append(expected)
                continue
            left = [pane for pane in left if pane not in parts]
            self.reasons.append(decided.SPLIT)
        return rest, left

    def _is_nothing(self, expected: Mapping) -> bool:
        place = tuple(expected.get(name) for name in ("start", "end", "key", "name"))
        why = self._rules.too_few(expected, self._before(expected), self._passed_ms)
        if why is None or place in self._nothing:
            return False
        self._nothing.add(place)
        self.reasons.append(why)
        return True


def _places(panes: list[dict]) -> list[tuple]:
    """Where results stand in the order of their windows."""
    return [(pane["end"], pane["start"]) for pane in panes]
