"""The scalar models of windows over kept messages: one message at a time, and what they tell alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tests.operators.stored import Message

NEVER = -(10**9)

# A window of a key as a model knows it: key, start, end behind it, messages in order, and whether it is complete.
ListedWindow = tuple[str | None, int, int, Sequence[Message], bool]


class ScalarModel:
    """What the laws ask of a model. `results` are its panes, and `rejected` its messages with the reason."""

    results: list[tuple]
    rejected: list[tuple[Message, str]]
    dropped_messages: int
    # Whether panes of one step, and listed windows, have the order of the model's.
    is_ordered: ClassVar[bool] = True

    def play(self, name: str, argument: Any, now_ms: int) -> None:
        """Play a step: messages, a watermark, or the wall clock; then the limits of size are applied."""
        if name == "add_message":
            self.add_messages(argument, now_ms)
            self.timeout(now_ms)
        else:
            getattr(self, name)(argument)
        self.limit()

    def add_messages(self, messages: list[Message], now_ms: int = 0, /) -> None:
        """Take messages, those of one call."""
        raise NotImplementedError

    def watermark(self, time: int) -> None:
        """Take a watermark: windows of rows know none."""

    def timeout(self, now_ms: int) -> None:
        """Let wall-clock time pass."""

    def limit(self) -> None:
        """Apply the limits of size."""

    def finish(self) -> None:
        """End the input: every window is complete, and nothing is held."""
        raise NotImplementedError

    def next_timeout(self) -> int | None:
        """When panes by the clock are due."""
        return None

    def holding(self) -> list[Message]:
        """The messages that are held, in the order of a listing."""
        raise NotImplementedError

    def windows(self) -> Iterator[ListedWindow]:
        """The windows of each key that hold a message, in the order of a listing."""
        raise NotImplementedError

    def listed_windows(self) -> list[tuple]:
        """What `get_windows` lists by key: one row for each window, topic and partition."""
        listed_rows = []
        for k, start, end, inside, is_complete in self.windows():
            for channel in sorted({one[3:5] for one in inside}):
                channel_messages = [one for one in inside if one[3:5] == channel]
                offsets = [one.offset for one in channel_messages]
                listed_rows.append(
                    (
                        k,
                        start,
                        end,
                        *channel,
                        min(offsets),
                        max(offsets),
                        len(channel_messages),
                        sum(map(size, channel_messages)),
                        is_complete,
                    )
                )
        return listed_rows


def size(one: Message) -> int:
    """Bytes in Arrow: texts and their lengths, numbers."""
    return 4 + len(one.k or "") + 8 + 8 + 4 + len(one.topic) + 4 + 8


def by_key(k: str | None) -> tuple[bool, str]:
    """Where a key stands in order: null is the last one."""
    return k is None, k or ""


def by_time(one: Message) -> tuple:
    """Where a message stands in order of event time, topic, partition and offset."""
    return (one.time, *one[3:])


def by_offset(one: Message) -> tuple:
    """Where a message stands in order of offset, topic and partition."""
    return (one.offset, *one[3:5])
