"""The scalar model of sessions of event time that keep their messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.panes import Early, EveryBy
from tests.operators.laws.scalar import NEVER, Listed, ScalarModel, by_key, by_time, size
from tests.operators.stored import Message, table, told


@dataclass
class SessionModel(ScalarModel):
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

    @classmethod
    def of(cls, plan: StorePlan) -> SessionModel:
        named = ("early", "late_rows", "late_every_ms", "late_by")
        given = {name: getattr(plan, name) for name in named}
        return cls(plan.window, plan.retention, {name: one for name, one in given.items() if one is not None})

    def sessions(self) -> list[list[Message]]:
        """In order of end, start and key."""
        found: list[list[Message]] = []
        last: dict = {}
        for one in self.holding():
            mine = last.get(one.k)
            reach = None if mine is None else mine[-1].time + self.window.gap_ms
            if mine is not None and (one.time < reach or (one.time == reach and self.merges)):
                mine.append(one)
            else:
                last[one.k] = [one]
                found.append(last[one.k])
        return sorted(found, key=lambda mine: (self.end(mine), mine[0].time, by_key(mine[0].k)))

    @property
    def merges(self) -> bool:
        return self.window.touching is Touching.MERGE

    def end(self, mine: list[Message]) -> int:
        return mine[-1].time + self.window.gap_ms

    def news(self, mine: list[Message]) -> int:
        return sum(one not in self.told for one in mine)

    def take(self, messages: list[Message], now_ms: int = 0) -> None:
        now = now_ms
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

    def timeout(self, now_ms: int) -> None:
        if self.settings.get("late_by") is not EveryBy.EVENT and self.late_due is not None and now_ms >= self.late_due:
            self.show_late()
        if not self.settings.get("early", Early(rows=1)).by_event:
            self.show_early(now_ms)

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

    def next_timeout(self) -> int | None:
        due = [] if self.settings.get("late_by") is EveryBy.EVENT else [self.late_due]
        due += [] if self.settings.get("early", Early(rows=1)).by_event else [self.early_due]
        return min((at for at in due if at is not None), default=None)

    def holding(self) -> list[Message]:
        return sorted(self.held, key=by_time)

    def windows(self) -> Iterator[Listed]:
        for mine in self.sessions():
            yield mine[0].k, mine[0].time, self.end(mine), mine, self.end(mine) <= self.complete
