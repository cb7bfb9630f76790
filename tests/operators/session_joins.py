"""A model in plain Python of joins of sessions, and its differential run.

python -m tests.operators.session_joins 10000 [FIRST]
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.plan import Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.state.store import MemoryStore, StateLimits
from keyedwm.windows import WindowJoin
from tests.operators.laws.kinds import SESSIONS as WINDOWS
from tests.operators.laws.scalar import NEVER
from tests.operators.laws.small import SMALL
from tests.operators.stored import KEEP_ALL, SCHEMA, Message, cut, random_messages, table

SIDES = ("left", "right")
RETENTIONS = (KEEP_ALL, Retention(time_ms=15), Retention(max_messages=20), Retention(max_windows=5))
HOWS = (How.INNER, How.LEFT, How.RIGHT, How.FULL)


@dataclass
class SessionJoinModel:
    """Messages of both sides, each with its side; sessions are found anew each time."""

    plan: WindowJoinPlan
    held: list = field(default_factory=list)
    seen: set = field(default_factory=set)
    shown: set = field(default_factory=set)  # messages
    pairs: set = field(default_factory=set)
    made: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    marks: list = field(default_factory=lambda: [NEVER, NEVER])
    complete: int = NEVER
    floor: int = NEVER

    def end(self, mine: list) -> int:
        return mine[-1][1].time + self.plan.window.gap_ms

    def sessions(self) -> list[list]:
        found: list[list] = []
        last: dict = {}
        merges = self.plan.window.touching.value == "merge"
        for one in sorted(self.held, key=lambda one: (one[1].time, one[0], *one[1][3:])):
            mine = last.get(one[1].k)
            if one[1].k is None:  # meets nothing
                found.append([one])
            elif mine is not None and one[1].time < self.end(mine) + merges:
                mine.append(one)
            else:
                last[one[1].k] = [one]
                found.append(last[one[1].k])
        return found

    def take(self, side: int, messages: list[Message]) -> None:
        fresh = set()
        by_message = self.plan.emit is not Emit.FINAL
        if by_message:
            messages = sorted(messages, key=lambda one: (-1 if one.time is None else one.time, *one[3:]))
        for one in messages:
            if (side, *one[3:]) in self.seen:
                continue
            self.seen.add((side, *one[3:]))
            if one.time is None:
                self.rejected.append((side, one, "no event time"))
            elif one.time + self.plan.window.gap_ms <= self.floor:
                self.rejected.append((side, one, "outside the retention"))
            else:
                fresh.add((side, one))
                self.held.append((side, one))
                if by_message:
                    (mine,) = (mine for mine in self.sessions() if (side, one) in mine)
                    self.show(mine, "late" if self.end(mine) <= self.complete else "early")
        if by_message:
            return
        for mine in self.sessions():
            if fresh & set(mine) and self.end(mine) <= self.complete:
                self.show(mine, "late")

    def watermark(self, side: int, time: int) -> None:
        self.marks[side] = max(self.marks[side], time)
        self.move(min(self.marks))
        self.limit()

    def move(self, time: int) -> None:
        merges = self.plan.window.touching.value == "merge"
        before, self.complete = self.complete, max(self.complete, time - merges)
        for mine in self.sessions():
            if before < self.end(mine) <= self.complete and self.plan.emit is Emit.FINAL:
                self.show(mine, "on_time")
        if self.plan.retention.time_ms is not None:
            self.expire(time - self.plan.retention.time_ms - merges)

    def expire(self, last: int) -> None:
        self.floor = max(self.floor, last)
        self.held = [one for mine in self.sessions() if self.end(mine) > self.floor for one in mine]

    def limit(self) -> None:
        sessions, limits = self.sessions(), self.plan.retention
        for end in sorted({NEVER, *(self.end(mine) for mine in sessions)}):
            rest = [mine for mine in sessions if self.end(mine) > end]
            sizes = (len(rest), limits.max_windows), (sum(map(len, rest)), limits.max_messages)
            if all(most is None or many <= most for many, most in sizes):
                break
        if end > NEVER:
            for mine in sessions:
                if self.complete < self.end(mine) <= end and self.plan.emit is Emit.FINAL:
                    self.show(mine, "early")
            self.expire(end)

    def finish(self) -> None:
        self.marks = [10**9, 10**9]
        self.move(10**9)
        self.expire(10**9)

    def show(self, mine: list, timing: str) -> None:
        window = mine[0][1].time, self.end(mine)
        if self.plan.emit is Emit.RUNNING:
            self.shown, self.pairs = set(), set()  # all of it comes again
        elif self.plan.emit is Emit.PAIRED:
            mine = [one for one in mine if one not in self.shown]
            if len({side for side, _ in mine}) < len(SIDES):
                return
        sides = [[one for side, one in mine if side == number] for number in (0, 1)]
        meet = all(sides) and mine[0][1].k is not None
        chosen = sides
        if self.plan.keep is not Keep.ALL and mine[0][1].k is not None:
            chosen = [side[:1] if self.plan.keep is Keep.FIRST else side[-1:] for side in sides]
        if meet:
            for left in chosen[0]:
                for right in chosen[1]:
                    if (left, right) not in self.pairs:
                        self.pairs.add((left, right))
                        self.made.append((*window, left, right, timing))
        else:
            for number in self.plan.outer:
                for one in chosen[number]:
                    if (number, one) not in self.shown:
                        self.made.append((*window, *((one, None) if number == 0 else (None, one)), timing))
        self.shown |= set(mine)


def join_plan(window, keep=Keep.ALL, how=How.INNER, retention=KEEP_ALL, **settings) -> WindowJoinPlan:
    left, right = (WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in SIDES)
    return WindowJoinPlan(left=left, right=right, window=window, retention=retention, keep=keep, how=how, **settings)


def pair_of(row: dict) -> tuple:
    """Window, both messages, timing; a key that is null tells nothing of who has it."""
    start, end = (round(edge.timestamp() * 1_000) for edge in row["window"].values())
    both = [
        None if row[f"offset_{side}"] is None
        else Message(row["k"], *(row[f"{name}_{side}"] for name in SCHEMA.names[1:]))
        for side in SIDES
    ]  # fmt: skip
    return start, end, *both, row["timing"]


class PlayedJoin:
    """A standalone join that is put away and built anew after each step."""

    def __init__(self, plan: WindowJoinPlan, *, always: bool, limits: StateLimits = SMALL) -> None:
        self.plan, self.always, self.store = plan, always, MemoryStore(limits=limits)
        self.join = WindowJoin(plan, self.store)
        self.made: list = []
        self.rejected: list = []

    def step(self, name: str, *arguments) -> list:
        getattr(self.join, name)(*arguments)
        for number, side in enumerate(SIDES):
            for row in self.join.get_rejected(side).to_pylist():
                *one, reason = row.values()
                self.rejected.append((number, Message(*one), reason))
        found = [pair_of(row) for row in self.join.flush().to_pylist()]
        self.made += found
        if self.always:
            self.join = WindowJoin(self.plan, self.store)
        return found


def steps_of(seed: int, count: int) -> list[tuple]:
    """Of both sides, mixed, each in its order."""
    rng = random.Random(f"join {seed}")
    both = [cut(f"{seed} {side}", random_messages(f"{seed} {side}", count), watermarks=True) for side in SIDES]
    steps = []
    while any(both):
        number = rng.choice([number for number, rest in enumerate(both) if rest])
        name, given = both[number].pop(0)
        steps.append((name, number, given))
    return steps


def differential(seed: int, window, count: int, emit: Emit = Emit.FINAL, *, limits: StateLimits = SMALL) -> int:
    """Play random messages to the join and to the model; return how many rows there were."""
    retention, how = RETENTIONS[seed % len(RETENTIONS)], HOWS[seed // 4 % len(HOWS)]
    how = How.INNER if emit is Emit.PAIRED else how
    plan = join_plan(window, list(Keep)[seed // 16 % len(Keep)], how, retention, emit=emit)
    model, played = SessionJoinModel(plan), PlayedJoin(plan, always=seed % 3 != 2, limits=limits)
    given = [0, 0]
    for name, number, what in steps_of(seed, count):
        begin = len(model.made)
        if name == "add_message":
            given[number] += len(what)
            model.take(number, what)
        else:
            model.watermark(number, what)
        found = played.step(name, SIDES[number], table(what) if name == "add_message" else what)
        model.limit()
        assert sorted(found, key=str) == sorted(model.made[begin:], key=str)
    for number, side in enumerate(SIDES):
        counts = played.join.counts(side)
        held = sum(one[0] == number for one in model.held)
        assert counts.given == given[number] == counts.taken + counts.rejected + counts.replayed
        assert counts.taken - counts.expired - counts.dropped_messages == held
    begin = len(model.made)
    model.finish()
    assert sorted(played.step("finish"), key=str) == sorted(model.made[begin:], key=str)
    assert sorted(played.rejected, key=str) == sorted(model.rejected, key=str)
    assert emit is Emit.RUNNING or len(set(map(str, played.made))) == len(played.made)
    return len(model.made)


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    rows = 0
    for seed in range(first, first + seeds):
        try:
            rows += differential(
                seed, WINDOWS[seed // 48 % len(WINDOWS)], 10 + seed % 30, list(Emit)[seed // 288 % len(Emit)]
            )
        except AssertionError:
            print(f"seed {seed} differs")
            raise
        if (seed - first + 1) % 500 == 0:
            print(f"{seed - first + 1} seeds, {rows} rows", flush=True)
    print(f"{seeds} seeds, {rows} rows, no difference")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
