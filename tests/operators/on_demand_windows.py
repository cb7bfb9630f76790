"""A model in plain Python of windows that messages open, and its differential run.

python -m tests.operators.on_demand_windows 10000 [FIRST]
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

from keyedwm.operators.messages import on_demand_operator
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.state import store as logs
from tests.operators.key_rows import size
from tests.operators.stored import Message, Restarted, cut, plan_of, random_messages, table, told

WINDOWS = tuple(OnDemandWindow(size_ms, f"n >= {least}") for size_ms, least in ((10, 6), (1, 4), (7, 3), (25, 8)))
BEYOND = (0, 8, 60)  # how much longer than the window the retention is
NEVER = -(10**9)


@dataclass
class OnDemandModel:
    """All messages that are held; windows are found anew each time they are asked for."""

    window: OnDemandWindow
    kept_for: int
    held: list[Message] = field(default_factory=list)
    openers: list[Message] = field(default_factory=list)
    seen: set = field(default_factory=set)
    panes: dict = field(default_factory=dict)
    made: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    time: int = NEVER

    @property
    def border(self) -> int:
        return self.time - self.kept_for - self.window.size_ms

    def windows(self) -> list[tuple[int, str | None]]:
        """(start, key), in order of end and key; also those that no message comes to any more."""
        found = {(one.time, one.k) for one in self.openers}
        return sorted(found, key=lambda window: (window[0], window[1] is None, window[1] or ""))

    def end(self, start: int) -> int:
        return start + self.window.size_ms

    def inside(self, start: int, k: str | None) -> list[Message]:
        mine = [one for one in self.held if one.k == k and start <= one.time < self.end(start)]
        return sorted(mine, key=lambda one: (one.time, *one[3:]))

    def take(self, messages: list[Message]) -> None:
        fresh = []
        for one in messages:
            if one[3:] in self.seen:
                continue
            self.seen.add(one[3:])
            if one.time is None:
                self.rejected.append((one, "no event time"))
            elif self.end(one.time) <= self.time - self.kept_for:
                self.rejected.append((one, "outside the retention"))
            else:
                fresh.append(one)
        self.held += fresh
        self.openers += [one for one in fresh if one.n >= int(self.window.opens.split()[-1])]
        for start, k in self.windows():
            if self.end(start) <= self.time and set(fresh) & set(self.inside(start, k)):
                self.show(start, k, "late")

    def watermark(self, time: int) -> None:
        if time <= self.time:
            return
        before, self.time = self.time, time
        for start, k in self.windows():
            if before < self.end(start) <= time:
                self.show(start, k, "on_time")
        gone = [one for one in self.held if self.is_over(one.time)]
        for one in gone:
            if not any(k == one.k and start <= one.time < self.end(start) for start, k in self.windows()):
                self.rejected.append((one, "between windows"))
        self.held = [one for one in self.held if one not in gone]

    def is_over(self, time: int) -> bool:
        """Whether nothing can come that a message of this slice would be in a window with."""
        start = time // self.window.size_ms * self.window.size_ms
        return self.end(self.end(start) - 1) - 1 <= self.border

    def show(self, start: int, k: str | None, timing: str) -> None:
        index = self.panes.get((start, k), 0)
        self.panes[start, k] = index + 1
        self.made.append((start, self.end(start), k, told(table(self.inside(start, k))), timing, index, False))

    def listed(self) -> list[tuple]:
        """What `get_windows` says by key of those that messages may still come to."""
        found = []
        for start, k in self.windows():
            inside = self.inside(start, k) if self.end(start) - 1 > self.border else []
            for channel in sorted({one[3:5] for one in inside}):
                mine = [one for one in inside if one[3:5] == channel]
                offsets = [one.offset for one in mine]
                found.append(
                    (k, start, self.end(start), *channel, min(offsets), max(offsets), len(mine), sum(map(size, mine)),
                     self.end(start) <= self.time)
                )  # fmt: skip
        return found


def differential(seed: int, window: OnDemandWindow, count: int) -> int:
    """Play random messages to the operator and to the model; return how many panes there were."""
    kept_for = window.size_ms + BEYOND[seed % 3]
    model = OnDemandModel(window, kept_for)
    plan = plan_of(window, retention=Retention(time_ms=kept_for))
    played = Restarted(plan, always=seed % 4 != 3)
    messages = random_messages(f"{seed}", count, span=200)
    for name, given in [*cut(seed, messages, watermarks=True), ("watermark", 150)]:
        getattr(model, "take" if name == "add_message" else "watermark")(given)
        played.step(name, table(given) if name == "add_message" else given)
        found = played.operator.get_messages(-(10**6), 10**6).to_pylist()
        assert [tuple(one.values()) for one in found] == sorted(model.held, key=lambda one: (one.time, *one[3:]))
        windows = played.operator.get_windows(-(10**6), 10**6, by_key=True).to_pylist()
        assert [tuple(one.values()) for one in windows] == model.listed()
    if random.Random(seed).random() < 0.5:
        model.watermark(10**6)
        played.step("finish")
        assert played.operator.get_messages(-(10**6), 10**6).num_rows == 0
    assert played.made == model.made
    assert sorted(played.rejected, key=str) == sorted(model.rejected, key=str)
    counts = played.operator.counts
    assert counts.given == len(messages) == counts.taken + counts.rejected + counts.replayed
    assert counts.rejected == len(model.rejected)
    assert counts.taken - counts.expired == len(model.held)
    return len(model.made)


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    logs.FAN_OUT, on_demand_operator._FEW = 3, 4  # compaction at every third part, logs written anew soon
    panes = 0
    for seed in range(first, first + seeds):
        window = WINDOWS[seed // 12 % len(WINDOWS)]
        try:
            panes += differential(seed, window, 10 + seed % 60)
        except AssertionError:
            print(f"seed {seed} differs: {window}, {BEYOND[seed % 3]}")
            raise
        if (seed - first + 1) % 500 == 0:
            print(f"{seed - first + 1} seeds, {panes} panes", flush=True)
    print(f"{seeds} seeds, {panes} panes, no difference")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
