"""Windows on a grid: of event time for all channels together, or of the offsets of each channel.

Rule: a `WindowBuffer` holds the messages of each timeline. The watermark or the messages move its horizon, as the plan
says; the horizon of windows of offsets always follows their messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.operators.messages.grid import HIGHEST, LOWEST
from keyedwm.operators.messages.listing import BufferedAxes
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.window_buffer import WindowBuffer, horizons_before
from keyedwm.operators.messages.window_content import ContentContext, StoreContent
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow, RowWindow
from keyedwm.operators.results import Output


class GridContent(StoreContent, windows=HoppingWindow):
    """Windows of event time: one timeline, whose number is 0."""

    def __init__(self, plan: StorePlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(plan, context, state)
        self._states: dict[str, Any] = state.get("axes", {})
        self.timelines: dict[int, WindowBuffer] = {}
        for number in self._states:
            self._timeline(int(number))

    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold messages; they move the horizon if messages complete windows."""
        timeline = self._timeline(0)
        if self._plan.full is CompletedBy.MESSAGE:
            yield from self._take_in_turn(timeline, messages, now_ms)
        else:
            horizons = np.full(len(messages), timeline.horizon)
            yield from timeline.buffer_messages(self._admitted(timeline, messages, horizons), now_ms)

    def due(self, watermark_ms: int, _input_number: int = 0) -> Iterator[Output]:
        """Complete windows. If messages complete windows, a watermark only releases them.

        Their panes would be behind the watermark that was passed on: few messages may come to this bucket.
        """
        timeline, kept_for = self._timeline(0), self._plan.retention.time_ms
        if self._plan.full is CompletedBy.WATERMARK:
            yield from self._advance(timeline, watermark_ms)
        elif kept_for is not None:
            yield from timeline.advance(watermark_ms - kept_for)
            yield from self._release(timeline, watermark_ms - kept_for)

    def next_due(self) -> int | None:
        """The first time of all timelines."""
        return min((ms for one in self.timelines.values() if (ms := one.next_timer_ms) is not None), default=None)

    def fire(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        for timeline in self._in_turn():
            yield from timeline.on_timer(now_ms)

    def shrink(self) -> Iterator[Output]:
        """Drop the oldest window, until nothing is beyond a limit."""
        timelines = self._in_turn()
        while (timeline := self._over_retention(timelines)) is not None:
            end = timeline.oldest()[1]
            yield from timeline.show_unfinished(end)
            yield from self._release(timeline, end, over_limit=True)

    def end(self) -> Iterator[Output]:
        """Complete and release all windows."""
        for timeline in self._in_turn():
            yield from timeline.advance(HIGHEST)
            yield from self._release(timeline, HIGHEST)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark up to which windows are gone: a kept window can have late panes."""
        if self._plan.retention.time_ms is not None:
            return watermark_ms - self._plan.retention.time_ms
        return min(watermark_ms, self.timelines[0].floor if 0 in self.timelines else LOWEST)

    def message_count(self) -> int:
        """The number of messages that the slices hold."""
        return sum(timeline.store.totals[0] for timeline in self.timelines.values())

    def state(self) -> dict[str, Any]:
        """The state of each timeline by its number, and for a summary how many windows and messages there are."""
        oldest = [timeline.oldest() for timeline in self.timelines.values()]
        first = None
        if not self._plan.is_rows:
            first = min((end for _, end in oldest), default=HIGHEST) - self._plan.grid().size
        return {
            "axes": {str(number): timeline.state() for number, timeline in self.timelines.items()},
            "open": [sum(windows for windows, _ in oldest), self.message_count(), first],
        }

    def of_input(self, number: int) -> BufferedAxes:
        """Return the messages on the timelines."""
        return BufferedAxes(self._inputs[number], self.timelines)

    def _in_turn(self) -> list[WindowBuffer]:
        """Return the timelines in the order in which they yield panes and, if they hold equally much, drop windows."""
        return list(self.timelines.values())

    def _timeline(self, number: int) -> WindowBuffer:
        if number not in self.timelines:
            first = self.channels.first[number] if self._plan.is_rows else 0
            self.timelines[number] = WindowBuffer(
                self._plan, self._plan.grid(first), self.channels, self._logs, place=number,
                state=self._states.get(str(number), {}),
            )  # fmt: skip
        return self.timelines[number]

    def _take_in_turn(self, timeline: WindowBuffer, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold messages that move the horizon: drop a window before a later message of the call could reach it."""
        known_ahead = self._plan.is_rows and self._plan.full is CompletedBy.WATERMARK
        while len(messages):
            first = max(1, timeline.before_outlived(messages.at))
            now, messages = messages.part(0, first), messages.part(first)
            horizons = horizons_before(now.at, timeline.horizon)
            yield from timeline.buffer_messages(self._admitted(timeline, now, horizons), now_ms)
            yield from self._advance(timeline, int(now.at.max()) + known_ahead)

    def _admitted(self, timeline: WindowBuffer, messages: Messages, horizons: Ints) -> Messages:
        """Return the messages that some window accepts. horizons: the horizon before each message."""
        return self._counter.admit(messages, timeline.reasons(messages.at, horizons))

    def _advance(self, timeline: WindowBuffer, horizon: int) -> Iterator[Output]:
        yield from timeline.advance(horizon)
        kept_for = self._plan.retention.time_ms
        if kept_for is not None:
            yield from self._release(timeline, horizon - kept_for)

    def _release(self, timeline: WindowBuffer, last: int, *, over_limit: bool = False) -> Iterator[Output]:
        yield from timeline.expire(last)
        self._counter.release(*timeline.forgotten(), 1, over_limit=over_limit)

    def _over_retention(self, timelines: Sequence[WindowBuffer]) -> WindowBuffer | None:
        """Return the timeline whose oldest window must go: with too many windows, or the most of too many messages."""
        limits, holding = self._plan.retention, [one for one in timelines if len(one.store.slices)]
        for timeline in holding:
            if limits.max_windows is not None and timeline.oldest()[0] > limits.max_windows:
                return timeline
        for place, most in enumerate((limits.max_messages, limits.max_bytes)):
            if most is not None and sum(timeline.store.totals[place] for timeline in holding) > most:
                return max(holding, key=lambda timeline: timeline.store.totals[place])  # the first of equal ones
        return None


class RowGridContent(GridContent, windows=RowWindow):
    """Windows of offsets: each channel is a timeline, which begins with the first offset that was read."""

    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold the messages of each channel; they move its horizon."""
        for number in self.channels.in_order(sorted_distinct(messages.channels).tolist()):
            yield from self._take_in_turn(self._timeline(number), messages.filter(messages.channels == number), now_ms)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Panes of rows have no event time, so no pane is behind a watermark."""
        return watermark_ms

    def _in_turn(self) -> list[WindowBuffer]:
        """Return the timelines by topic and partition: their numbers depend on which message was read first."""
        return [self.timelines[number] for number in self.channels.in_order(self.timelines)]
