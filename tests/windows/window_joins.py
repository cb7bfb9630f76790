"""A model in plain Python of joins of windows: message by message, and nothing of two windowed sides is forgotten."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa

from keyedwm.windows import WindowJoin
from keyedwm.windows.state.store import MemoryStore
from keyedwm.windows.store.join.plan import WindowJoinPlan, WindowJoinSide
from keyedwm.windows.store.plan import Full, RowWindow
from keyedwm.windows.store.retention import Retention
from tests.windows.stored import KEEP_ALL, SCHEMA, Message, random_messages, table

NAMES = ("left", "right")
_NEVER = -(10**9)


def plan_of(window, *, unbounded: str = "", retention: Retention = KEEP_ALL, **settings) -> WindowJoinPlan:
    sides = {name: WindowJoinSide(name=name, schema=SCHEMA, on=("k",), unbounded=name == unbounded) for name in NAMES}
    return WindowJoinPlan(**sides, window=window, retention=retention, **settings)


@dataclass
class SideModel:
    is_unbounded: bool
    accepted: list[tuple[Message, int]] = field(default_factory=list)
    seen: set = field(default_factory=set)
    first: dict = field(default_factory=dict)
    horizon: int = _NEVER
    floor: int = _NEVER
    rejected: list = field(default_factory=list)


class Model:
    def __init__(self, plan: WindowJoinPlan) -> None:
        self.plan, self.is_rows = plan, isinstance(plan.window, RowWindow)
        window = plan.window
        self.size = window.size if self.is_rows else window.size_ms
        self.step = window.step if self.is_rows else getattr(window, "step_ms", getattr(window, "slide_ms", None))
        self.origin = 0 if self.is_rows else window.offset_ms
        self.sides = {side.name: SideModel(side.unbounded) for side in plan.sides}
        self.pairs: list[tuple] = []

    def starts(self, at: int, step: int) -> list[int]:
        last, lowest = at - (at - self.origin) % step, 0 if self.is_rows else _NEVER
        begun = range(last, last - self.size, -step)
        return sorted(start for start in begun if lowest <= start <= at < start + self.size)

    def add_message(self, name: str, messages: list[Message]) -> None:
        for one in messages:
            self.take(name, one)

    def take(self, name: str, one: Message) -> None:
        side, other = self.sides[name], self.sides[NAMES[name == "left"]]
        if one[3:] in side.seen:
            return
        side.seen.add(one[3:])
        at = one.offset - side.first.setdefault((one.topic, one.partition), one.offset) if self.is_rows else one.time
        if at is None:
            side.rejected.append((one, "no event time"))
            return
        starts = self.starts(at, self.size if side.is_unbounded else self.step)
        horizon = side.horizon
        if self.plan.full is Full.MESSAGE and not self.is_rows:
            self.advance(side, at)
        if not starts:
            side.rejected.append((one, "between windows"))
        elif starts[-1] + self.size <= self.floor_at(side, horizon):
            side.rejected.append((one, "outside the retention"))
        else:
            is_late = not side.is_unbounded and not self.is_rows and starts[0] + self.size <= horizon
            self.meet(name, (one, at), other, late=is_late)
            side.accepted.append((one, at))
        if side.is_unbounded or other.is_unbounded:
            for each in (side, other):
                each.accepted = [(m, a) for m, a in each.accepted if self.last_end(each, a) > each.floor]

    def last_end(self, side: SideModel, at: int) -> int:
        return self.starts(at, self.size if side.is_unbounded else self.step)[-1] + self.size

    def meet(self, name: str, mine: tuple[Message, int], other: SideModel, *, late: bool) -> None:
        for theirs in other.accepted:
            left, right = (mine, theirs) if name == "left" else (theirs, mine)
            windows = [
                set(self.starts(at, self.step)) for (_, at), model in
                zip((left, right), (self.sides["left"], self.sides["right"]), strict=True) if not model.is_unbounded
            ]  # fmt: skip
            shared = set.intersection(*windows)
            same = left[0].k is not None and left[0].k == right[0].k
            if self.is_rows and len(windows) == 2:
                same = same and left[0].partition == right[0].partition
            if same and shared:
                start = min(shared)
                if self.is_rows:
                    where = "right" if self.sides["left"].is_unbounded else "left"
                    owner = left[0] if where == "left" else right[0]
                    start += self.sides[where].first[owner.topic, owner.partition]
                self.pairs.append((*left[0][3:], *right[0][3:], start, "late" if late else "early"))

    def chosen(self, *, first: bool, outer: tuple[str, ...] = ()) -> dict[tuple, tuple]:
        """The first or the last message of each side, by key and start of the window; outer: which may stand alone."""
        held: dict[str, dict] = {}
        for name, side in self.sides.items():
            windows: dict[tuple, list] = {}
            for one, at in side.accepted:
                for start in self.starts(at, self.step):
                    windows.setdefault((one.k, start), []).append((at, *one[3:]))
            held[name] = {place: (min if first else max)(found)[1:] for place, found in windows.items()}
        left, right = held.values()
        places = (left.keys() & right.keys()).union(*(held[name] for name in outer))
        none = (None,) * 3
        return {at: (*left.get(at, none), *right.get(at, none)) for at in places if at[0] is not None}

    def floor_at(self, side: SideModel, horizon: int) -> int:
        kept_for = self.plan.retention.time_ms
        if kept_for is None or horizon == _NEVER:
            return side.floor
        step = self.size if side.is_unbounded else self.step
        last = horizon - kept_for
        return max(side.floor, last - (last - self.origin - self.size) % step)

    def advance(self, side: SideModel, horizon: int) -> None:
        if horizon > side.horizon:
            side.floor, side.horizon = self.floor_at(side, horizon), horizon

    def watermark(self, name: str, time: int) -> None:
        side = self.sides[name]
        if self.plan.full is Full.WATERMARK and not self.is_rows:
            self.advance(side, time)
            if any(one.is_unbounded for one in self.sides.values()):
                side.accepted = [(m, a) for m, a in side.accepted if self.last_end(side, a) > side.floor]


class Played:
    """The operator, put away and built anew after each step."""

    def __init__(self, plan: WindowJoinPlan) -> None:
        self.plan, self.store = plan, MemoryStore()
        self.operator = WindowJoin(plan, self.store)
        self.rejected: dict[str, list] = {name: [] for name in NAMES}
        self.keys: list[str] = []

    def step(self, name: str, *arguments) -> list[tuple]:
        getattr(self.operator, name)(*arguments)
        for side in NAMES:
            self.rejected[side] += [
                (Message(*list(row.values())[:-1]), row["reason"])
                for row in self.operator.get_rejected(side).to_pylist()
            ]
        rows = self.operator.flush().to_pylist()
        self.keys += [row["k"] for row in rows]
        made = [shown(row) for row in rows]
        self.operator = WindowJoin(self.plan, self.store)
        return made


def shown(row: dict) -> tuple:
    start = next(iter(row["window"].values()))
    start = start if isinstance(start, int) else round(start.timestamp() * 1000)
    records = [row[f"{name}_{side}"] for side in NAMES for name in ("topic", "partition", "offset")]
    return (*records, start, row["timing"])


def steps(seed: int, count: int) -> list[tuple]:
    """Messages of both sides in turn, cut anywhere, with watermarks that trail them."""
    rng = random.Random(seed)
    left = {name: random_messages(2 * seed + at, count) for at, name in enumerate(NAMES)}
    tops = dict.fromkeys(NAMES, _NEVER)
    made: list[tuple] = []
    while any(left.values()):
        name = rng.choice([one for one in NAMES if left[one]])
        size = rng.choice([1, 2, 5, 20])
        piece, left[name] = left[name][:size], left[name][size:]
        made.append(("add_message", name, piece))
        tops[name] = max([tops[name], *(one.time for one in piece if one.time is not None)])
        if rng.random() < 0.5:
            made.append(("watermark", name, tops[name] - rng.randrange(20)))
    return made


def recut(seed: int, given: list[tuple]) -> list[tuple]:
    """The same messages in the same order of sides, cut otherwise."""
    rng, made = random.Random(seed), []
    for name, side, what in given:
        if name != "add_message":
            made.append((name, side, what))
        rest = what if name == "add_message" else []
        while rest:
            size = rng.choice([1, 3, len(rest)])
            made.append((name, side, rest[:size]))
            rest = rest[size:]
    return made


def as_table(name: str, what) -> pa.Table:
    return table(what) if name == "add_message" else what
