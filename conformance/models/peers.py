"""Small models of what the peers do where a rule of the design decides otherwise.

Rule: nothing of ours runs on these. They serve one purpose: a difference counts as decided otherwise only if the peer's
rule, modelled here, gives the peer's answer exactly; any other difference is a failure.
"""

from __future__ import annotations

from collections.abc import Mapping

from keyedwm.core.watermark import MAX_MS, MIN_MS


class Ring:
    """Jet's timestamp history to 0.7: a ring of slots, so what it releases is up to a slot too new."""

    def __init__(self, delay_ms: int, samples: int) -> None:
        self._width_ms = delay_ms // samples
        self._slots: list[int | None] = [None] * (samples + 1)
        self._tail_from_ms: int | None = None

    def sample(self, now_ms: int, value: int | None) -> int | None:
        """Move on to `now_ms`, note the value, and give the oldest slot."""
        if self._tail_from_ms is None:
            self._tail_from_ms = now_ms
        moves = 0
        while now_ms >= self._tail_from_ms + self._width_ms and moves < len(self._slots):
            self._slots = [*self._slots[1:], self._slots[-1]]
            self._tail_from_ms += self._width_ms
            moves += 1
        if moves == len(self._slots):
            self._tail_from_ms = now_ms
        self._slots[-1] = value
        return self._slots[0]


class RingDelay:
    """Jet's lag and delay on that ring."""

    def __init__(self, lag_ms: int, delay_ms: int, samples: int) -> None:
        self._lag_ms = lag_ms
        self._ring = Ring(delay_ms, samples)
        self._top_ms: int | None = None
        self._watermark_ms: int | None = None

    def observe(self, event_ms: int, _now_ms: int) -> None:
        """Take an event."""
        self._top_ms = event_ms if self._top_ms is None else max(self._top_ms, event_ms)

    def current(self, now_ms: int) -> int | None:
        """The watermark."""
        known = self._ring.sample(now_ms, self._top_ms)
        lagged = None if self._top_ms is None else self._top_ms - self._lag_ms
        times_ms = [time_ms for time_ms in (known, lagged, self._watermark_ms) if time_ms is not None]
        self._watermark_ms = max(times_ms, default=None)
        return self._watermark_ms

    def snapshot(self) -> tuple[int, ...]:
        """It is never saved."""
        return ()


class Valve:
    """Flink's valve between tasks: only `active` wakes, a woken laggard is left out until it caught up."""

    def __init__(self, inputs: int, *, legacy: bool) -> None:
        self._watermark = [MIN_MS] * inputs
        self._active = [True] * inputs
        self._aligned = [True] * inputs
        self._last = MIN_MS
        self._legacy = legacy

    def step(self, op: str, number: int, time_ms: int | None = None) -> list[tuple]:
        """What comes out: ("wm", n) and ("idle",)."""
        if op == "wm":
            return self._advance(number, MIN_MS if time_ms is None else time_ms)
        if op == "idle":
            return self._go_idle(number)
        return self._wake(number)

    def _advance(self, number: int, time_ms: int) -> list[tuple]:
        if not self._active[number] or time_ms <= self._watermark[number]:
            return []
        self._watermark[number] = time_ms
        self._aligned[number] = self._aligned[number] or time_ms >= self._last
        return self._lowest()

    def _go_idle(self, number: int) -> list[tuple]:
        if not self._active[number]:
            return []
        self._active[number] = self._aligned[number] = False
        was_lowest = self._watermark[number] == self._last
        if any(self._active):
            return self._lowest() if was_lowest else []
        output: list[tuple] = []
        highest = max(self._watermark)
        if highest > self._last and (was_lowest or not self._legacy):
            self._last = highest
            output.append(("wm", highest))
        return [*output, ("idle",)]

    def _wake(self, number: int) -> list[tuple]:
        if self._active[number]:
            return []
        self._active[number] = True
        self._aligned[number] = self._watermark[number] >= self._last
        return [] if self._legacy else self._lowest()

    def _lowest(self) -> list[tuple]:
        aligned = [time_ms for time_ms, yes in zip(self._watermark, self._aligned, strict=True) if yes]
        if not aligned or min(aligned) <= self._last:
            return []
        self._last = min(aligned)
        return [("wm", self._last)]


class Multiplexer:
    """Flink's combination of splits in one source subtask."""

    def __init__(self) -> None:
        self._splits: dict[str, list] = {}
        self._ever = False
        self._combined: int | None = None
        self._idle = False

    def step(self, op: str, step: Mapping) -> dict:
        """Apply, then the state of the combined output."""
        split = step.get("split")
        immediate = step.get("mode") == "immediate"
        if op == "register":
            self._ever = True
            self._splits[str(split)] = [None, False]
            self._idle = False
        elif op == "unregister":
            del self._splits[str(split)]
        elif op == "periodic":
            self._recompute()
        elif op == "wm":
            before, _ = self._splits[str(split)]
            advanced = before is None or step["ts"] > before
            self._splits[str(split)] = [step["ts"] if advanced else before, False]
            if immediate:
                if advanced and (self._combined is None or step["ts"] > self._combined):
                    self._recompute()
                self._idle = self._idle and self._all_idle()
        else:
            self._splits[str(split)][1] = op == "idle"
            if immediate:
                self._recompute()
        return {"wm": self._combined, "idle": self._idle}

    def _all_idle(self) -> bool:
        return all(idle for _, idle in self._splits.values())

    def _recompute(self) -> None:
        if not self._ever:
            return
        self._idle = self._all_idle()
        times_ms = [time_ms for time_ms, idle in self._splits.values() if self._idle or not idle]
        if not times_ms or (None in times_ms and not self._idle):
            return
        known = [time_ms for time_ms in times_ms if time_ms is not None]
        combined = (max if self._idle else min)(known, default=None)
        if combined is not None and (self._combined is None or combined > self._combined):
            self._combined = combined


class IdleTimer:
    """Flink's idleness: the first quiet probe arms, a later one strictly beyond the timeout tells."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._event_since_probe = False
        self._armed_at_ms: int | None = None
        self._idle = False
        self._paused_at_ms: int | None = None
        self._paused_ms = 0

    def step(self, op: str, now_ms: int) -> dict | None:
        """The answer to a probe, None for anything else."""
        if op == "event":
            self._event_since_probe, self._idle = True, False
            return None
        if op == "pause":
            self._paused_at_ms = now_ms if self._paused_at_ms is None else self._paused_at_ms
            return None
        if op == "resume":
            if self._paused_at_ms is not None:
                self._paused_ms += now_ms - self._paused_at_ms
            self._paused_at_ms = None
            return None
        clock_ms = (now_ms if self._paused_at_ms is None else self._paused_at_ms) - self._paused_ms
        before = self._idle
        if self._event_since_probe:
            self._event_since_probe, self._armed_at_ms, self._idle = False, None, False
        elif self._armed_at_ms is None:
            self._armed_at_ms = clock_ms
        else:
            self._idle = self._idle or clock_ms - self._armed_at_ms > self._timeout_ms
        return {"idle": self._idle, "mark_idle": self._idle and not before}


class DriftLimit:
    """Flink's watermark alignment: the lowest report of a group plus the drift it allows."""

    def __init__(self, max_drift_ms: int) -> None:
        self._max_drift_ms = max_drift_ms
        self._reported: dict[str, dict[tuple, int]] = {}

    def report(self, group: str, subtask: tuple, time_ms: int) -> None:
        """A subtask's last watermark."""
        self._reported.setdefault(group, {})[subtask] = time_ms

    def announce(self, group: str) -> int:
        """The limit."""
        lowest = min(self._reported.get(group, {}).values(), default=MAX_MS)
        return min(MAX_MS, lowest + self._max_drift_ms)


class PausedSplits:
    """Flink's pausing of splits that are strictly above the limit."""

    def __init__(self) -> None:
        self._splits: dict[str, int] = {}
        self._limit = MAX_MS
        self._emitted = MIN_MS
        self._paused: set[str] = set()

    def step(self, op: str, split: str | None, time_ms: int) -> dict:
        """Apply, then who is paused and whether the subtask waits."""
        if op == "split_wm" and split is not None:
            self._splits[split] = max(time_ms, self._splits.get(split, time_ms))
            if self._splits[split] > self._limit:
                self._paused.add(split)
        elif op == "finished" and split is not None:
            self._splits.pop(split, None)
            self._paused.discard(split)
        elif op == "emitted":
            self._emitted = time_ms
        else:
            self._limit = time_ms
            self._paused = {name for name, split_ms in self._splits.items() if split_ms > time_ms}
        return {"paused": sorted(self._paused), "waiting": self._emitted > self._limit}


class Sampler:
    """Flink's alignment buffer: decisions use the sample of `capacity` intervals ago."""

    def __init__(self, capacity: int) -> None:
        self._samples = [MIN_MS] * capacity
        self._latest = MIN_MS

    def latest(self, time_ms: int) -> int:
        """Note the newest watermark; return the sample that counts."""
        self._latest = time_ms
        return self.current()

    def sample(self) -> int:
        """An interval ends; return the sample that counts."""
        self._samples = [*self._samples[1:], self._latest] if self._samples else []
        return self.current()

    def current(self) -> int:
        """The sample that counts."""
        return self._samples[0] if self._samples else self._latest
