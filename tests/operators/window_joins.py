"""A model in plain Python of joins of windows: message by message, and nothing of two windowed sides is forgotten."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pyarrow as pa

from keyedwm.operators.messages.join.plan import WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, RowWindow
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin
from tests.operators.laws.small import SMALL
from tests.operators.stored import KEEP_ALL, SCHEMA, Message, random_messages, table

NAMES = ("left", "right")
_NEVER = -(10**9)


def plan_of(window, *, unbounded: str = "", retention: Retention = KEEP_ALL, **settings) -> WindowJoinPlan:
    sides = {name: WindowJoinSide(name=name, schema=SCHEMA, on=("k",), unbounded=name == unbounded) for name in NAMES}
    return WindowJoinPlan(**sides, window=window, retention=retention, **settings)


@dataclass
class SideModel:
    is_unbounded: bool
    accepted: list[tuple[Message, int]] = field(default_factory=list)
    seen_records: set = field(default_factory=set)
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
        candidate_starts = range(last, last - self.size, -step)
        return sorted(start for start in candidate_starts if lowest <= start <= at < start + self.size)

    def add_message(self, name: str, messages: list[Message]) -> None:
        for one in messages:
            self.add_one_message(name, one)

    def add_one_message(self, name: str, one: Message) -> None:
        side, other = self.sides[name], self.sides[NAMES[name == "left"]]
        if one[3:] in side.seen_records:
            return
        side.seen_records.add(one[3:])
        at = one.offset - side.first.setdefault((one.topic, one.partition), one.offset) if self.is_rows else one.time
        if at is None:
            side.rejected.append((one, "no event time"))
            return
        starts = self.starts(at, self.size if side.is_unbounded else self.step)
        horizon = side.horizon
        if self.plan.full is CompletedBy.MESSAGE and not self.is_rows:
            self.advance(side, at)
        if not starts:
            side.rejected.append((one, "between windows"))
        elif starts[-1] + self.size <= self.floor_at(side, horizon):
            side.rejected.append((one, "outside the retention"))
        else:
            is_late = not side.is_unbounded and not self.is_rows and starts[0] + self.size <= horizon
            self.join_message(name, (one, at), other, late=is_late)
            side.accepted.append((one, at))
        if side.is_unbounded or other.is_unbounded:
            for each in (side, other):
                each.accepted = [(m, a) for m, a in each.accepted if self.last_end(each, a) > each.floor]

    def last_end(self, side: SideModel, at: int) -> int:
        return self.starts(at, self.size if side.is_unbounded else self.step)[-1] + self.size

    def join_message(self, name: str, arrival: tuple[Message, int], other: SideModel, *, late: bool) -> None:
        for partner in other.accepted:
            left, right = (arrival, partner) if name == "left" else (partner, arrival)
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

    def kept_rows(self, *, first: bool, outer: tuple[str, ...] = ()) -> dict[tuple, tuple]:
        """The first or the last message of each side, by key and start of the window; outer: which may stand alone."""
        sides_by_name: dict[str, dict] = {}
        for name, side in self.sides.items():
            windows: dict[tuple, list] = {}
            for one, at in side.accepted:
                for start in self.starts(at, self.step):
                    windows.setdefault((one.k, start), []).append((at, *one[3:]))
            sides_by_name[name] = {
                place: (min if first else max)(candidates)[1:] for place, candidates in windows.items()
            }
        left, right = sides_by_name.values()
        places = (left.keys() & right.keys()).union(*(sides_by_name[name] for name in outer))
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
        if self.plan.full is CompletedBy.WATERMARK and not self.is_rows:
            self.advance(side, time)
            if any(one.is_unbounded for one in self.sides.values()):
                side.accepted = [(m, a) for m, a in side.accepted if self.last_end(side, a) > side.floor]


@dataclass
class Waiting:
    name: str
    arrival: tuple[Message, int]
    end: int
    late: bool


class ClockModel(Model):
    """With intervals, and nothing is forgotten: what waits comes when its window is full, or when the clock says so."""

    def __init__(self, plan: WindowJoinPlan) -> None:
        super().__init__(plan)
        self.waiting: list[Waiting] = []
        self.tops: dict = {}
        self.now = 0
        self.beat: int | None = None  # where it began
        self.early_due: int | None = None
        self.late_due: dict[int, int] = {}

    def add_message(self, name: str, messages: list[Message], now: int = 0) -> None:
        self.now = now
        for one in messages:
            place = (name, one.topic, one.partition)
            self.tops[place] = max(self.tops.get(place, _NEVER), one.offset)
            self.add_one_message(name, one)
        self.show_full()
        self.timeout(now)

    def watermark(self, name: str, time: int) -> None:
        super().watermark(name, time)
        self.show_full()

    def timeout(self, now: int) -> None:
        is_early = self.early_due is not None and self.early_due <= now
        self.show(lambda one: (self.late_due[one.end] <= now) if one.late else is_early)

    def join_message(self, name: str, arrival: tuple[Message, int], _other: SideModel, *, late: bool) -> None:
        every = self.plan.late_every_ms if late else self.plan.early_every_ms
        if every is None:
            self.arrive(name, arrival, late=late)
            return
        step = self.size if self.sides[name].is_unbounded else self.step
        end = self.starts(arrival[1], step)[0] + self.size
        self.waiting.append(Waiting(name, arrival, end, late))
        if late:
            self.late_due.setdefault(end, self.now + every)
        elif self.early_due is None:
            self.beat = self.now if self.beat is None else self.beat
            self.early_due = self.now + every - (self.now - self.beat) % every

    def arrive(self, name: str, arrival: tuple[Message, int], *, late: bool) -> None:
        other = NAMES[name == "left"]
        waits = [one.arrival for one in self.waiting if one.name == other]
        visible_messages = [one for one in self.sides[other].accepted if one not in waits]
        super().join_message(name, arrival, replace(self.sides[other], accepted=visible_messages), late=late)

    def show_full(self) -> None:
        self.show(lambda one: not one.late and one.end <= self.full(one))

    def full(self, one: Waiting) -> int:
        side, message = self.sides[one.name], one.arrival[0]
        if side.is_unbounded:
            return _NEVER
        if not self.is_rows:
            return side.horizon
        channel = (message.topic, message.partition)
        return (
            self.tops[(one.name, *channel)] - side.first[channel] if self.plan.full is CompletedBy.MESSAGE else _NEVER
        )

    def show(self, is_due) -> None:
        due = [one for one in self.waiting if is_due(one)]
        for one in sorted(due, key=lambda one: one.late):
            self.waiting.remove(one)
            self.arrive(one.name, one.arrival, late=one.late)
        ends = {one.end for one in self.waiting if one.late}
        self.late_due = {end: at for end, at in self.late_due.items() if end in ends}
        if all(one.late for one in self.waiting):
            self.early_due = None

    def next_timeout(self) -> int | None:
        return min((at for at in (self.early_due, *self.late_due.values()) if at is not None), default=None)

    def finish(self) -> None:
        self.show(lambda _: True)


class PlayedWindowJoin:
    """The operator, put away and built anew after each step."""

    def __init__(self, plan: WindowJoinPlan) -> None:
        self.plan, self.store = plan, MemoryStore(limits=SMALL)
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
        pairs = [pair_tuple(row) for row in rows]
        self.operator = WindowJoin(self.plan, self.store)
        return pairs


def pair_tuple(row: dict) -> tuple:
    start = next(iter(row["window"].values()))
    start = start if isinstance(start, int) else round(start.timestamp() * 1000)
    records = [row[f"{name}_{side}"] for side in NAMES for name in ("topic", "partition", "offset")]
    return (*records, start, row["timing"])


def steps(seed: int, count: int) -> list[tuple]:
    """Messages of both sides in turn, cut anywhere, with watermarks that trail them."""
    rng = random.Random(seed)
    remaining_messages = {name: random_messages(2 * seed + at, count) for at, name in enumerate(NAMES)}
    tops = dict.fromkeys(NAMES, _NEVER)
    all_steps: list[tuple] = []
    while any(remaining_messages.values()):
        name = rng.choice([one for one in NAMES if remaining_messages[one]])
        size = rng.choice([1, 2, 5, 20])
        piece, remaining_messages[name] = remaining_messages[name][:size], remaining_messages[name][size:]
        all_steps.append(("add_message", name, piece))
        tops[name] = max([tops[name], *(one.time for one in piece if one.time is not None)])
        if rng.random() < 0.5:
            all_steps.append(("watermark", name, tops[name] - rng.randrange(20)))
    return all_steps


def recut(seed: int, all_steps: list[tuple]) -> list[tuple]:
    """The same messages in the same order of sides, cut otherwise."""
    rng, new_steps = random.Random(seed), []
    for name, side, argument in all_steps:
        if name != "add_message":
            new_steps.append((name, side, argument))
        rest = argument if name == "add_message" else []
        while rest:
            size = rng.choice([1, 3, len(rest)])
            new_steps.append((name, side, rest[:size]))
            rest = rest[size:]
    return new_steps


def as_table(name: str, argument) -> pa.Table:
    return table(argument) if name == "add_message" else argument
