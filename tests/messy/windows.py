"""`aggregate` over windows and sessions without panes, against brute force, batch by batch."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from tests.messy.drive import Pipeline
from tests.messy.feed import RECORD, TIME, Batch, Feed, Row, random_feed
from tests.messy.scalar import Maker, Wanted

Place = tuple[tuple, int, int]


def play(rng: random.Random) -> int:
    """Play a random feed; return how many results were compared."""
    feed = random_feed(rng)
    wanted = Maker(rng, feed).drawn(4)
    window = random_window(rng, feed)
    plan = plan_of(
        feed, window, wanted,
        late=rng.choice([LatePolicy.DROP, LatePolicy.DROP, LatePolicy.EMIT]),
        late_rule=rng.choice(rules_of(window)),
    )  # fmt: skip
    pipeline = Pipeline(plan, rng.choice([1, 2, 2, 3]) if feed.keys else 1)
    model = (SessionModel if plan.is_session else SlidingModel)(feed, plan)
    compared = 0
    for number, batch in enumerate(feed.batches):
        if feed.keys and number and rng.random() < 0.15:
            pipeline.move(rng.choice([1, 2, 3]))
        expected = model.take(batch)
        compared += compare(feed, wanted, pipeline.batch((feed, batch)), expected, f"batch {number}, {window}")
    assert not model.open()
    return compared


def random_window(rng: random.Random, feed: Feed) -> SlidingWindow | SessionWindow:
    slide, unit = rng.choice([1, 2, 3]) * feed.unit, feed.unit
    if rng.random() < 0.35:
        return SessionWindow(rng.choice([1, 2, 4]) * unit, rng.choice(list(Touching)))
    return SlidingWindow(slide * rng.choice([1, 1, 2, 5]), slide, rng.choice([0, 0, slide // 2]))


def rules_of(window: SlidingWindow | SessionWindow) -> list[LateRule]:
    return list(LateRule) if isinstance(window, SlidingWindow) else [LateRule.WINDOW, LateRule.EVENT]


def plan_of(feed: Feed, window: Any, wanted: Sequence[Wanted], **how: Any) -> WindowPlan:
    schema = feed.schema(pa.field(TIME, pa.int64()))
    order = tuple(name for name, _ in RECORD)
    aggregates = tuple((one.name, one.spec) for one in wanted)
    return WindowPlan(
        schema=schema, by=feed.by, window=window, aggregates=aggregates, time=TIME, order=order, **how
    ).trimmed()


def place_of(feed: Feed, row: dict[str, Any]) -> Place:
    start, end = row["window"]
    return tuple(row[name] for name in feed.by), start // 1000, end // 1000


def compare(
    feed: Feed,
    wanted: Sequence[Wanted],
    made: Iterable[dict],
    expected: Sequence[tuple[Place, str, list[Row]]],
    at: str,
) -> int:
    """expected: place, timing and rows of each result; each place and timing once."""
    found: dict[tuple[Place, str], dict] = {}
    for row in made:
        if row["control"] is None:
            where = place_of(feed, row), row["pane"][0]
            assert where not in found, f"{at}: {where} came twice"
            found[where] = row
    rows_at = {(place, timing): rows for place, timing, rows in expected}
    missing, strange = rows_at.keys() - found.keys(), found.keys() - rows_at.keys()
    assert rows_at.keys() == found.keys(), (
        f"{at}: missing {sorted(map(str, missing))}, strange {sorted(map(str, strange))}"
    )
    for where, rows in rows_at.items():
        check(wanted, found[where], rows, f"{at}, {where}")
    return len(rows_at)


def check(wanted: Sequence[Wanted], row: dict[str, Any], rows: Iterable[Row], at: str) -> None:
    check_in_order(wanted, row, sorted(rows, key=lambda one: one.place), at)


def check_in_order(wanted: Sequence[Wanted], row: dict[str, Any], inside: list[Row], at: str) -> None:
    for one in wanted:
        assert one.fits(row[one.name], inside), (
            f"{at}: {one.spec.describe()} gave {row[one.name]!r}, expected {one.shown(inside)!r} of "
            f"{[(each.values, each.time) for each in inside]}"
        )


def frame_of(window: Any, time: int) -> int:
    """The end of a time's frame."""
    return time - (time - window.offset_ms) % window.slide_ms + window.slide_ms


class SlidingModel:
    """All rows of all windows that are not closed."""

    def __init__(self, feed: Feed, plan: WindowPlan) -> None:
        self.feed, self.plan, self.window = feed, plan, plan.window
        self.held: dict[tuple[tuple, int], list[Row]] = {}

    def open(self) -> bool:
        return bool(self.held)

    def ends(self, time: int) -> list[int]:
        first = frame_of(self.window, time)
        return list(range(first, first + self.window.size_ms, self.window.slide_ms))

    def take(self, batch: Batch) -> list[tuple[Place, str, list[Row]]]:
        made = self.closed(batch.before)
        expired: dict[tuple[tuple, int], list[Row]] = {}
        for task in batch.tasks:
            timed = [row for row in task if row.time is not None]
            latest: dict[tuple[tuple, int], int] = {}
            for row in timed:
                where = self.feed.key(row), frame_of(self.window, row.time)
                latest[where] = max(row.time, latest.get(where, row.time))
            for row in timed:
                where = self.feed.key(row), frame_of(self.window, row.time)
                if self.is_late(where[1], latest[where], batch.before):
                    expired.setdefault((where[0], self.ends(row.time)[-1]), []).append(row)
                    continue
                for end in self.ends(row.time):
                    if batch.before is None or end > batch.before:
                        self.held.setdefault((where[0], end), []).append(row)
        if self.plan.late is LatePolicy.EMIT:
            made += [(self.place(*at), "expired", rows) for at, rows in expired.items()]
        return made + self.closed(batch.after)

    def is_late(self, frame_end: int, latest: int, watermark: int | None) -> bool:
        if watermark is None:
            return False
        if self.plan.late_rule is LateRule.EVENT:
            return latest < watermark
        reach = self.window.size_ms - self.window.slide_ms if self.plan.late_rule is LateRule.WINDOW else 0
        return frame_end + reach <= watermark

    def place(self, key: tuple, end: int) -> Place:
        return key, end - self.window.size_ms, end

    def closed(self, watermark: int | None) -> list[tuple[Place, str, list[Row]]]:
        gone = [at for at in self.held if watermark is not None and at[1] <= watermark]
        return [(self.place(*at), "on_time", self.held.pop(at)) for at in gone]


class SessionModel:
    """All rows of all sessions that are not closed; sessions are found anew each time."""

    def __init__(self, feed: Feed, plan: WindowPlan) -> None:
        self.feed, self.plan, self.window = feed, plan, plan.window
        self.merges = plan.window.touching is Touching.MERGE
        self.held: list[Row] = []

    def open(self) -> bool:
        return bool(self.held)

    def sessions(self, rows: Iterable[Row]) -> list[list[Row]]:
        found: list[list[Row]] = []
        last: dict[tuple, list[Row]] = {}
        for row in sorted(rows, key=lambda one: one.place):
            mine = last.get(self.feed.key(row))
            if mine is not None and row.time < self.end(mine) + self.merges:
                mine.append(row)
            else:
                last[self.feed.key(row)] = [row]
                found.append(last[self.feed.key(row)])
        return found

    def end(self, mine: list[Row]) -> int:
        return max(row.time for row in mine) + self.window.gap_ms

    def take(self, batch: Batch) -> list[tuple[Place, str, list[Row]]]:
        made = self.closed(batch.before)
        fresh, expired = [], []
        for task in batch.tasks:
            for run in self.sessions(row for row in task if row.time is not None):
                late = batch.before is not None and max(row.time for row in run) < batch.before
                (expired if late and self.plan.late_rule is LateRule.EVENT else fresh).extend(run)
        late_runs = self.sessions(expired)
        held = set(map(id, self.held))
        self.held += fresh
        if batch.before is not None:
            for mine in self.sessions(self.held):
                if self.end(mine) + self.merges <= batch.before:
                    assert not any(id(row) in held for row in mine)
                    late_runs.append(mine)
        gone = {id(row) for mine in late_runs for row in mine}
        self.held = [row for row in self.held if id(row) not in gone]
        if self.plan.late is LatePolicy.EMIT:
            made += [(self.place(mine), "expired", mine) for mine in late_runs]
        return made + self.closed(batch.after)

    def place(self, mine: list[Row]) -> Place:
        return self.feed.key(mine[0]), mine[0].time, self.end(mine)

    def closed(self, watermark: int | None) -> list[tuple[Place, str, list[Row]]]:
        if watermark is None:
            return []
        done = [mine for mine in self.sessions(self.held) if self.end(mine) + self.merges <= watermark]
        gone = {id(row) for mine in done for row in mine}
        self.held = [row for row in self.held if id(row) not in gone]
        return [(self.place(mine), "on_time", mine) for mine in done]
