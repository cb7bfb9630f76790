"""Tumbling and sliding windows out of frames (rule 11). The scalar reference.

Rule: a window `[end - size, end)` is the combination of its frames and closes at W >= end; it is kept until
W >= end + lateness, and an event that reaches it meanwhile gives its new total at once. A key is in a window if one of
its frames has it, whatever the total. Results of one step stand in order of end, then key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conformance.models.frames import higher_frame
from conformance.models.results import Late, WindowResult
from keyedwm.core.aggregate import AccumulatorFunctions
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.throttle import floor_frame
from keyedwm.core.watermark import Guarantee
from keyedwm.core.window_rules import LateRule


@dataclass(frozen=True, slots=True)
class SlidingConfig:
    """A tumbling window is one whose slide equals its size."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    lateness_ms: int = 0
    late_rule: LateRule = LateRule.WINDOW

    def __post_init__(self) -> None:
        if self.slide_ms < 1 or self.size_ms < self.slide_ms or self.size_ms % self.slide_ms:
            raise OptionError(f"a window of {self.size_ms} ms by {self.slide_ms} ms is not a whole number of frames")
        if not 0 <= self.offset_ms < self.slide_ms:
            raise OptionError(f"the offset is {self.offset_ms} ms, it must be 0 or more and below {self.slide_ms} ms")
        if self.lateness_ms < 0 or (self.lateness_ms and self.late_rule is not LateRule.WINDOW):
            raise OptionError(
                f"a lateness of {self.lateness_ms} ms needs the late rule window and must not be negative"
            )


@dataclass(frozen=True, slots=True)
class SlidingState:
    """Windows at rest: accumulators by frame end and data key, and the last watermark."""

    frames: Mapping[int, Mapping[object, object]] = field(default_factory=dict)
    watermark_ms: int | None = None


class Sliding:
    """One operator instance. `frames` of a state may come from another frame length: ends are aligned up."""

    def __init__(
        self, config: SlidingConfig, aggregate: AccumulatorFunctions, state: SlidingState | None = None
    ) -> None:
        state = state or SlidingState()
        self._config = config
        self._aggregate = aggregate
        self._frames: dict[int, dict[object, object]] = {}
        self._watermark_ms = state.watermark_ms
        for end_ms in sorted(state.frames):
            for key, accumulator in state.frames[end_ms].items():
                self._add(self._frame_of(end_ms - 1), key, accumulator)
        self._forget()

    def event(self, event_ms: int, key: object, value: object) -> list[WindowResult | Late]:
        """Take an event: Late, or the new totals of windows that had closed already."""
        accumulator = self._aggregate.accumulate(self._aggregate.create(), value)
        return self._accept(self._frame_of(event_ms), event_ms, key, accumulator)

    def frame(self, end_ms: int, key: object, accumulator: object) -> list[WindowResult | Late]:
        """Take a partial result for the frame ending at `end_ms` (two-stage aggregation)."""
        return self._accept(self._frame_of(end_ms - 1), end_ms - 1, key, accumulator)

    def watermark(self, time_ms: int) -> list[WindowResult | Late]:
        """Close windows."""
        before_ms = self._watermark_ms
        if before_ms is not None and time_ms <= before_ms:
            return []
        closed = [end_ms for end_ms in self._open_ends() if end_ms <= time_ms]
        results = self._results(closed)
        self._watermark_ms = time_ms
        self._forget()
        return results

    def complete(self) -> list[WindowResult | Late]:
        """The input has ended: every window not yet closed."""
        results = self._results(self._open_ends())
        self._frames.clear()
        return results

    def flush(self) -> list[WindowResult | Late]:
        """Every frame as it is, and forget them: what a first stage does at a snapshot. Nothing becomes late."""
        slide_ms = self._config.slide_ms
        results: list[WindowResult | Late] = [
            WindowResult(start_ms, start_ms + slide_ms, key, self._frames[start_ms][key])
            for start_ms in sorted(self._frames)
            for key in sorted(self._frames[start_ms], key=_order)
        ]
        self._frames.clear()
        return results

    def snapshot(self) -> SlidingState:
        """Everything the next step depends on."""
        slide_ms = self._config.slide_ms
        return SlidingState(
            frames={start_ms + slide_ms: dict(self._frames[start_ms]) for start_ms in sorted(self._frames)},
            watermark_ms=self._watermark_ms,
        )

    def _frame_of(self, time_ms: int) -> int:
        return floor_frame(time_ms, self._config.slide_ms, self._config.offset_ms)

    def _add(self, start_ms: int, key: object, accumulator: object) -> None:
        frame = self._frames.setdefault(start_ms, {})
        frame[key] = self._aggregate.combine(frame[key], accumulator) if key in frame else accumulator

    def _accept(self, start_ms: int, event_ms: int, key: object, accumulator: object) -> list[WindowResult | Late]:
        if self._is_late(start_ms, event_ms):
            return [Late()]
        self._add(start_ms, key, accumulator)
        watermark_ms = self._watermark_ms
        if watermark_ms is None or self._config.late_rule is not LateRule.WINDOW:
            return []
        windows = [
            end_ms for end_ms in self._ends_of(start_ms) if end_ms <= watermark_ms < end_ms + self._config.lateness_ms
        ]
        return self._results(windows, only=(key,))

    def _is_late(self, start_ms: int, event_ms: int) -> bool:
        watermark_ms = self._watermark_ms
        if watermark_ms is None:
            return False
        if self._config.late_rule is LateRule.WINDOW:
            return start_ms + self._config.size_ms + self._config.lateness_ms <= watermark_ms
        if self._config.late_rule is LateRule.FRAME:
            return start_ms + self._config.slide_ms <= watermark_ms
        return event_ms < watermark_ms

    def _ends_of(self, start_ms: int) -> range:
        slide_ms = self._config.slide_ms
        return range(start_ms + slide_ms, start_ms + self._config.size_ms + slide_ms, slide_ms)

    def _open_ends(self) -> list[int]:
        """The ends of windows with data that have not closed, ascending."""
        ends = {end_ms for start_ms in self._frames for end_ms in self._ends_of(start_ms)}
        return sorted(end_ms for end_ms in ends if self._watermark_ms is None or end_ms > self._watermark_ms)

    def _results(self, ends: Iterable[int], only: tuple | None = None) -> list[WindowResult | Late]:
        results: list[WindowResult | Late] = []
        size_ms, slide_ms = self._config.size_ms, self._config.slide_ms
        for end_ms in ends:
            total: dict[object, object] = {}
            for start_ms in range(end_ms - size_ms, end_ms, slide_ms):
                for key, accumulator in self._frames.get(start_ms, {}).items():
                    total[key] = self._aggregate.combine(total[key], accumulator) if key in total else accumulator
            results += [
                WindowResult(end_ms - size_ms, end_ms, key, self._aggregate.finish(total[key]))
                for key in sorted(total, key=_order)
                if only is None or key in only
            ]
        return results

    def _forget(self) -> None:
        """Drop the frames that no window which can still change or close needs."""
        if self._watermark_ms is None:
            return
        kept_ms = self._watermark_ms - self._config.size_ms - self._config.lateness_ms
        for start_ms in [start_ms for start_ms in self._frames if start_ms <= kept_ms]:
            del self._frames[start_ms]


def common_window_end(ends: Iterable[int], guarantee: Guarantee) -> int:
    """The next window end to restore from what the former instances saved: they must agree under exactly-once."""
    distinct = sorted(set(ends))
    if len(distinct) > 1 and guarantee is Guarantee.EXACTLY_ONCE:
        raise InputError(f"the restored instances stand at different windows {distinct}, they must agree")
    return distinct[0]


def watermark_before(end_ms: int, config: SlidingConfig) -> int:
    """The watermark after which the window ending at `end_ms` (aligned up to the frames) is the next to close."""
    return higher_frame(end_ms - 1, config.slide_ms, config.offset_ms) - config.slide_ms


def _order(key: object) -> tuple[str, object]:
    return type(key).__name__, key
