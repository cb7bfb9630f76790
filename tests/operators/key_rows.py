"""A model in plain Python of windows that count a key's messages in a topic and partition, and its differential run.

python -m tests.operators.key_rows 10000 [FIRST]
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

from keyedwm.operators.messages import key_row_operator
from keyedwm.operators.messages.plan import Full, KeyRowWindow
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.state import store as logs
from tests.operators.stored import KEEP_ALL, Message, Restarted, cut, plan_of, random_messages, table, told

WINDOWS = (
    KeyRowWindow(3, 3),
    KeyRowWindow(4, 2),
    KeyRowWindow(5, 3),  # the step does not divide the size
    KeyRowWindow(2, 5),  # there are gaps
    KeyRowWindow(1, 1),
)
RETENTIONS = (KEEP_ALL, Retention(max_messages=9), KEEP_ALL, Retention(max_bytes=400))


@dataclass
class KeyRowModel:
    """One message at a time: all that ever came of each key on each channel, since it was last dropped."""

    window: KeyRowWindow
    full: Full
    retention: Retention
    came: dict = field(default_factory=dict)
    next: dict = field(default_factory=dict)
    made: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    replayed: int = 0
    dropped: int = 0

    def take(self, messages: list[Message]) -> None:
        seen = dict(self.next)
        begin = len(self.made)
        for one in sorted(set(messages), key=lambda one: one[3:]):
            channel = one[3:5]
            if one.offset < seen.get(channel, 0):
                continue
            self.next[channel] = one.offset + 1
            mine = self.came.setdefault((one.k, *channel), [])
            mine.append(one)
            if (len(mine) - 1) % self.window.step >= self.window.size:
                self.rejected.append((one, "between windows"))
            known_ahead = self.full is Full.WATERMARK
            for start in self.starts(len(mine)):
                if start + self.window.size == len(mine) - (not known_ahead):
                    self.show(mine[max(start, 0) : start + self.window.size], "on_time")
        self.made[begin:] = sorted(self.made[begin:], key=lambda pane: (pane[0], pane[2]))

    def starts(self, count: int) -> list[int]:
        """Of the windows that the first `count` messages reach, also those before the first one."""
        return [start for start in range(1 - self.window.size, count) if not start % self.window.step]

    def show(self, inside: list[Message], timing: str, last: bool = False) -> None:
        one = inside[0]
        self.made.append(
            ((one.topic, one.partition), inside[0].offset, inside[-1].offset, one.k, told(table(inside)), timing, last)
        )

    def open(self, key: tuple) -> list[list[Message]]:
        """The messages of each window of a key that is not complete and holds one."""
        mine = self.came[key]
        reached = len(mine) - (self.full is Full.MESSAGE)
        return [
            mine[max(start, 0) : start + self.window.size]
            for start in self.starts(len(mine))
            if start + self.window.size > max(reached, 0) and mine[max(start, 0) : start + self.window.size]
        ]

    def held(self) -> dict[tuple, list[Message]]:
        found = {key: sorted({one for inside in self.open(key) for one in inside}, key=lambda one: one.offset)
                 for key in self.came}  # fmt: skip
        return {key: held for key, held in found.items() if held}

    def limit(self) -> None:
        held = self.held()
        oldest = sorted(
            held, key=lambda key: (held[key][0].offset - self.next[key[1:]], key[1:], key[0] is None, key[0] or "")
        )
        begin = len(self.made)
        for key in oldest:
            rest = [one for inside in held.values() for one in inside]
            most, most_bytes = self.retention.max_messages, self.retention.max_bytes
            if not (most is not None and len(rest) > most) and not (
                most_bytes is not None and sum(map(size, rest)) > most_bytes
            ):
                break
            for inside in self.open(key):
                self.show(inside, "early", last=True)
            self.dropped += len(held.pop(key))
            del self.came[key]
        self.made[begin:] = sorted(self.made[begin:], key=lambda pane: (pane[0], pane[2]))

    def finish(self) -> None:
        begin = len(self.made)
        for key in self.held():
            for inside in self.open(key):
                self.show(inside, "on_time")
        self.made[begin:] = sorted(self.made[begin:], key=lambda pane: (pane[0], pane[2]))


def size(one: Message) -> int:
    """Bytes in Arrow: texts and their lengths, numbers."""
    return 4 + len(one.k or "") + 8 + 8 + 4 + len(one.topic) + 4 + 8


def pane_of(row: dict) -> tuple:
    first, last = row["window"].values()
    pane = row["pane"]
    assert pane["index"] == 0
    return (row["topic"], row["partition"]), first, last, row["k"], row["told"], pane["timing"], pane["last"]


def sorted_by_window(panes: list) -> list:
    """Windows that end with the same message have no order among them here."""
    return sorted(panes, key=str)


class Played(Restarted):
    """Every pane as a tuple, with its channel."""

    def step(self, name: str, *arguments) -> None:
        getattr(self.operator, name)(*arguments)
        self.rejected += [
            (Message(*list(row.values())[:-1]), row["reason"]) for row in self.operator.get_rejected().to_pylist()
        ]
        self.made += [pane_of(row) for row in self.operator.flush().to_pylist()]
        if self.always:
            self.operator = type(self.operator)(self.plan, self.store)


def differential(seed: int, window: KeyRowWindow, full: Full, count: int) -> int:
    """Play random messages to the operator and to the model; return how many panes there were."""
    retention = RETENTIONS[seed % 4]
    model = KeyRowModel(window, full, retention)
    played = Played(plan_of(window, full=full, retention=retention), always=seed % 3 != 2)
    messages = random_messages(f"{seed}", count)
    for name, given in cut(seed, messages, watermarks=True):
        if name == "add_message":
            model.take(given)
            model.limit()
        played.step(name, table(given) if name == "add_message" else given)
        held = [one for inside in model.held().values() for one in inside]
        found = played.operator.get_messages(-(10**6), 10**6).to_pylist()
        assert [tuple(one.values()) for one in found] == sorted(held, key=lambda one: (one.offset, *one[3:5]))
        windows = played.operator.get_windows(-(10**6), 10**6, by_key=True).to_pylist()
        assert sorted((list(one.values())[:-1] for one in windows), key=str) == sorted((
            [k, inside[0].offset, inside[-1].offset + 1, *channel, inside[0].offset, inside[-1].offset, len(inside),
             sum(map(size, inside))] for (k, *channel), inside in model.held().items()
        ), key=str)  # fmt: skip
    counts = played.operator.counts
    assert counts.given == len(messages) == counts.taken + counts.rejected + counts.replayed
    assert counts.taken - counts.expired - counts.dropped_messages == len(held)
    assert counts.dropped_messages == model.dropped
    if random.Random(seed).random() < 0.5:
        model.finish()
        played.step("finish")
        assert played.operator.get_messages(-(10**6), 10**6).num_rows == 0
    assert sorted_by_window(played.made) == sorted_by_window(model.made)
    assert played.rejected == model.rejected or sorted(played.rejected, key=str) == sorted(model.rejected, key=str)
    return len(model.made)


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    logs.FAN_OUT, key_row_operator._FEW = 3, 4  # compaction at every third part, logs written anew soon
    panes = 0
    for seed in range(first, first + seeds):
        window, full = WINDOWS[seed // 4 % len(WINDOWS)], list(Full)[seed // 20 % 2]
        try:
            panes += differential(seed, window, full, 10 + seed % 60)
        except AssertionError:
            print(f"seed {seed} differs: {window}, {full}")
            raise
        if (seed - first + 1) % 500 == 0:
            print(f"{seed - first + 1} seeds, {panes} panes", flush=True)
    print(f"{seeds} seeds, {panes} panes, no difference")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
