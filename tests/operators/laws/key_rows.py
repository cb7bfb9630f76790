"""The scalar models of windows over a key's messages in a topic and partition: so many of them, or few others between.

Panes carry their channel in front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, KeyRowWindow
from tests.operators.laws.scalar import Listed, ScalarModel, by_key, by_offset, size
from tests.operators.stored import KEEP_ALL, Message, table, told

# A key on a channel: key, topic and partition.
Place = tuple[str | None, str, int]


class KeyedRowsContent(ScalarModel):
    """What both have in common: `held` gives the messages of each key and channel."""

    is_ordered = False
    retention: Retention
    next: dict[tuple, int]

    def held(self) -> dict[Place, list[Message]]:
        raise NotImplementedError

    def open_windows(self, place: Place) -> list[list[Message]]:
        """The messages of each window that is not complete and holds one."""
        raise NotImplementedError

    def forget(self, place: Place) -> None:
        raise NotImplementedError

    def fresh(self, messages: list[Message]) -> Iterator[Message]:
        """In order of channel and offset, each once."""
        seen = dict(self.next)
        for one in sorted(set(messages), key=lambda one: one[3:]):
            if one.offset >= seen.get(one[3:5], 0):
                self.next[one[3:5]] = one.offset + 1
                yield one

    def limit(self) -> None:
        held = self.held()
        for place in sorted(held, key=lambda one: (held[one][0].offset - self.next[one[1:]], one[1:], by_key(one[0]))):
            rest = [one for inside in held.values() for one in inside]
            limits = (len(rest), self.retention.max_messages), (sum(map(size, rest)), self.retention.max_bytes)
            if all(most is None or many <= most for many, most in limits):
                break
            for inside in self.open_windows(place):
                self.show(inside, "early", last=True)
            self.dropped += len(held.pop(place))
            self.forget(place)

    def finish(self) -> None:
        for place in self.held():
            for inside in self.open_windows(place):
                self.show(inside, "on_time")
            self.forget(place)

    def show(self, inside: list[Message], timing: str, last: bool = False) -> None:
        one = inside[0]
        edges = one.offset, inside[-1].offset
        self.made.append(((one.topic, one.partition), *edges, one.k, told(table(inside)), timing, 0, last))

    def holding(self) -> list[Message]:
        return sorted((one for inside in self.held().values() for one in inside), key=by_offset)

    def windows(self) -> Iterator[Listed]:
        for (k, *_), inside in self.held().items():
            yield k, inside[0].offset, inside[-1].offset + 1, inside, False


@dataclass
class KeyRowModel(KeyedRowsContent):
    """All that ever came of each key on each channel, since it was last dropped."""

    window: KeyRowWindow
    full: CompletedBy
    retention: Retention
    came: dict = field(default_factory=dict)
    next: dict = field(default_factory=dict)
    made: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    dropped: int = 0

    @classmethod
    def of(cls, plan: StorePlan) -> KeyRowModel:
        return cls(plan.window, plan.full, plan.retention)

    def take(self, messages: list[Message], _now_ms: int = 0) -> None:
        for one in self.fresh(messages):
            mine = self.came.setdefault((one.k, *one[3:5]), [])
            mine.append(one)
            if (len(mine) - 1) % self.window.step >= self.window.size:
                self.rejected.append((one, "between windows"))
            known_ahead = self.full is CompletedBy.WATERMARK
            for start in self.starts(len(mine)):
                if start + self.window.size == len(mine) - (not known_ahead):
                    self.show(mine[max(start, 0) : start + self.window.size], "on_time")

    def starts(self, count: int) -> list[int]:
        """Of the windows that the first `count` messages reach, also those before the first one."""
        return [start for start in range(1 - self.window.size, count) if not start % self.window.step]

    def open_windows(self, place: Place) -> list[list[Message]]:
        mine = self.came[place]
        reached = len(mine) - (self.full is CompletedBy.MESSAGE)
        return [
            mine[max(start, 0) : start + self.window.size]
            for start in self.starts(len(mine))
            if start + self.window.size > max(reached, 0) and mine[max(start, 0) : start + self.window.size]
        ]

    def held(self) -> dict[Place, list[Message]]:
        found = {
            place: sorted({one for inside in self.open_windows(place) for one in inside}, key=by_offset)
            for place in self.came
        }
        return {place: held for place, held in found.items() if held}

    def forget(self, place: Place) -> None:
        del self.came[place]


@dataclass
class SessionRowModel(KeyedRowsContent):
    """All messages that are held; sessions are found anew each time."""

    between: int
    retention: Retention = KEEP_ALL
    came: dict = field(default_factory=dict)
    next: dict = field(default_factory=dict)
    made: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    dropped: int = 0

    @classmethod
    def of(cls, plan: StorePlan) -> SessionRowModel:
        return cls(plan.window.between, plan.retention)

    def take(self, messages: list[Message], _now_ms: int = 0) -> None:
        for one in self.fresh(messages):
            self.came.setdefault((one.k, *one[3:5]), []).append(one)
        for place in sorted(self.came, key=str):
            while over := self.first_over(place):
                self.show(over, "on_time")
                self.came[place] = self.came[place][len(over) :]
            if not self.came[place]:
                del self.came[place]

    def first_over(self, place: Place) -> list[Message]:
        mine = self.came[place]
        for at, one in enumerate(mine):
            following = mine[at + 1].offset if at + 1 < len(mine) else self.next[place[1:]]
            if following - one.offset > self.between + 1:
                return mine[: at + 1]
        return []

    def held(self) -> dict[Place, list[Message]]:
        return dict(self.came)

    def open_windows(self, place: Place) -> list[list[Message]]:
        return [self.came[place]]

    def forget(self, place: Place) -> None:
        del self.came[place]
