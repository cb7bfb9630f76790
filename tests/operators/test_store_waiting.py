"""Late panes that wait for the clock, against a model in plain Python: each window by itself, any input, any cut."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from keyedwm.operators.frames.plan import SlidingWindow
from keyedwm.operators.messages.plan import Full
from keyedwm.operators.state import store as logs
from tests.operators.stored import Model, Restarted, cut, plan_of, random_messages, table
from tests.operators.test_window_store import RETENTIONS, WINDOWS

EVERY_MS = 9


@dataclass
class ClockModel(Model):
    now: int = 0
    due: dict[int, int] = field(default_factory=dict)  # by the window's end

    def show_late(self, pairs: list[tuple]) -> None:
        for end, _ in pairs:
            self.due.setdefault(end, self.now + EVERY_MS)

    def timeout(self, now: int) -> None:
        self.now = now
        self.show_waiting({end for end, due in self.due.items() if due <= now})

    def show_waiting(self, ends: set[int]) -> None:
        pairs = {(end, one.k) for one in self.held for end in self.ends(one.time) if end in ends}
        self.show([pair for pair in pairs if self.news(*pair)], "late")
        self.due = {end: due for end, due in self.due.items() if end not in ends}

    def expire(self, last: int) -> int:
        self.show_waiting({end for end in self.due if end <= last})
        return super().expire(last)


def differential(seed: int, window, full: Full, count: int) -> int:
    """Play random messages and a clock to the store and to the model; return how many late panes there were."""
    retention, rng, now = RETENTIONS[seed % 4], random.Random(f"clock {seed}"), 0
    step_ms = window.slide_ms if isinstance(window, SlidingWindow) else window.step_ms
    model = ClockModel(window.size_ms, step_ms, window.offset_ms, full, retention, accumulating=seed % 3 != 1)
    plan = plan_of(window, full=full, retention=retention, late_every_ms=EVERY_MS, accumulating=seed % 3 != 1)
    played = Restarted(plan, always=seed % 5 != 4)
    for name, given in cut(seed, random_messages(f"waiting {seed}", count), watermarks=True):
        now += rng.choice([0, 1, 3, 8])
        if name == "add_message":
            model.now = now
            model.take(given)
            model.timeout(now)
            played.step(name, table(given), now)
        else:
            model.watermark(given)
            played.step(name, given)
        model.limit()
        if rng.random() < 0.3:
            now += 1
            model.timeout(now)
            played.step("timeout", now)
        assert played.made == model.made
        assert played.operator.next_timeout_ms == min(model.due.values(), default=None)
    return sum(pane[4] == "late" for pane in model.made)


@pytest.mark.parametrize("full", Full, ids=lambda full: full.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_late_panes_come_when_their_window_is_due_or_goes_with_a_restart_after_each_step(window, full, monkeypatch):
    monkeypatch.setattr(logs, "FAN_OUT", 3)  # compaction at every third part
    assert sum(differential(seed, window, full, 40) for seed in range(12)) > 3
