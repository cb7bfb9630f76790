"""A model in plain Python of sessions that keep their messages, and its differential run.

python -m tests.operators.session_stores 10000 [FIRST]
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

from keyedwm.core.touching import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages import session_store_operator
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.state import store as logs
from tests.operators.stored import KEEP_ALL, Message, Restarted, cut, plan_of, random_messages, table, told

WINDOWS = tuple(SessionWindow(gap, touching) for touching in Touching for gap in (1, 4, 12))
RETENTIONS = (
    KEEP_ALL, Retention(time_ms=15), Retention(max_messages=12), Retention(max_windows=4),
    Retention(time_ms=60, max_messages=25), Retention(max_bytes=500),
)  # fmt: skip
SETTINGS = (
    {}, {"early": Early(rows=2)}, {"late_rows": 2}, {"late_every_ms": 9, "late_by": EveryBy.EVENT},
    {"late_every_ms": 7}, {"early": Early(every_ms=5)}, {"early": Early(every_ms=5, by=EveryBy.EVENT)},
)  # fmt: skip
NEVER = -(10**9)


@dataclass
class SessionModel:
    """All messages that are held; sessions are found anew each time they are asked for."""

    window: SessionWindow
    retention: Retention
    settings: dict
    held: list = field(default_factory=list)
    seen: set = field(default_factory=set)
    told: set = field(default_factory=set)  # messages that a pane has held
    panes: dict = field(default_factory=dict)  # message -> how many panes its session has had
    made: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    time: int = NEVER
    complete: int = NEVER
    floor: int = NEVER
    dropped: int = 0
    late_due: int | None = None
    early_due: int | None = None
    early_began: int | None = None

    def sessions(self) -> list[list[Message]]:
        """In order of end, start and key."""
        found: list[list[Message]] = []
        last: dict = {}
        for one in sorted(self.held, key=lambda one: (one.time, *one[3:])):
            mine = last.get(one.k)
            reach = None if mine is None else mine[-1].time + self.window.gap_ms
            if mine is not None and (one.time < reach or (one.time == reach and self.merges)):
                mine.append(one)
            else:
                last[one.k] = [one]
                found.append(last[one.k])
        return sorted(found, key=lambda mine: (self.end(mine), mine[0].time, mine[0].k is None, mine[0].k or ""))

    @property
    def merges(self) -> bool:
        return self.window.touching is Touching.MERGE

    def end(self, mine: list[Message]) -> int:
        return mine[-1].time + self.window.gap_ms

    def news(self, mine: list[Message]) -> int:
        return sum(one not in self.told for one in mine)

    def take(self, messages: list[Message], now: int) -> None:
        fresh = set()
        for one in messages:
            if one[3:] in self.seen:
                continue
            self.seen.add(one[3:])
            if one.time is None:
                self.rejected.append((one, "no event time"))
            elif one.time + self.window.gap_ms <= self.floor:
                self.rejected.append((one, "outside the retention"))
            else:
                fresh.add(one)
                self.held.append(one)
        changed = [mine for mine in self.sessions() if fresh & set(mine)]
        late = [mine for mine in changed if self.end(mine) <= self.complete]
        open_ = [mine for mine in changed if self.end(mine) > self.complete]
        every, rows = self.settings.get("late_every_ms"), self.settings.get("late_rows")
        if rows is not None:
            self.show([mine for mine in late if self.news(mine) >= rows], "late")
        elif every is None:
            self.show(late, "late")
        elif late and self.late_due is None:
            self.late_due = every + (self.time if self.settings.get("late_by") is EveryBy.EVENT else now)
        early = self.settings.get("early", Early(rows=10**9))
        if early.by_event and open_ and self.early_due is None:
            self.early_due = self.time + early.every_ms - self.time % early.every_ms
        if early.by_clock and open_ and self.early_due is None:
            self.early_began = now if self.early_began is None else self.early_began
            self.early_due = now + early.every_ms - (now - self.early_began) % early.every_ms
        if early.rows:
            self.show([mine for mine in open_ if self.news(mine) >= early.rows], "early")

    def watermark(self, time: int) -> None:
        if time <= self.time:
            return
        self.time = time
        before, self.complete = self.complete, max(self.complete, time - self.merges)
        self.show([mine for mine in self.sessions() if before < self.end(mine) <= self.complete], "on_time")
        if self.settings.get("late_by") is EveryBy.EVENT and self.late_due is not None and time >= self.late_due:
            self.show_late()
        if self.settings.get("early", Early(rows=1)).by_event:
            self.show_early(time)
        if self.retention.time_ms is not None:
            self.expire(time - self.retention.time_ms - self.merges)

    def timeout(self, now: int) -> None:
        if self.settings.get("late_by") is not EveryBy.EVENT and self.late_due is not None and now >= self.late_due:
            self.show_late()
        if not self.settings.get("early", Early(rows=1)).by_event:
            self.show_early(now)

    def show_early(self, at: int) -> None:
        if self.early_due is not None and at >= self.early_due:
            self.early_due = None
            self.show([one for one in self.sessions() if self.end(one) > self.complete and self.news(one)], "early")

    def show_late(self) -> None:
        self.late_due = None
        self.show([one for one in self.sessions() if self.end(one) <= self.complete and self.news(one)], "late")

    def expire(self, last: int) -> int:
        """How many messages left."""
        gone = [mine for mine in self.sessions() if self.end(mine) <= last]
        self.floor = max(self.floor, last)
        self.show([mine for mine in gone if self.end(mine) <= self.complete and self.news(mine)], "late")
        leaving = {one for mine in gone for one in mine}
        self.held = [one for one in self.held if one not in leaving]
        return len(leaving)

    def limit(self) -> None:
        sessions, limits = self.sessions(), self.retention
        last = None
        for end in sorted({self.end(mine) for mine in sessions}):
            rest = [mine for mine in sessions if last is None or self.end(mine) > last]
            sizes = ((len(rest), limits.max_windows), (sum(map(len, rest)), limits.max_messages),
                     (sum(size(one) for mine in rest for one in mine), limits.max_bytes))  # fmt: skip
            if all(most is None or many <= most for many, most in sizes):
                break
            last = end
        if last is not None:
            self.show([one for one in sessions if self.complete < self.end(one) <= last], "early", last=True)
            self.dropped += self.expire(last)

    def finish(self) -> None:
        self.watermark(10**9)
        self.expire(10**9)

    def show(self, sessions: list[list[Message]], timing: str, last: bool = False) -> None:
        for mine in sessions:
            index = max(self.panes.get(one, 0) for one in mine)
            self.panes |= dict.fromkeys(mine, index + 1)
            self.told |= set(mine)
            self.made.append((mine[0].time, self.end(mine), mine[0].k, told(table(mine)), timing, index, last))


def size(one: Message) -> int:
    """Bytes in Arrow: texts and their lengths, numbers."""
    return 4 + len(one.k or "") + 8 + 8 + 4 + len(one.topic) + 4 + 8


def steps_of(seed: int, messages: list[Message]) -> list[tuple]:
    """With the wall clock beside: it moves with the messages, by less or more."""
    rng, now, steps = random.Random(f"clock {seed}"), 0, []
    for name, given in cut(seed, messages, watermarks=True):
        now += rng.choice([0, 1, 3, 10])
        steps.append((name, given, now))
        if rng.random() < 0.3:
            steps.append(("timeout", now, now))
    return steps


def differential(seed: int, window: SessionWindow, count: int) -> int:
    """Play random messages to the operator and to the model; return how many panes there were."""
    retention, settings = RETENTIONS[seed % len(RETENTIONS)], SETTINGS[seed // len(RETENTIONS) % len(SETTINGS)]
    model = SessionModel(window, retention, settings)
    played = Restarted(plan_of(window, retention=retention, **settings), always=seed % 3 != 2)
    messages = random_messages(f"sessions {seed}", count)
    for name, given, now in steps_of(seed, messages):
        begin = len(model.made)
        if name == "add_message":
            model.take(given, now)
            model.timeout(now)
            found = played.step(name, table(given), now)
        else:
            getattr(model, name)(given)
            found = played.step(name, given)
        model.limit()
        assert found == model.made[begin:]
        check_held(played, model)
    counts = played.operator.counts
    assert counts.given == len(messages) == counts.taken + counts.rejected + counts.replayed
    assert counts.taken - counts.expired - counts.dropped_messages == len(model.held)
    assert counts.dropped_messages == model.dropped
    if seed % 2:
        model.finish()
        played.step("finish")
        assert played.operator.get_messages(-(10**6), 10**6).num_rows == 0
    assert sorted(played.made, key=str) == sorted(model.made, key=str)
    assert sorted(played.rejected, key=str) == sorted(model.rejected, key=str)
    return len(model.made)


def check_held(played: Restarted, model: SessionModel) -> None:
    found = [tuple(one.values()) for one in played.operator.get_messages(-(10**6), 10**6).to_pylist()]
    assert found == sorted(model.held, key=lambda one: (one.time, *one[3:]))
    windows = [tuple(one.values()) for one in played.operator.get_windows(-(10**6), 10**6, by_key=True).to_pylist()]
    wanted = []
    for mine in model.sessions():
        for channel in sorted({one[3:5] for one in mine}):
            part = [one for one in mine if one[3:5] == channel]
            offsets = [one.offset for one in part]
            wanted.append((mine[0].k, mine[0].time, model.end(mine), *channel, min(offsets), max(offsets), len(part),
                           sum(map(size, part)), model.end(mine) <= model.complete))  # fmt: skip
    assert windows == wanted


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    logs.FAN_OUT, session_store_operator._FEW = 3, 4  # compaction at every third part, logs written anew soon
    panes = 0
    for seed in range(first, first + seeds):
        window = WINDOWS[seed // (len(RETENTIONS) * len(SETTINGS)) % len(WINDOWS)]
        try:
            panes += differential(seed, window, 10 + seed % 60)
        except AssertionError:
            print(f"seed {seed} differs: {window}")
            raise
        if (seed - first + 1) % 500 == 0:
            print(f"{seed - first + 1} seeds, {panes} panes", flush=True)
    print(f"{seeds} seeds, {panes} panes, no difference")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
