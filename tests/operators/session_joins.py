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
from tests.operators.stored import KEEP_ALL, SCHEMA, Message, random_messages, split_steps, table

SIDES = ("left", "right")
RETENTIONS = (KEEP_ALL, Retention(time_ms=15), Retention(max_messages=20), Retention(max_windows=5))
HOWS = (How.INNER, How.LEFT, How.RIGHT, How.FULL)


@dataclass
class SessionJoinModel:
    """Messages of both sides, each with its side; sessions are found anew each time."""

    plan: WindowJoinPlan
    held_messages: list = field(default_factory=list)
    seen_records: set = field(default_factory=set)
    shown_messages: set = field(default_factory=set)  # messages
    pairs: set = field(default_factory=set)
    results: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    marks: list = field(default_factory=lambda: [NEVER, NEVER])
    complete: int = NEVER
    floor: int = NEVER

    def end(self, session: list) -> int:
        return session[-1][1].time + self.plan.window.gap_ms

    def sessions(self) -> list[list]:
        sessions: list[list] = []
        last: dict = {}
        merges = self.plan.window.touching.value == "merge"
        for one in sorted(self.held_messages, key=lambda one: (one[1].time, one[0], *one[1][3:])):
            session = last.get(one[1].k)
            if one[1].k is None:  # meets nothing
                sessions.append([one])
            elif session is not None and one[1].time < self.end(session) + merges:
                session.append(one)
            else:
                last[one[1].k] = [one]
                sessions.append(last[one[1].k])
        return sessions

    def add_messages(self, side: int, messages: list[Message]) -> None:
        fresh = set()
        by_message = self.plan.emit is not Emit.FINAL
        if by_message:
            messages = sorted(messages, key=lambda one: (-1 if one.time is None else one.time, *one[3:]))
        for one in messages:
            if (side, *one[3:]) in self.seen_records:
                continue
            self.seen_records.add((side, *one[3:]))
            if one.time is None:
                self.rejected.append((side, one, "no event time"))
            elif one.time + self.plan.window.gap_ms <= self.floor:
                self.rejected.append((side, one, "outside the retention"))
            else:
                fresh.add((side, one))
                self.held_messages.append((side, one))
                if by_message:
                    (session,) = (session for session in self.sessions() if (side, one) in session)
                    self.show(session, "late" if self.end(session) <= self.complete else "early")
        if by_message:
            return
        for session in self.sessions():
            if fresh & set(session) and self.end(session) <= self.complete:
                self.show(session, "late")

    def watermark(self, side: int, time: int) -> None:
        self.marks[side] = max(self.marks[side], time)
        self.move(min(self.marks))
        self.limit()

    def move(self, time: int) -> None:
        merges = self.plan.window.touching.value == "merge"
        before, self.complete = self.complete, max(self.complete, time - merges)
        for session in self.sessions():
            if before < self.end(session) <= self.complete and self.plan.emit is Emit.FINAL:
                self.show(session, "on_time")
        if self.plan.retention.time_ms is not None:
            self.expire(time - self.plan.retention.time_ms - merges)

    def expire(self, last: int) -> None:
        self.floor = max(self.floor, last)
        self.held_messages = [one for session in self.sessions() if self.end(session) > self.floor for one in session]

    def limit(self) -> None:
        sessions, limits = self.sessions(), self.plan.retention
        for end in sorted({NEVER, *(self.end(session) for session in sessions)}):
            rest = [session for session in sessions if self.end(session) > end]
            sizes = (len(rest), limits.max_windows), (sum(map(len, rest)), limits.max_messages)
            if all(most is None or many <= most for many, most in sizes):
                break
        if end > NEVER:
            for session in sessions:
                if self.complete < self.end(session) <= end and self.plan.emit is Emit.FINAL:
                    self.show(session, "early")
            self.expire(end)

    def finish(self) -> None:
        self.marks = [10**9, 10**9]
        self.move(10**9)
        self.expire(10**9)

    def show(self, session: list, timing: str) -> None:
        window = session[0][1].time, self.end(session)
        if self.plan.emit is Emit.RUNNING:
            self.shown_messages, self.pairs = set(), set()  # all of it comes again
        elif self.plan.emit is Emit.PAIRED:
            session = [one for one in session if one not in self.shown_messages]
            if len({side for side, _ in session}) < len(SIDES):
                return
        sides = [[one for side, one in session if side == number] for number in (0, 1)]
        has_pairs = all(sides) and session[0][1].k is not None
        kept_sides = sides
        if self.plan.keep is not Keep.ALL and session[0][1].k is not None:
            kept_sides = [side[:1] if self.plan.keep is Keep.FIRST else side[-1:] for side in sides]
        if has_pairs:
            for left in kept_sides[0]:
                for right in kept_sides[1]:
                    if (left, right) not in self.pairs:
                        self.pairs.add((left, right))
                        self.results.append((*window, left, right, timing))
        else:
            for number in self.plan.outer:
                for one in kept_sides[number]:
                    if (number, one) not in self.shown_messages:
                        self.results.append((*window, *((one, None) if number == 0 else (None, one)), timing))
        self.shown_messages |= set(session)


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
        self.results: list = []
        self.rejected: list = []

    def step(self, name: str, *arguments) -> list:
        getattr(self.join, name)(*arguments)
        for number, side in enumerate(SIDES):
            for row in self.join.get_rejected(side).to_pylist():
                *one, reason = row.values()
                self.rejected.append((number, Message(*one), reason))
        rows = [pair_of(row) for row in self.join.flush().to_pylist()]
        self.results += rows
        if self.always:
            self.join = WindowJoin(self.plan, self.store)
        return rows


def steps_of(seed: int, count: int) -> list[tuple]:
    """Of both sides, mixed, each in its order."""
    rng = random.Random(f"join {seed}")
    both = [split_steps(f"{seed} {side}", random_messages(f"{seed} {side}", count), watermarks=True) for side in SIDES]
    steps = []
    while any(both):
        number = rng.choice([number for number, rest in enumerate(both) if rest])
        name, argument = both[number].pop(0)
        steps.append((name, number, argument))
    return steps


def differential(seed: int, window, count: int, emit: Emit = Emit.FINAL, *, limits: StateLimits = SMALL) -> int:
    """Play random messages to the join and to the model; return how many rows there were."""
    retention, how = RETENTIONS[seed % len(RETENTIONS)], HOWS[seed // 4 % len(HOWS)]
    how = How.INNER if emit is Emit.PAIRED else how
    plan = join_plan(window, list(Keep)[seed // 16 % len(Keep)], how, retention, emit=emit)
    model, player = SessionJoinModel(plan), PlayedJoin(plan, always=seed % 3 != 2, limits=limits)
    given_counts = [0, 0]
    for name, number, argument in steps_of(seed, count):
        begin = len(model.results)
        if name == "add_message":
            given_counts[number] += len(argument)
            model.add_messages(number, argument)
        else:
            model.watermark(number, argument)
        rows = player.step(name, SIDES[number], table(argument) if name == "add_message" else argument)
        model.limit()
        assert sorted(rows, key=str) == sorted(model.results[begin:], key=str)
    for number, side in enumerate(SIDES):
        counts = player.join.counts(side)
        held_count = sum(one[0] == number for one in model.held_messages)
        assert counts.given == given_counts[number] == counts.taken + counts.rejected + counts.replayed
        assert counts.taken - counts.expired - counts.dropped_messages == held_count
    begin = len(model.results)
    model.finish()
    assert sorted(player.step("finish"), key=str) == sorted(model.results[begin:], key=str)
    assert sorted(player.rejected, key=str) == sorted(model.rejected, key=str)
    assert emit is Emit.RUNNING or len(set(map(str, player.results))) == len(player.results)
    return len(model.results)


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
