"""The scalar model of windows that messages open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.plan import StorePlan
from tests.operators.laws.scalar import NEVER, ListedWindow, ScalarModel, by_key, by_time
from tests.operators.stored import Message, records_text, table


@dataclass
class OnDemandModel(ScalarModel):
    """All messages that are held; windows are found anew each time they are asked for."""

    window: OnDemandWindow
    kept_for: int
    held_messages: list[Message] = field(default_factory=list)
    openers: list[Message] = field(default_factory=list)
    seen_records: set = field(default_factory=set)
    panes: dict = field(default_factory=dict)
    results: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    time: int = NEVER
    dropped_messages: int = 0

    @classmethod
    def of(cls, plan: StorePlan) -> OnDemandModel:
        return cls(plan.window, plan.retention.time_ms)

    @property
    def border(self) -> int:
        return self.time - self.kept_for - self.window.size_ms

    def opened_windows(self) -> list[tuple[int, str | None]]:
        """(start, key), in order of end and key; also those that no message comes to any more."""
        window_starts = {(one.time, one.k) for one in self.openers}
        return sorted(window_starts, key=lambda window: (window[0], by_key(window[1])))

    def end(self, start: int) -> int:
        return start + self.window.size_ms

    def inside(self, start: int, k: str | None) -> list[Message]:
        window_messages = [one for one in self.held_messages if one.k == k and start <= one.time < self.end(start)]
        return sorted(window_messages, key=by_time)

    def add_messages(self, messages: list[Message], _now_ms: int = 0) -> None:
        fresh = []
        for one in messages:
            if one[3:] in self.seen_records:
                continue
            self.seen_records.add(one[3:])
            if one.time is None:
                self.rejected.append((one, "no event time"))
            elif self.end(one.time) <= self.time - self.kept_for:
                self.rejected.append((one, "outside the retention"))
            else:
                fresh.append(one)
        self.held_messages += fresh
        self.openers += [one for one in fresh if one.n >= int(self.window.opens.split()[-1])]
        for start, k in self.opened_windows():
            if self.end(start) <= self.time and set(fresh) & set(self.inside(start, k)):
                self.show(start, k, "late")

    def watermark(self, time: int) -> None:
        if time <= self.time:
            return
        before, self.time = self.time, time
        for start, k in self.opened_windows():
            if before < self.end(start) <= time:
                self.show(start, k, "on_time")
        expired_messages = [one for one in self.held_messages if self.is_over(one.time)]
        for one in expired_messages:
            if not any(k == one.k and start <= one.time < self.end(start) for start, k in self.opened_windows()):
                self.rejected.append((one, "between windows"))
        self.held_messages = [one for one in self.held_messages if one not in expired_messages]

    def is_over(self, time: int) -> bool:
        """Whether nothing can come that a message of this slice would be in a window with."""
        start = time // self.window.size_ms * self.window.size_ms
        return self.end(self.end(start) - 1) - 1 <= self.border

    def show(self, start: int, k: str | None, timing: str) -> None:
        index = self.panes.get((start, k), 0)
        self.panes[start, k] = index + 1
        self.results.append(
            (start, self.end(start), k, records_text(table(self.inside(start, k))), timing, index, False)
        )

    def finish(self) -> None:
        self.watermark(10**6)

    def holding(self) -> list[Message]:
        return sorted(self.held_messages, key=by_time)

    def windows(self) -> Iterator[ListedWindow]:
        """Windows that messages may still come to."""
        for start, k in self.opened_windows():
            if self.end(start) - 1 > self.border:
                yield k, start, self.end(start), self.inside(start, k), self.end(start) <= self.time
