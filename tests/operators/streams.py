"""Random streams, plans over one table shape, and a brute-force model of what windows must hold."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pyarrow as pa

from conformance.driver import DrivenOperator
from keyedwm.core.window_rules import LateRule, Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.state.store import LIMITS, StateLimits

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("offset", pa.int64()),
    ]
)
PRODUCT = agg.Aggregate(
    column="n",
    result=pa.int64(),
    create=lambda: 1,
    accumulate=lambda product, value: product * (value or 1) % 10007,
    combine=lambda one, other: one * other % 10007,
)
AGGREGATES = (
    ("rows", agg.count()),
    ("values", agg.count("n")),
    ("total", agg.sum("n")),
    ("exact", agg.sum("x")),
    ("mean", agg.avg("n")),
    ("mean_x", agg.avg("x")),
    ("low", agg.min("n")),
    ("high", agg.max("x")),
    ("low_s", agg.min("s")),
    ("high_s", agg.max("s")),
    ("first", agg.first("s")),
    ("last", agg.last("n")),
    ("all", agg.collect("n")),
    ("distinct", agg.approx_count_distinct("s")),
    ("product", PRODUCT),
)


@dataclass(frozen=True)
class Event:
    k: str | None
    time_ms: int
    n: int | None
    x: float | None
    s: str | None
    offset: int


def plan_of(window, aggregates=AGGREGATES, by=("k",), **settings) -> WindowPlan:
    settings.setdefault("order", ("offset",))
    return WindowPlan(schema=SCHEMA, by=by, window=window, aggregates=aggregates, **settings)


def events(seed: int, count: int, *, span_ms: int = 100, keys: int = 3) -> list[Event]:
    rng = random.Random(seed)
    names = [None, *"abcdefgh"][:keys]
    stream_events = []
    for offset in range(count):
        time_ms = offset * span_ms // count + rng.randrange(-10, 10)
        n = None if rng.random() < 0.1 else rng.randrange(-50, 50)
        x = None if rng.random() < 0.1 else rng.choice([0.1, -0.3, 1e5, -1e5, 0.25, rng.uniform(0.5, 1)])
        stream_events.append(Event(rng.choice(names), time_ms, n, x, rng.choice([None, "p", "q", "rr", ""]), offset))
    return stream_events


def table(rows: Iterable[Event]) -> pa.Table:
    rows = list(rows)
    times = pa.array([row.time_ms * 1000 for row in rows], pa.int64()).view(SCHEMA.field("event_time").type)
    columns = {name: [getattr(row, name) for row in rows] for name in ("k", "n", "x", "s", "offset")}
    arrays = [times if field.name == "event_time" else pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.table(arrays, schema=SCHEMA)


def split_rows(seed: int, rows: list, pieces: int) -> list[list]:
    """Into at most so many runs, none empty."""
    rng = random.Random(seed)
    borders = sorted({0, len(rows), *(rng.randrange(len(rows) + 1) for _ in range(pieces - 1))})
    return [rows[low:high] for low, high in pairwise(borders)]


def rows_of(results: pa.Table) -> list[dict]:
    """Results as dicts, times in ms."""
    rows = []
    for row in results.to_pylist():
        window = row.pop("window")
        start, end = ((window[edge] - EPOCH) // timedelta(milliseconds=1) for edge in ("start", "end"))
        rows.append({"start": start, "end": end, **row})
    return rows


class Restarted:
    """An operator that is put away and built anew around every step, from a store that only `changed` writes to."""

    def __init__(self, plan: WindowPlan, limits: StateLimits = LIMITS) -> None:
        self.plan, self.limits = plan, limits
        self.blobs: dict[str, bytes] = {}
        self.late_rows = 0

    def step(self, name: str, *arguments) -> pa.Table:
        operator = DrivenOperator(self.plan, self.blobs, self.limits)
        results = getattr(operator, name)(*arguments)
        changed_blobs, removed_names = operator.changed()
        self.blobs = {name: blob for name, blob in self.blobs.items() if name not in removed_names} | changed_blobs
        self.late_rows += operator.late_rows
        return results

    def take(self, partials, now_ms=None):
        return self.step("take", partials, now_ms)

    def advance(self, watermark_ms):
        return self.step("advance", watermark_ms)

    def clock(self, now_ms):
        return self.step("clock", now_ms)

    def complete(self):
        return self.step("complete")


def play_batches(plan: WindowPlan, operator, batches: Iterable[tuple[list[list[Event]], int | None]]) -> list[dict]:
    """Each batch: tasks (lists of events, combined apart), then a watermark."""
    result_rows = []
    for tasks, watermark_ms in batches:
        partials = [combine_rows(plan, table(rows)) for rows in tasks]
        if partials:
            result_rows += rows_of(operator.take(pa.concat_tables(partials)))
        if watermark_ms is not None:
            result_rows += rows_of(operator.advance(watermark_ms))
    return [*result_rows, *rows_of(operator.complete())]


def windows_of(window, rows: list[Event]) -> Iterator[tuple[int, int, str | None, list[Event]]]:
    """Brute force: every window of every key that holds an event."""
    for key in {row.k for row in rows}:
        key_rows = sorted((row for row in rows if row.k == key), key=lambda row: (row.time_ms, row.offset))
        if isinstance(window, SessionWindow):
            yield from sessions_of(window, key, key_rows)
            continue
        ends = {
            window.offset_ms + ((row.time_ms - window.offset_ms) // window.slide_ms + step) * window.slide_ms
            for row in key_rows
            for step in range(1, window.size_ms // window.slide_ms + 1)
        }
        for end in ends:
            inside = [row for row in key_rows if end - window.size_ms <= row.time_ms < end]
            yield end - window.size_ms, end, key, inside


def sessions_of(
    window: SessionWindow, key, key_rows: list[Event]
) -> Iterator[tuple[int, int, str | None, list[Event]]]:
    session_rows: list[Event] = []
    for row in key_rows:
        reach = session_rows[-1].time_ms + window.gap_ms if session_rows else row.time_ms
        if session_rows and (row.time_ms > reach or (row.time_ms == reach and window.touching is Touching.SEPARATE)):
            yield session_rows[0].time_ms, reach, key, session_rows
            session_rows = []
        session_rows = [*session_rows, row]
    yield session_rows[0].time_ms, session_rows[-1].time_ms + window.gap_ms, key, session_rows


LATE_RULES = (LateRule.WINDOW, LateRule.FRAME)
WINDOWS = (
    SlidingWindow(10, 10),
    SlidingWindow(20, 5),
    SlidingWindow(12, 3, 2),
    SlidingWindow(60, 1),
    SessionWindow(3),
    SessionWindow(5, Touching.SEPARATE),
)
