"""The scalar models of windows over a key's messages in a topic and partition: so many of them, or few others between.

Panes carry their channel in front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, KeyRowWindow
from tests.operators.laws.scalar import ListedWindow, ScalarModel, by_key, by_offset, size
from tests.operators.stored import KEEP_ALL, Message, records_text, table

# A key on a channel: key, topic and partition.
Place = tuple[str | None, str, int]


class KeyedRowsContent(ScalarModel):
    """The common part of both models. `messages_by_place` gives the messages of each key and channel."""

    is_ordered = False
    retention: Retention
    next: dict[tuple, int]

    def messages_by_place(self) -> dict[Place, list[Message]]:
        raise NotImplementedError

    def open_windows(self, place: Place) -> list[list[Message]]:
        """The messages of each window that is not complete and holds one."""
        raise NotImplementedError

    def forget(self, place: Place) -> None:
        raise NotImplementedError

    def fresh(self, messages: list[Message]) -> Iterator[Message]:
        """In order of channel and offset, each once."""
        next_offsets = dict(self.next)
        for one in sorted(set(messages), key=lambda one: one[3:]):
            if one.offset >= next_offsets.get(one[3:5], 0):
                self.next[one[3:5]] = one.offset + 1
                yield one

    def limit(self) -> None:
        messages_by_place = self.messages_by_place()
        for place in sorted(
            messages_by_place,
            key=lambda one: (messages_by_place[one][0].offset - self.next[one[1:]], one[1:], by_key(one[0])),
        ):
            rest = [one for inside in messages_by_place.values() for one in inside]
            limits = (len(rest), self.retention.max_messages), (sum(map(size, rest)), self.retention.max_bytes)
            if all(most is None or many <= most for many, most in limits):
                break
            for inside in self.open_windows(place):
                self.show(inside, "early", last=True)
            self.dropped_messages += len(messages_by_place.pop(place))
            self.forget(place)

    def finish(self) -> None:
        for place in self.messages_by_place():
            for inside in self.open_windows(place):
                self.show(inside, "on_time")
            self.forget(place)

    def show(self, inside: list[Message], timing: str, last: bool = False) -> None:
        one = inside[0]
        edges = one.offset, inside[-1].offset
        self.results.append(((one.topic, one.partition), *edges, one.k, records_text(table(inside)), timing, 0, last))

    def holding(self) -> list[Message]:
        return sorted((one for inside in self.messages_by_place().values() for one in inside), key=by_offset)

    def windows(self) -> Iterator[ListedWindow]:
        for (k, *_), inside in self.messages_by_place().items():
            yield k, inside[0].offset, inside[-1].offset + 1, inside, False


@dataclass
class KeyRowModel(KeyedRowsContent):
    """All that ever came of each key on each channel, since it was last dropped."""

    window: KeyRowWindow
    full: CompletedBy
    retention: Retention
    received_messages: dict = field(default_factory=dict)
    next: dict = field(default_factory=dict)
    results: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    dropped_messages: int = 0

    @classmethod
    def of(cls, plan: StorePlan) -> KeyRowModel:
        return cls(plan.window, plan.full, plan.retention)

    def add_messages(self, messages: list[Message], _now_ms: int = 0) -> None:
        for one in self.fresh(messages):
            place_messages = self.received_messages.setdefault((one.k, *one[3:5]), [])
            place_messages.append(one)
            if (len(place_messages) - 1) % self.window.step >= self.window.size:
                self.rejected.append((one, "between windows"))
            known_ahead = self.full is CompletedBy.WATERMARK
            for start in self.starts(len(place_messages)):
                if start + self.window.size == len(place_messages) - (not known_ahead):
                    self.show(place_messages[max(start, 0) : start + self.window.size], "on_time")

    def starts(self, count: int) -> list[int]:
        """Of the windows that the first `count` messages reach, also those before the first one."""
        return [start for start in range(1 - self.window.size, count) if not start % self.window.step]

    def open_windows(self, place: Place) -> list[list[Message]]:
        place_messages = self.received_messages[place]
        complete_end = len(place_messages) - (self.full is CompletedBy.MESSAGE)
        return [
            place_messages[max(start, 0) : start + self.window.size]
            for start in self.starts(len(place_messages))
            if start + self.window.size > max(complete_end, 0)
            and place_messages[max(start, 0) : start + self.window.size]
        ]

    def messages_by_place(self) -> dict[Place, list[Message]]:
        open_messages = {
            place: sorted({one for inside in self.open_windows(place) for one in inside}, key=by_offset)
            for place in self.received_messages
        }
        return {place: messages for place, messages in open_messages.items() if messages}

    def forget(self, place: Place) -> None:
        del self.received_messages[place]


@dataclass
class SessionRowModel(KeyedRowsContent):
    """All messages that are held; sessions are found anew each time."""

    between: int
    retention: Retention = KEEP_ALL
    received_messages: dict = field(default_factory=dict)
    next: dict = field(default_factory=dict)
    results: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    dropped_messages: int = 0

    @classmethod
    def of(cls, plan: StorePlan) -> SessionRowModel:
        return cls(plan.window.between, plan.retention)

    def add_messages(self, messages: list[Message], _now_ms: int = 0) -> None:
        for one in self.fresh(messages):
            self.received_messages.setdefault((one.k, *one[3:5]), []).append(one)
        for place in sorted(self.received_messages, key=str):
            while over := self.first_over(place):
                self.show(over, "on_time")
                self.received_messages[place] = self.received_messages[place][len(over) :]
            if not self.received_messages[place]:
                del self.received_messages[place]

    def first_over(self, place: Place) -> list[Message]:
        place_messages = self.received_messages[place]
        for at, one in enumerate(place_messages):
            following = place_messages[at + 1].offset if at + 1 < len(place_messages) else self.next[place[1:]]
            if following - one.offset > self.between + 1:
                return place_messages[: at + 1]
        return []

    def messages_by_place(self) -> dict[Place, list[Message]]:
        return dict(self.received_messages)

    def open_windows(self, place: Place) -> list[list[Message]]:
        return [self.received_messages[place]]

    def forget(self, place: Place) -> None:
        del self.received_messages[place]
