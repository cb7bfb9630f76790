"""The scalar model of windows on a grid, of event time or of the offsets of a channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from keyedwm.operators.frames.plan import SlidingWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, RowWindow
from tests.operators.laws.scalar import NEVER, ListedWindow, ScalarModel, by_key, by_offset, by_time
from tests.operators.stored import KEEP_ALL, Message, records_text, table


@dataclass
class GridModel(ScalarModel):
    """Windows of event time, one message at a time."""

    size: int
    step: int
    offset: int
    full: CompletedBy = CompletedBy.WATERMARK
    retention: Retention = KEEP_ALL
    rows: int | None = None
    late_rows: int | None = None
    accumulating: bool = True
    late_every_ms: int | None = None
    records_in_panes: dict = field(default_factory=dict)
    held_messages: list[Message] = field(default_factory=list)
    seen_records: set = field(default_factory=set)
    horizon: int = NEVER
    floor: int = NEVER
    pane_counts: dict = field(default_factory=dict)
    rejected: list = field(default_factory=list)
    dropped_messages: int = 0
    results: list = field(default_factory=list)
    now: int = 0
    due: dict[int, int] = field(default_factory=dict)  # when late panes are due, by the window's end

    @classmethod
    def of(cls, plan: StorePlan) -> GridModel:
        window = plan.window
        step_ms = window.slide_ms if isinstance(window, SlidingWindow) else window.step_ms
        rows = None if plan.early is None else plan.early.rows
        return cls(window.size_ms, step_ms, window.offset_ms, plan.full, plan.retention, rows, plan.late_rows,
                   plan.accumulating, plan.late_every_ms)  # fmt: skip

    def at(self, one: Message) -> int | None:
        return one.time

    def ends(self, at: int) -> list[int]:
        start = at - (at - self.offset) % self.step
        return sorted(s + self.size for s in range(start, start - self.size, -self.step) if s <= at < s + self.size)

    def ends_of(self, one: Message) -> list[int]:
        at = self.at(one)
        return [] if at is None else self.ends(at)

    def add_messages(self, messages: list[Message], now_ms: int = 0) -> None:
        """A message may meet a window that goes by the messages before it: then these have their batch first."""
        self.now = now_ms
        horizon, kept_for = self.horizon, self.retention.time_ms
        fresh = [
            one for at, one in enumerate(messages) if one[3:] not in self.seen_records and one not in messages[:at]
        ]
        for at, one in enumerate(fresh if self.full is CompletedBy.MESSAGE and kept_for else ()):
            floor, ends = horizon - kept_for, self.ends_of(one)
            if any(self.floor < end <= floor for end in ends) and ends[-1] > floor:
                self.add_messages(fresh[:at], now_ms)
                self.add_messages(fresh[at:], now_ms)
                return
            horizon = horizon if one.time is None else max(horizon, one.time)
        self.take_together(messages)

    def take_together(self, messages: list[Message]) -> None:
        before, fresh, horizon = self.horizon, [], self.horizon
        for one in messages:
            if one[3:] in self.seen_records:
                continue
            self.seen_records.add(one[3:])
            if self.at(one) is None:
                self.rejected.append((one, "no event time"))
                continue
            ends, floor = self.ends_of(one), self.floor
            if self.retention.time_ms is not None:
                floor = max(floor, horizon - self.retention.time_ms)
            if not ends:
                self.rejected.append((one, "between windows"))
            elif ends[-1] <= floor:
                self.rejected.append((one, "outside the retention"))
            else:
                self.held_messages.append(one)
                fresh.append(one)
            horizon = self.horizon_after(horizon, self.at(one))
        changed_windows = {(end, one.k) for one in fresh for end in self.ends_of(one)}
        self.show_late([pair for pair in changed_windows if self.floor < pair[0] <= before])
        if self.rows is not None:
            due = [(end, k) for end, k in changed_windows if end > max(before, self.floor)]
            self.show([pair for pair in due if self.new_message_count(*pair) >= self.rows], "early")
        self.advance(horizon)

    def horizon_after(self, horizon: int, at: int) -> int:
        """Where the horizon stands behind a message at a place."""
        return max(horizon, at) if self.full is CompletedBy.MESSAGE else horizon

    def show_late(self, pairs: list[tuple]) -> None:
        if self.late_every_ms is not None:
            for end, _ in pairs:
                self.due.setdefault(end, self.now + self.late_every_ms)
            return
        self.show([pair for pair in pairs if self.new_message_count(*pair) >= (self.late_rows or 0)], "late")

    def timeout(self, now_ms: int) -> None:
        self.now = now_ms
        self.show_waiting({end for end, due in self.due.items() if due <= now_ms})

    def next_timeout(self) -> int | None:
        return min(self.due.values(), default=None)

    def show_waiting(self, ends: set[int]) -> None:
        pairs = {(end, one.k) for one in self.held_messages for end in self.ends_of(one) if end in ends}
        self.show([pair for pair in pairs if self.new_message_count(*pair)], "late")
        self.due = {end: due for end, due in self.due.items() if end not in ends}

    def watermark(self, time: int) -> None:
        if self.full is CompletedBy.WATERMARK:
            self.advance(time)

    def advance(self, horizon: int) -> None:
        if horizon <= self.horizon:
            return
        pairs = {
            (end, one.k)
            for one in self.held_messages
            for end in self.ends_of(one)
            if max(self.horizon, self.floor) < end <= horizon
        }
        self.horizon = horizon
        self.show(pairs, "on_time")
        if self.retention.time_ms is not None:
            self.expire(horizon - self.retention.time_ms)

    def expire(self, last: int) -> int:
        before = len(self.held_messages)
        self.show_waiting({end for end in self.due if end <= last})
        if self.late_rows is not None:  # what was not enough
            pairs = {
                (end, one.k) for one in self.held_messages for end in self.ends_of(one) if self.floor < end <= last
            }
            self.show([pair for pair in pairs if pair[0] <= self.horizon and self.new_message_count(*pair)], "late")
        self.floor = max(self.floor, last)
        self.held_messages = [one for one in self.held_messages if self.ends_of(one)[-1] > self.floor]
        return before - len(self.held_messages)

    def kept_ends(self) -> list[int]:
        return sorted({end for one in self.held_messages for end in self.ends_of(one) if end > self.floor})

    def is_beyond(self) -> bool:
        limits = self.retention
        return (limits.max_windows is not None and len(self.kept_ends()) > limits.max_windows) or (
            limits.max_messages is not None and len(self.held_messages) > limits.max_messages
        )

    def limit(self) -> None:
        while self.is_beyond():
            self.drop_oldest()

    def drop_oldest(self) -> None:
        end = self.kept_ends()[0]
        if end > self.horizon:
            self.show({(end, one.k) for one in self.held_messages if end in self.ends_of(one)}, "early", last=True)
        self.dropped_messages += self.expire(end)

    def finish(self) -> None:
        self.advance(10**9)
        self.expire(10**9)

    def new_message_count(self, end: int, k: str | None) -> int:
        return len(self.inside(end, k)) - self.pane_counts.get((end, k), (0, 0))[1]

    def inside(self, end: int, k: str | None) -> list[Message]:
        window_messages = [one for one in self.held_messages if one.k == k and end in self.ends_of(one)]
        return sorted(window_messages, key=lambda one: (self.at(one), *one[3:]))

    def show(self, pairs, timing: str, last: bool = False) -> None:
        for end, k in sorted(pairs, key=lambda pair: (pair[0], by_key(pair[1]))):
            inside = self.inside(end, k)
            index, _ = self.pane_counts.get((end, k), (0, 0))
            new = inside
            if not self.accumulating:
                new = [one for one in inside if one[3:] not in self.records_in_panes.setdefault((end, k), set())]
                self.records_in_panes[end, k] |= {one[3:] for one in inside}
                if not new and timing != "on_time" and not last:
                    continue
            self.pane_counts[end, k] = index + 1, len(inside)
            record_text = records_text(table(new)) if new else None
            self.results.append((*self.edges(end), k, record_text, timing, index, last))

    def edges(self, end: int) -> tuple[int, int]:
        return end - self.size, end

    def holding(self) -> list[Message]:
        return sorted(self.held_messages, key=by_time)

    def windows(self) -> Iterator[ListedWindow]:
        for end in self.kept_ends():
            for k in sorted({one.k for one in self.held_messages if end in self.ends_of(one)}, key=by_key):
                yield k, end - self.size, end, self.inside(end, k), end <= self.horizon


@dataclass
class OffsetGridModel(GridModel):
    """Windows of the offsets of one channel, from the first one that was read on."""

    def at(self, one: Message) -> int:
        return one.offset

    def ends(self, at: int) -> list[int]:
        return [end for end in super().ends(at) if end >= self.offset + self.size]

    def horizon_after(self, horizon: int, at: int) -> int:
        """A window that the watermark completes is known to be full with its last offset."""
        return max(horizon, at + (self.full is CompletedBy.WATERMARK))

    def edges(self, end: int) -> tuple[int, int]:
        return end - self.size, end - 1


@dataclass
class RowGridModel(ScalarModel):
    """Windows of offsets: each topic and partition for itself, in order of offset."""

    window: RowWindow
    full: CompletedBy
    retention: Retention
    rows: int | None
    channels: dict[tuple, OffsetGridModel] = field(default_factory=dict)
    results: list = field(default_factory=list)
    is_ordered = False

    @classmethod
    def of(cls, plan: StorePlan) -> RowGridModel:
        return cls(plan.window, plan.full, plan.retention, None if plan.early is None else plan.early.rows)

    @property
    def rejected(self) -> list:
        return [one for model in self.channels.values() for one in model.rejected]

    @property
    def dropped_messages(self) -> int:
        return sum(model.dropped_messages for model in self.channels.values())

    def add_messages(self, messages: list[Message], now_ms: int = 0) -> None:
        by_channel: dict[tuple, list[Message]] = {}
        for one in sorted(set(messages), key=lambda one: one.offset):
            by_channel.setdefault(one[3:5], []).append(one)
        for channel, channel_messages in sorted(by_channel.items()):
            if channel not in self.channels:
                first = channel_messages[0].offset
                limits = Retention(max_windows=self.retention.max_windows or 10**9)
                self.channels[channel] = OffsetGridModel(
                    self.window.size, self.window.step, first, self.full, limits, self.rows, results=self.results
                )
            self.channels[channel].add_messages(channel_messages, now_ms)

    def limit(self) -> None:
        for _, model in sorted(self.channels.items()):
            model.limit()
        most = self.retention.max_messages
        while most is not None and len(self.holding()) > most:
            # The topic and the number of the partition decide between equal ones.
            _, channel = min((-len(model.held_messages), channel) for channel, model in self.channels.items())
            self.channels[channel].drop_oldest()

    def finish(self) -> None:
        for _, model in sorted(self.channels.items()):
            model.finish()

    def holding(self) -> list[Message]:
        return sorted((one for model in self.channels.values() for one in model.held_messages), key=by_offset)

    def windows(self) -> Iterator[ListedWindow]:
        for model in self.channels.values():
            yield from model.windows()
