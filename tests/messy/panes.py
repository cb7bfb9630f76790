"""`aggregate` with early and late panes, accumulating or not, against models that keep every row."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from keyedwm.core.window_rules import LatePolicy, Touching
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.panes import Early, EveryBy
from tests.messy.drive import Pipeline
from tests.messy.feed import Batch, Feed, Row, random_feed
from tests.messy.scalar import Maker
from tests.messy.windows import check, frame_of, place_of, plan_of, random_window

ExpectedPane = tuple[tuple, str, int, list[Row]]


def play(rng: random.Random) -> int:
    feed = random_feed(rng)
    expectations = Maker(rng, feed).drawn(3)
    window = random_window(rng, feed)
    early = rng.choice([None, Early(rows=1), Early(rows=3), Early(every_ms=4 * feed.unit, by=EveryBy.EVENT)])
    lateness = rng.choice([0, 2, 8, 8]) * feed.unit
    if early is None and not lateness:
        early = Early(rows=2)
    plan = plan_of(
        feed, window, expectations, early=early, lateness_ms=lateness, accumulating=rng.random() < 0.6,
        late=rng.choice([LatePolicy.DROP, LatePolicy.EMIT]),
    )  # fmt: skip
    pipeline = Pipeline(plan, rng.choice([1, 2, 2, 3]) if feed.keys else 1)
    model = (SessionPanes if plan.is_session else SlidingPanes)(feed, plan)
    compared = 0
    for number, batch in enumerate(feed.batches):
        if feed.keys and number and rng.random() < 0.15:
            pipeline.move(rng.choice([1, 2, 3]))
        at = f"batch {number}, {window}, {early}, lateness {lateness}, accumulating {plan.accumulating}"
        result_rows = [row for row in pipeline.batch((feed, batch)) if row["control"] is None]
        rows_by_pane = {(place_of(feed, row), row["pane"][0], row["pane"][1]): row for row in result_rows}
        expected = {one[:3]: one[3] for one in model.add_batch(batch)}
        strange, missing = rows_by_pane.keys() - expected.keys(), expected.keys() - rows_by_pane.keys()
        assert rows_by_pane.keys() == expected.keys(), f"{at}: strange {strange}, missing {missing}"
        assert len(rows_by_pane) == len(result_rows), f"{at}: a pane came twice"
        for where, rows in expected.items():
            if rows:
                check(expectations, rows_by_pane[where], rows, f"{at}, {where}")
            else:
                assert rows_by_pane[where]["rows 0"] == 0, f"{at}, {where}: nothing is new"
        compared += len(result_rows)
    return compared


@dataclass
class Window:
    """What a window holds; new: since its last pane."""

    rows: list[Row] = field(default_factory=list)
    new: list[Row] = field(default_factory=list)
    panes: int = 0
    is_complete: bool = False  # with all it has, after its end

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.new.append(row)


class Panes:
    """What both models share: panes in turn, and the beat of event time."""

    def __init__(self, feed: Feed, plan: WindowPlan) -> None:
        self.feed, self.plan, self.window, self.early = feed, plan, plan.window, plan.early or Early(rows=10**9)
        self.merges = plan.merges_touching
        self.time: int | None = None
        self.due: int | None = None
        self.results: list[ExpectedPane] = []

    def add_batch(self, batch: Batch) -> list[ExpectedPane]:
        self.results = []
        self.watermark(batch.before)
        self.rows([row for row in batch.rows if row.time is not None])
        self.watermark(batch.after)
        return self.results

    def watermark(self, ms: int | None) -> None:
        if ms is None or (self.time is not None and ms <= self.time):
            return
        self.time = ms
        self.close()
        if not self.early.by_event:
            return
        following = ms - ms % self.early.every_ms + self.early.every_ms  # the multiple of the interval behind it
        if self.due is None:
            self.due = following
        if ms >= self.due:
            self.due = following
            for place, window in self.open():
                if window.new:
                    self.show(place, window, "early")

    def is_closed(self, end: int, lateness: int = 0) -> bool:
        return self.time is not None and end + self.merges <= self.time - lateness

    def is_gone(self, end: int) -> bool:
        return self.is_closed(end, self.plan.lateness_ms)

    def show(self, place: tuple, window: Window, timing: str) -> None:
        rows = window.rows if self.plan.accumulating else window.new
        self.results.append((place, timing, window.panes, list(rows)))
        window.new, window.panes = [], window.panes + 1

    def expire(self, place: tuple, rows: list[Row]) -> None:
        if self.plan.late is LatePolicy.EMIT:
            self.results.append((place, "expired", 0, rows))

    def show_changed(self, changed: Iterable[tuple[tuple, Window]]) -> None:
        for place, window in changed:
            if self.is_closed(place[2]):
                self.show(place, window, "late")
                window.is_complete = True
            elif self.early.rows is not None and len(window.new) >= self.early.rows:
                self.show(place, window, "early")

    def close(self) -> None:
        raise NotImplementedError

    def rows(self, rows: list[Row]) -> None:
        raise NotImplementedError

    def open(self) -> list[tuple[tuple, Window]]:
        raise NotImplementedError


class SlidingPanes(Panes):
    def __init__(self, feed: Feed, plan: WindowPlan) -> None:
        super().__init__(feed, plan)
        assert isinstance(plan.window, SlidingWindow)
        self.windows: dict[tuple, Window] = {}

    def places(self, row: Row) -> list[tuple]:
        first = frame_of(self.window, row.time)
        ends = range(first, first + self.window.size_ms, self.window.slide_ms)
        return [(self.feed.key(row), end - self.window.size_ms, end) for end in ends]

    def rows(self, rows: list[Row]) -> None:
        changed: dict[tuple, Window] = {}
        expired: dict[tuple, list[Row]] = {}
        for row in rows:
            places = self.places(row)
            if self.is_gone(places[-1][2]):
                expired.setdefault(places[-1], []).append(row)
                continue
            for place in places:
                if not self.is_gone(place[2]):
                    changed[place] = self.windows.setdefault(place, Window())
                    changed[place].add(row)
        for place, late in expired.items():
            self.expire(place, late)
        self.show_changed(changed.items())

    def open(self) -> list[tuple[tuple, Window]]:
        return [one for one in self.windows.items() if not self.is_closed(one[0][2])]

    def close(self) -> None:
        for place, window in list(self.windows.items()):
            if self.is_closed(place[2]) and not window.is_complete:
                self.show(place, window, "on_time")
                window.is_complete = True
            if self.is_gone(place[2]):
                del self.windows[place]


class SessionPanes(Panes):
    def __init__(self, feed: Feed, plan: WindowPlan) -> None:
        super().__init__(feed, plan)
        self.windows: list[Window] = []

    def place(self, window: Window) -> tuple:
        times = [row.time for row in window.rows]
        return self.feed.key(window.rows[0]), min(times), max(times) + self.window.gap_ms

    def joined(self, windows: list[Window]) -> list[list[Window]]:
        """Those that touch, together."""
        groups: list[list[Window]] = []
        last: dict[tuple, int] = {}
        reach: dict[int, int] = {}
        for window in sorted(windows, key=lambda one: self.place(one)[1:]):
            key, start, end = self.place(window)
            at = last.get(key)
            if at is not None and start < reach[at] + (self.window.touching is Touching.MERGE):
                groups[at].append(window)
                reach[at] = max(reach[at], end)
            else:
                last[key] = len(groups)
                reach[len(groups)] = end
                groups.append([window])
        return groups

    def rows(self, rows: list[Row]) -> None:
        fresh = [Window([row], [row]) for row in rows]
        self.windows, before, changed = [], [*self.windows], []
        known = set(map(id, before))
        for group in self.joined([*before, *fresh]):
            if all(id(one) in known for one in group):
                self.windows += group
                continue
            whole = Window(
                [row for one in group for row in one.rows], [row for one in group for row in one.new],
                max(one.panes for one in group),
            )  # fmt: skip
            if self.is_gone(self.place(whole)[2]):
                self.expire(self.place(whole), whole.rows)
            else:
                self.windows.append(whole)
                changed.append(whole)
        self.show_changed([(self.place(one), one) for one in changed])

    def open(self) -> list[tuple[tuple, Window]]:
        return [(place, one) for one in self.windows if not self.is_closed((place := self.place(one))[2])]

    def close(self) -> None:
        for window in self.windows:
            if self.is_closed(self.place(window)[2]) and not window.is_complete:
                self.show(self.place(window), window, "on_time")
                window.is_complete = True
        self.windows = [one for one in self.windows if not self.is_gone(self.place(one)[2])]
