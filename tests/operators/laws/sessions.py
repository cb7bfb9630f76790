"""The scalar model of sessions of event time that keep their messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.panes import Early, EveryBy
from tests.operators.laws.scalar import NEVER, ListedWindow, ScalarModel, by_key, by_time, size
from tests.operators.stored import Message, records_text, table


@dataclass
class SessionModel(ScalarModel):
    """All messages that are held; sessions are found anew each time they are asked for."""

    window: SessionWindow
    retention: Retention
    settings: dict
    held_messages: list = field(default_factory=list)
    seen_records: set = field(default_factory=set)
    messages_in_panes: set = field(default_factory=set)  # messages that a pane has held
    panes: dict = field(default_factory=dict)  # message -> how many panes its session has had
    results: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    time: int = NEVER
    complete: int = NEVER
    floor: int = NEVER
    dropped_messages: int = 0
    late_due: int | None = None
    early_due: int | None = None
    early_began: int | None = None

    @classmethod
    def of(cls, plan: StorePlan) -> SessionModel:
        setting_names = ("early", "late_rows", "late_every_ms", "late_by")
        settings = {name: getattr(plan, name) for name in setting_names}
        return cls(plan.window, plan.retention, {name: one for name, one in settings.items() if one is not None})

    def sessions(self) -> list[list[Message]]:
        """In order of end, start and key."""
        sessions: list[list[Message]] = []
        last: dict = {}
        for one in self.holding():
            session = last.get(one.k)
            reach = None if session is None else session[-1].time + self.window.gap_ms
            if session is not None and (one.time < reach or (one.time == reach and self.merges)):
                session.append(one)
            else:
                last[one.k] = [one]
                sessions.append(last[one.k])
        return sorted(sessions, key=lambda session: (self.end(session), session[0].time, by_key(session[0].k)))

    @property
    def merges(self) -> bool:
        return self.window.touching is Touching.MERGE

    def end(self, session: list[Message]) -> int:
        return session[-1].time + self.window.gap_ms

    def new_message_count(self, session: list[Message]) -> int:
        return sum(one not in self.messages_in_panes for one in session)

    def add_messages(self, messages: list[Message], now_ms: int = 0) -> None:
        now = now_ms
        fresh = set()
        for one in messages:
            if one[3:] in self.seen_records:
                continue
            self.seen_records.add(one[3:])
            if one.time is None:
                self.rejected.append((one, "no event time"))
            elif one.time + self.window.gap_ms <= self.floor:
                self.rejected.append((one, "outside the retention"))
            else:
                fresh.add(one)
                self.held_messages.append(one)
        changed_sessions = [session for session in self.sessions() if fresh & set(session)]
        late = [session for session in changed_sessions if self.end(session) <= self.complete]
        open_ = [session for session in changed_sessions if self.end(session) > self.complete]
        every, rows = self.settings.get("late_every_ms"), self.settings.get("late_rows")
        if rows is not None:
            self.show([session for session in late if self.new_message_count(session) >= rows], "late")
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
            self.show([session for session in open_ if self.new_message_count(session) >= early.rows], "early")

    def watermark(self, time: int) -> None:
        if time <= self.time:
            return
        self.time = time
        before, self.complete = self.complete, max(self.complete, time - self.merges)
        self.show([session for session in self.sessions() if before < self.end(session) <= self.complete], "on_time")
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
            self.show(
                [one for one in self.sessions() if self.end(one) > self.complete and self.new_message_count(one)],
                "early",
            )

    def show_late(self) -> None:
        self.late_due = None
        self.show(
            [one for one in self.sessions() if self.end(one) <= self.complete and self.new_message_count(one)], "late"
        )

    def expire(self, last: int) -> int:
        """How many messages left."""
        expired_sessions = [session for session in self.sessions() if self.end(session) <= last]
        self.floor = max(self.floor, last)
        self.show(
            [
                session
                for session in expired_sessions
                if self.end(session) <= self.complete and self.new_message_count(session)
            ],
            "late",
        )
        leaving = {one for session in expired_sessions for one in session}
        self.held_messages = [one for one in self.held_messages if one not in leaving]
        return len(leaving)

    def limit(self) -> None:
        sessions, limits = self.sessions(), self.retention
        last = None
        for end in sorted({self.end(session) for session in sessions}):
            rest = [session for session in sessions if last is None or self.end(session) > last]
            sizes = ((len(rest), limits.max_windows), (sum(map(len, rest)), limits.max_messages),
                     (sum(size(one) for session in rest for one in session), limits.max_bytes))  # fmt: skip
            if all(most is None or many <= most for many, most in sizes):
                break
            last = end
        if last is not None:
            self.show([one for one in sessions if self.complete < self.end(one) <= last], "early", last=True)
            self.dropped_messages += self.expire(last)

    def finish(self) -> None:
        self.watermark(10**9)
        self.expire(10**9)

    def show(self, sessions: list[list[Message]], timing: str, last: bool = False) -> None:
        for session in sessions:
            index = max(self.panes.get(one, 0) for one in session)
            self.panes |= dict.fromkeys(session, index + 1)
            self.messages_in_panes |= set(session)
            self.results.append(
                (session[0].time, self.end(session), session[0].k, records_text(table(session)), timing, index, last)
            )

    def next_timeout(self) -> int | None:
        due = [] if self.settings.get("late_by") is EveryBy.EVENT else [self.late_due]
        due += [] if self.settings.get("early", Early(rows=1)).by_event else [self.early_due]
        return min((at for at in due if at is not None), default=None)

    def holding(self) -> list[Message]:
        return sorted(self.held_messages, key=by_time)

    def windows(self) -> Iterator[ListedWindow]:
        for session in self.sessions():
            yield session[0].k, session[0].time, self.end(session), session, self.end(session) <= self.complete
