"""Windows that keep their messages against a model in plain Python: any input, any cut, a restart after each step."""

from __future__ import annotations

import pytest

from keyedwm.operators.aggregates.functions import collect, linear_trend
from keyedwm.operators.frames.plan import SlidingWindow
from keyedwm.operators.messages.plan import Full, HoppingWindow, tumbling_key_rows, tumbling_rows
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.panes import Early
from keyedwm.operators.state import store as logs
from keyedwm.windows import WindowOperator
from tests.operators.stored import KEEP_ALL, Message, Model, Restarted, cut, plan_of, random_messages, table

WINDOWS = (
    HoppingWindow(10, 10),
    HoppingWindow(10, 5, 2),
    HoppingWindow(10, 3),  # the step does not divide the size
    HoppingWindow(4, 10, 1),  # there are gaps
    SlidingWindow(12, 4, 1),
)
RETENTIONS = (KEEP_ALL, Retention(time_ms=15), Retention(max_windows=3), Retention(max_messages=12, time_ms=30))


def model_of(window, full, retention, rows=None, late_rows=None, *, accumulating=True) -> Model:
    step_ms = window.slide_ms if isinstance(window, SlidingWindow) else window.step_ms
    return Model(window.size_ms, step_ms, window.offset_ms, full, retention, rows, late_rows, accumulating)


def differential(seed: int, window, full: Full, count: int, *, accumulating: bool = True) -> int:
    """Play random messages to the store and to the model; return how many panes there were."""
    retention, rows = RETENTIONS[seed % 4], 2 if seed % 2 else None
    early = None if rows is None else Early(rows=rows)
    late_rows = 2 if seed % 3 == 1 else None
    model = model_of(window, full, retention, rows, late_rows, accumulating=accumulating)
    settings = {"early": early, "late_rows": late_rows, "accumulating": accumulating}
    plan = plan_of(window, full=full, retention=retention, **settings)
    played = Restarted(plan, always=seed % 4 != 3)
    messages = random_messages(seed, count)
    for name, given in cut(seed, messages, watermarks=True):
        getattr(model, "take" if name == "add_message" else "watermark")(given)
        played.step(name, table(given) if name == "add_message" else given)
        model.limit()
    assert played.made == model.made
    assert sorted(played.rejected, key=str) == sorted(model.rejected, key=str)
    counts = played.operator.counts
    assert counts.given == len(messages) == counts.taken + counts.rejected + counts.replayed
    assert counts.rejected == len(model.rejected)
    assert counts.dropped_messages == model.dropped
    assert counts.taken - counts.expired - counts.dropped_messages == len(model.held)
    held = played.operator.get_messages(-(10**6), 10**6).to_pylist()
    assert [tuple(row.values()) for row in held] == sorted(model.held, key=lambda one: (one.time, *one[3:]))
    return len(model.made)


@pytest.mark.parametrize("full", Full, ids=lambda full: full.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_panes_rejected_messages_and_counts_are_those_of_the_model_with_a_restart_after_each_step(
    window, full, monkeypatch
):
    monkeypatch.setattr(logs, "FAN_OUT", 3)  # compaction at every third part
    for seed in range(4):
        assert differential(seed, window, full, 50) > 5


@pytest.mark.parametrize("full", Full, ids=lambda full: full.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_panes_of_what_is_new_are_those_of_the_model_with_a_restart_after_each_step(window, full, monkeypatch):
    monkeypatch.setattr(logs, "FAN_OUT", 3)
    for seed in range(10, 14):
        assert differential(seed, window, full, 50, accumulating=False) > 5


@pytest.mark.parametrize("window", [tumbling_rows(4), tumbling_key_rows(4)], ids=str)
def test_a_trend_over_windows_of_rows_goes_by_event_times_and_a_list_by_offsets(window):
    aggregates = (("rise", linear_trend("n")), ("all", collect("n")))
    operator = WindowOperator(plan_of(window, aggregates))
    times = (4_000, None, 1_000, 2_000)  # the value of a row is its second
    operator.add_message(table([Message("x", (ms or 0) // 1_000, ms, "a", 0, at) for at, ms in enumerate(times)]))
    (row,) = operator.flush().to_pylist()
    assert (round(row["rise"], 12), row["all"]) == (1.0, [4, 0, 1, 2])
