"""Random messages, and a model in plain Python of windows that keep their messages."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from keyedwm.operators.messages.functions import window_function
from keyedwm.operators.messages.plan import Full, StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("event_time", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
KEEP_ALL = Retention(max_messages=10**9)


class Message(NamedTuple):
    k: str | None
    n: int
    time: int | None
    topic: str
    partition: int
    offset: int


def told(window: pa.Table) -> str:
    return " ".join(f"{row['topic']}{row['partition']}:{row['offset']}" for row in window.to_pylist())


IN_ORDER = (("told", window_function(told, pa.string())),)


def plan_of(window, aggregates=IN_ORDER, by=("k",), retention=KEEP_ALL, **settings) -> StorePlan:
    return StorePlan(schema=SCHEMA, by=by, window=window, aggregates=tuple(aggregates), retention=retention, **settings)


def table(messages) -> pa.Table:
    columns = zip(*messages, strict=True) if messages else [[]] * len(SCHEMA)
    return pa.table([pa.array(column, one.type) for column, one in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def random_messages(seed: int, count: int, *, span: int = 100, channels: int = 3) -> list[Message]:
    """In order of offset by channel, with holes, out of order in time, with duplicates and redelivered runs."""
    rng = random.Random(seed)
    names = [("a", 0), ("a", 1), ("b", 0)][:channels]
    following = {name: rng.randrange(5) for name in names}
    made: list[Message] = []
    for at in range(count):
        name = rng.choice(names)
        time = at * span // count + rng.choice([0, 0, -3, 5, -30, 20, rng.randrange(-12, 12)])
        made.append(
            Message(
                rng.choice([None, "x", "y"]), rng.randrange(9), None if rng.random() < 0.05 else time, *name,
                following[name],
            )
        )  # fmt: skip
        following[name] += rng.choice([1, 1, 1, 3])
        if rng.random() < 0.1:
            made.append(rng.choice(made))
        if rng.random() < 0.03:
            made += made[-rng.randrange(1, 6) :]
    return made


@dataclass
class Model:
    """The same rules, one message at a time."""

    size: int
    step: int
    offset: int
    full: Full = Full.WATERMARK
    retention: Retention = KEEP_ALL
    rows: int | None = None
    late_rows: int | None = None
    accumulating: bool = True
    told: dict = field(default_factory=dict)
    held: list[Message] = field(default_factory=list)
    seen: set = field(default_factory=set)
    horizon: int = -(10**9)
    floor: int = -(10**9)
    shown: dict = field(default_factory=dict)
    rejected: list = field(default_factory=list)
    dropped: int = 0
    made: list = field(default_factory=list)

    def ends(self, time: int) -> list[int]:
        start = time - (time - self.offset) % self.step
        return sorted(s + self.size for s in range(start, start - self.size, -self.step) if s <= time < s + self.size)

    def take(self, messages: list[Message]) -> None:
        """A message may meet a window that goes by the messages before it: then these have their batch first."""
        horizon, kept_for = self.horizon, self.retention.time_ms
        fresh = [one for at, one in enumerate(messages) if one[3:] not in self.seen and one not in messages[:at]]
        for at, one in enumerate(fresh if self.full is Full.MESSAGE and kept_for else ()):
            floor = horizon - kept_for
            ends = [] if one.time is None else self.ends(one.time)
            if any(self.floor < end <= floor for end in ends) and ends[-1] > floor:
                self.take(fresh[:at])
                self.take(fresh[at:])
                return
            horizon = horizon if one.time is None else max(horizon, one.time)
        self.take_together(messages)

    def take_together(self, messages: list[Message]) -> None:
        before, fresh, horizon = self.horizon, [], self.horizon
        for one in messages:
            if one[3:] in self.seen:
                continue
            self.seen.add(one[3:])
            if one.time is None:
                self.rejected.append((one, "no event time"))
                continue
            ends = self.ends(one.time)
            floor = self.floor
            if self.retention.time_ms is not None:
                floor = max(floor, horizon - self.retention.time_ms)
            if not ends:
                self.rejected.append((one, "between windows"))
            elif ends[-1] <= floor:
                self.rejected.append((one, "outside the retention"))
            else:
                self.held.append(one)
                fresh.append(one)
            if self.full is Full.MESSAGE:
                horizon = max(horizon, one.time)
        changed = {(end, one.k) for one in fresh for end in self.ends(one.time)}
        late = [pair for pair in changed if self.floor < pair[0] <= before]
        self.show_late(late)
        if self.rows is not None:
            due = [(end, k) for end, k in changed if end > max(before, self.floor)]
            self.show([pair for pair in due if self.news(*pair) >= self.rows], "early")
        if self.full is Full.MESSAGE:
            self.advance(horizon)

    def show_late(self, pairs: list[tuple]) -> None:
        self.show([pair for pair in pairs if self.news(*pair) >= (self.late_rows or 0)], "late")

    def watermark(self, time: int) -> None:
        if self.full is Full.WATERMARK:
            self.advance(time)
            self.limit()

    def advance(self, time: int) -> None:
        if time <= self.horizon:
            return
        pairs = {
            (end, one.k)
            for one in self.held
            for end in self.ends(one.time)
            if max(self.horizon, self.floor) < end <= time
        }
        self.horizon = time
        self.show(pairs, "on_time")
        if self.retention.time_ms is not None:
            self.expire(time - self.retention.time_ms)

    def expire(self, last: int) -> int:
        before = len(self.held)
        if self.late_rows is not None:  # what was not enough
            pairs = {(end, one.k) for one in self.held for end in self.ends(one.time) if self.floor < end <= last}
            self.show([pair for pair in pairs if pair[0] <= self.horizon and self.news(*pair)], "late")
        self.floor = max(self.floor, last)
        self.held = [one for one in self.held if self.ends(one.time)[-1] > self.floor]
        return before - len(self.held)

    def limit(self) -> None:
        limits = self.retention
        while True:
            ends = sorted({end for one in self.held for end in self.ends(one.time) if end > self.floor})
            if not (
                (limits.max_windows is not None and len(ends) > limits.max_windows)
                or (limits.max_messages is not None and len(self.held) > limits.max_messages)
            ):
                return
            if ends[0] > self.horizon:
                self.show({(ends[0], one.k) for one in self.held if ends[0] in self.ends(one.time)}, "early", last=True)
            self.dropped += self.expire(ends[0])

    def news(self, end: int, k: str | None) -> int:
        return len(self.inside(end, k)) - self.shown.get((end, k), (0, 0))[1]

    def inside(self, end: int, k: str | None) -> list[Message]:
        mine = [one for one in self.held if one.k == k and end in self.ends(one.time)]
        return sorted(mine, key=lambda one: (one.time, *one[3:]))

    def show(self, pairs, timing: str, last: bool = False) -> None:
        for end, k in sorted(pairs, key=lambda pair: (pair[0], pair[1] is None, pair[1] or "")):
            inside = self.inside(end, k)
            index, _ = self.shown.get((end, k), (0, 0))
            new = inside
            if not self.accumulating:
                new = [one for one in inside if one[3:] not in self.told.setdefault((end, k), set())]
                self.told[end, k] |= {one[3:] for one in inside}
                if not new and timing != "on_time" and not last:
                    continue
            self.shown[end, k] = index + 1, len(inside)
            self.made.append((end - self.size, end, k, told(table(new)) if new else None, timing, index, last))


class Restarted:
    """A standalone operator that is put away and built anew after each step."""

    def __init__(self, plan: StorePlan, *, always: bool = True) -> None:
        self.plan, self.always, self.store = plan, always, MemoryStore()
        self.operator = WindowOperator(plan, self.store)
        self.made: list = []
        self.rejected: list = []

    def step(self, name: str, *arguments, flush: bool = True) -> list:
        getattr(self.operator, name)(*arguments)
        if not flush:
            return []
        self.rejected += [
            (Message(*list(row.values())[:-1]), row["reason"]) for row in self.operator.get_rejected().to_pylist()
        ]
        found = [shown(row) for row in self.operator.flush().to_pylist()]
        self.made += found
        if self.always:
            self.operator = WindowOperator(self.plan, self.store)
        return found


def shown(row: dict) -> tuple:
    start, end = row["window"].values()
    if not isinstance(start, int):
        start, end = (round(edge.timestamp() * 1000) for edge in (start, end))
    pane = row["pane"]
    return start, end, row["k"], row["told"], pane["timing"], pane["index"], pane["last"]


def cut(seed: int, messages: list[Message], watermarks: bool) -> list[tuple]:
    """Into steps: rows and, in between, watermarks that trail the messages."""
    rng = random.Random(seed)
    steps: list[tuple] = []
    at, top = 0, -(10**6)
    while at < len(messages):
        piece = messages[at : at + rng.choice([1, 2, 5, 20])]
        at += len(piece)
        steps.append(("add_message", piece))
        top = max([top, *(one.time for one in piece if one.time is not None)])
        if watermarks and rng.random() < 0.5:
            steps.append(("watermark", top - rng.randrange(0, 20)))
    return steps


def once_each(messages: list) -> list[list]:
    """In lists of which none has a record twice; at least one list."""
    seen: Counter = Counter()
    parts: list[list] = [[]]
    for one in messages:
        record = tuple(one)[3:]  # topic, partition and offset
        if seen[record] == len(parts):
            parts.append([])
        parts[seen[record]].append(one)
        seen[record] += 1
    return parts
