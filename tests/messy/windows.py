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
from tests.messy.scalar import Expectation, Maker

Place = tuple[tuple, int, int]


def play(rng: random.Random) -> int:
    """Play a random feed; return how many results were compared."""
    feed = random_feed(rng)
    expectations = Maker(rng, feed).drawn(4)
    window = random_window(rng, feed)
    plan = plan_of(
        feed, window, expectations,
        late=rng.choice([LatePolicy.DROP, LatePolicy.DROP, LatePolicy.EMIT]),
        late_rule=rng.choice(rules_of(window)),
    )  # fmt: skip
    pipeline = Pipeline(plan, rng.choice([1, 2, 2, 3]) if feed.keys else 1)
    model = (SessionModel if plan.is_session else SlidingModel)(feed, plan)
    compared = 0
    for number, batch in enumerate(feed.batches):
        if feed.keys and number and rng.random() < 0.15:
            pipeline.move(rng.choice([1, 2, 3]))
        expected = model.add_batch(batch)
        compared += compare(feed, expectations, pipeline.batch((feed, batch)), expected, f"batch {number}, {window}")
    assert not model.open()
    return compared


def random_window(rng: random.Random, feed: Feed) -> SlidingWindow | SessionWindow:
    slide, unit = rng.choice([1, 2, 3]) * feed.unit, feed.unit
    if rng.random() < 0.35:
        return SessionWindow(rng.choice([1, 2, 4]) * unit, rng.choice(list(Touching)))
    return SlidingWindow(slide * rng.choice([1, 1, 2, 5]), slide, rng.choice([0, 0, slide // 2]))


def rules_of(window: SlidingWindow | SessionWindow) -> list[LateRule]:
    return list(LateRule) if isinstance(window, SlidingWindow) else [LateRule.WINDOW, LateRule.EVENT]


def plan_of(feed: Feed, window: Any, expectations: Sequence[Expectation], **how: Any) -> WindowPlan:
    schema = feed.schema(pa.field(TIME, pa.int64()))
    order = tuple(name for name, _ in RECORD)
    aggregates = tuple((one.name, one.spec) for one in expectations)
    return WindowPlan(
        schema=schema, by=feed.by, window=window, aggregates=aggregates, time=TIME, order=order, **how
    ).trimmed()


def place_of(feed: Feed, row: dict[str, Any]) -> Place:
    start, end = row["window"]
    return tuple(row[name] for name in feed.by), start // 1000, end // 1000


def compare(
    feed: Feed,
    expectations: Sequence[Expectation],
    result_rows: Iterable[dict],
    expected: Sequence[tuple[Place, str, list[Row]]],
    at: str,
) -> int:
    """expected: place, timing and rows of each result; each place and timing once."""
    rows_by_pane: dict[tuple[Place, str], dict] = {}
    for row in result_rows:
        if row["control"] is None:
            where = place_of(feed, row), row["pane"][0]
            assert where not in rows_by_pane, f"{at}: {where} came twice"
            rows_by_pane[where] = row
    rows_at = {(place, timing): rows for place, timing, rows in expected}
    missing, strange = rows_at.keys() - rows_by_pane.keys(), rows_by_pane.keys() - rows_at.keys()
    assert rows_at.keys() == rows_by_pane.keys(), (
        f"{at}: missing {sorted(map(str, missing))}, strange {sorted(map(str, strange))}"
    )
    for where, rows in rows_at.items():
        check(expectations, rows_by_pane[where], rows, f"{at}, {where}")
    return len(rows_at)


def check(expectations: Sequence[Expectation], row: dict[str, Any], rows: Iterable[Row], at: str) -> None:
    check_in_order(expectations, row, sorted(rows, key=lambda one: one.place), at)


def check_in_order(expectations: Sequence[Expectation], row: dict[str, Any], inside: list[Row], at: str) -> None:
    for one in expectations:
        assert one.fits(row[one.name], inside), (
            f"{at}: {one.spec.describe()} gave {row[one.name]!r}, expected {one.expect(inside)!r} of "
            f"{[(each.values, each.time) for each in inside]}"
        )


def frame_of(window: Any, time: int) -> int:
    """The end of a time's frame."""
    return time - (time - window.offset_ms) % window.slide_ms + window.slide_ms


class SlidingModel:
    """All rows of all windows that are not closed."""

    def __init__(self, feed: Feed, plan: WindowPlan) -> None:
        self.feed, self.plan, self.window = feed, plan, plan.window
        self.open_rows: dict[tuple[tuple, int], list[Row]] = {}

    def open(self) -> bool:
        return bool(self.open_rows)

    def ends(self, time: int) -> list[int]:
        first = frame_of(self.window, time)
        return list(range(first, first + self.window.size_ms, self.window.slide_ms))

    def add_batch(self, batch: Batch) -> list[tuple[Place, str, list[Row]]]:
        results = self.closed(batch.before)
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
                        self.open_rows.setdefault((where[0], end), []).append(row)
        if self.plan.late is LatePolicy.EMIT:
            results += [(self.place(*at), "expired", rows) for at, rows in expired.items()]
        return results + self.closed(batch.after)

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
        ended = [at for at in self.open_rows if watermark is not None and at[1] <= watermark]
        return [(self.place(*at), "on_time", self.open_rows.pop(at)) for at in ended]


class SessionModel:
    """All rows of all sessions that are not closed; sessions are found anew each time."""

    def __init__(self, feed: Feed, plan: WindowPlan) -> None:
        self.feed, self.plan, self.window = feed, plan, plan.window
        self.merges = plan.window.touching is Touching.MERGE
        self.open_rows: list[Row] = []

    def open(self) -> bool:
        return bool(self.open_rows)

    def sessions(self, rows: Iterable[Row]) -> list[list[Row]]:
        sessions: list[list[Row]] = []
        last: dict[tuple, list[Row]] = {}
        for row in sorted(rows, key=lambda one: one.place):
            session = last.get(self.feed.key(row))
            if session is not None and row.time < self.end(session) + self.merges:
                session.append(row)
            else:
                last[self.feed.key(row)] = [row]
                sessions.append(last[self.feed.key(row)])
        return sessions

    def end(self, session: list[Row]) -> int:
        return max(row.time for row in session) + self.window.gap_ms

    def add_batch(self, batch: Batch) -> list[tuple[Place, str, list[Row]]]:
        results = self.closed(batch.before)
        fresh, expired = [], []
        for task in batch.tasks:
            for run in self.sessions(row for row in task if row.time is not None):
                late = batch.before is not None and max(row.time for row in run) < batch.before
                (expired if late and self.plan.late_rule is LateRule.EVENT else fresh).extend(run)
        late_runs = self.sessions(expired)
        known_ids = set(map(id, self.open_rows))
        self.open_rows += fresh
        if batch.before is not None:
            for session in self.sessions(self.open_rows):
                if self.end(session) + self.merges <= batch.before:
                    assert not any(id(row) in known_ids for row in session)
                    late_runs.append(session)
        late_ids = {id(row) for session in late_runs for row in session}
        self.open_rows = [row for row in self.open_rows if id(row) not in late_ids]
        if self.plan.late is LatePolicy.EMIT:
            results += [(self.place(session), "expired", session) for session in late_runs]
        return results + self.closed(batch.after)

    def place(self, session: list[Row]) -> Place:
        return self.feed.key(session[0]), session[0].time, self.end(session)

    def closed(self, watermark: int | None) -> list[tuple[Place, str, list[Row]]]:
        if watermark is None:
            return []
        done = [session for session in self.sessions(self.open_rows) if self.end(session) + self.merges <= watermark]
        closed_ids = {id(row) for session in done for row in session}
        self.open_rows = [row for row in self.open_rows if id(row) not in closed_ids]
        return [(self.place(session), "on_time", session) for session in done]
