"""No result is ever late behind the watermark that its operator passed on before it: a law over all operators."""

from __future__ import annotations

import random

import pytest

from conformance.driver import DrivenOperator
from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.panes import Early
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore
from tests.operators.streams import Event, plan_of, table
from tests.seeds import seeds

WINDOWS = (
    SlidingWindow(10, 10),
    SlidingWindow(12, 4, 1),
    SlidingWindow(40, 1),
    SessionWindow(6),
    SessionWindow(6, Touching.SEPARATE),
)
EARLY = (None, Early(rows=2, every_ms=50))
COUNT = (("rows", agg.count()),)


@pytest.mark.parametrize("early", EARLY, ids=str)
@pytest.mark.parametrize(("lateness_ms", "rule"), [(0, LateRule.WINDOW), (7, LateRule.WINDOW), (0, LateRule.EVENT)])
@pytest.mark.parametrize("accumulating", [True, False])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("seed", seeds(1))
def test_no_result_is_late_behind_its_operators_own_watermark(window, accumulating, lateness_ms, rule, early, seed):
    plan = plan_of(
        window, aggregates=COUNT, early=early, lateness_ms=lateness_ms, late_rule=rule, accumulating=accumulating,
        late=LatePolicy.EMIT,
    )  # fmt: skip
    rng = random.Random(seed)
    operator = operator_of(plan, MemoryStore())
    now_ms = watermark_ms = 0
    passed_on_ms = None
    result_count = 0
    for step in range(50):
        now_ms += rng.randrange(30)
        move = rng.random()
        if move < 0.5:
            times = [watermark_ms + rng.randrange(-25, 30) for _ in range(rng.randrange(1, 5))]
            rows = [Event(rng.choice("ab"), time_ms, 1, None, None, step) for time_ms in times]
            outputs = list(operator.on_rows(0, combine_rows(plan, table(rows)), now_ms))
        elif move < 0.6:
            outputs = list(operator.on_timer(now_ms))
        else:
            watermark_ms += rng.randrange(6)
            outputs = list(operator.on_watermark(0, 0, watermark_ms))
        for output in outputs:
            for event_ms, row in zip(output.event_ms.tolist(), output.rows.to_pylist(), strict=True):
                if row["pane"]["timing"] == "expired":  # late rows themselves, which no window takes any more
                    continue
                result_count += 1
                assert passed_on_ms is None or event_ms >= passed_on_ms
        if move >= 0.6:
            passed_on_ms = operator.output_watermark_ms(watermark_ms)
    assert result_count


def test_a_chained_window_takes_a_session_that_closes_behind_a_watermark_at_its_end():
    """A session that ends at 10 may still take an event at 10, so it is open at W = 10, and closes at W = 11."""
    sessions = DrivenOperator(plan_of(SessionWindow(4), aggregates=COUNT))
    sessions.take(combine_rows(plan_of(SessionWindow(4), aggregates=COUNT), table([Event("k", 6, 1, None, None, 0)])))
    hours = plan_of(SlidingWindow(10, 10), aggregates=COUNT)
    chained = DrivenOperator(hours)
    for watermark_ms in (10, 11):
        for output in sessions.outputs("on_watermark", 0, 0, watermark_ms):
            rows = [Event("k", event_ms, 1, None, None, 0) for event_ms in output.event_ms.tolist()]
            chained.take(combine_rows(hours, table(rows)))
        chained.advance(watermark_ms)
    assert chained.complete()["rows"].to_pylist() == [1]
    assert chained.late_rows == 0
