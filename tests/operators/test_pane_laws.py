"""Laws of panes over random streams: what the panes of a window tell together is what it took, counted by hand."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.panes import Early, EveryBy
from tests.operators.streams import Event, Restarted, plan_of, rows_of, table
from tests.seeds import seeds

COUNT = (("rows", agg.count()), ("total", agg.sum("n")))
EARLY = (None, Early(rows=2), Early(every_ms=50), Early(rows=3, every_ms=70), Early(every_ms=9, by=EveryBy.EVENT))


def played_steps(seed, plan):
    """A random stream through a restarted operator; yields what it takes, its watermark before, and what it shows."""
    rng = random.Random(seed)
    operator = Restarted(plan)
    now_ms = watermark_ms = 0
    for step in range(40):
        now_ms += rng.randrange(30)
        move = rng.random()
        rows: list[Event] = []
        if move < 0.6:
            times = [watermark_ms + rng.randrange(-25, 30) for _ in range(rng.randrange(1, 5))]
            rows = [Event(rng.choice("ab"), time_ms, rng.randrange(9), None, None, step) for time_ms in times]
            results = operator.take(combine_rows(plan, table(rows)), now_ms)
        elif move < 0.75:
            results = operator.clock(now_ms)
        else:
            watermark_ms += rng.randrange(12)
            results = operator.advance(watermark_ms)
        yield rows, watermark_ms, rows_of(results), operator
    yield [], watermark_ms, rows_of(operator.complete()), operator


@pytest.mark.parametrize("early", EARLY, ids=str)
@pytest.mark.parametrize("lateness_ms", [0, 7])
@pytest.mark.parametrize("accumulating", [True, False])
@pytest.mark.parametrize("window", [SlidingWindow(10, 10), SlidingWindow(12, 4, 1)], ids=str)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_panes_of_a_window_tell_together_what_it_took(window, accumulating, lateness_ms, early, seed):
    plan = plan_of(window, aggregates=COUNT, early=early, lateness_ms=lateness_ms, accumulating=accumulating)
    took: Counter = Counter()
    panes_by_window: defaultdict[tuple, list] = defaultdict(list)
    for rows, watermark_ms, pane_rows, _ in played_steps(seed, plan):
        for row in rows:
            first = window.offset_ms + ((row.time_ms - window.offset_ms) // window.slide_ms + 1) * window.slide_ms
            for end in range(first, first + window.size_ms, window.slide_ms):
                if end + lateness_ms > watermark_ms or watermark_ms == 0:  # the stream begins without a watermark
                    took[row.k, end] += row.n
        for row in pane_rows:
            panes_by_window[row["k"], row["end"]].append(
                (row["pane"]["index"], row["total"] or 0, row["pane"]["timing"])
            )
    assert panes_by_window.keys() == took.keys()
    for window_of, panes in panes_by_window.items():
        assert [index for index, _, _ in panes] == list(range(len(panes)))
        assert sum(timing == "on_time" for _, _, timing in panes) <= 1
        assert [timing for _, _, timing in panes] == sorted(
            (timing for _, _, timing in panes), key=("early", "on_time", "late").index
        )
        totals = [total for _, total, _ in panes]
        assert (totals[-1] if accumulating else sum(totals)) == took[window_of]


@pytest.mark.parametrize("early", EARLY, ids=str)
@pytest.mark.parametrize("lateness_ms", [0, 7])
@pytest.mark.parametrize("seed", seeds(1))
def test_discarding_sessions_tell_every_row_that_was_not_late_once(lateness_ms, early, seed):
    plan = plan_of(SessionWindow(6), aggregates=COUNT, early=early, lateness_ms=lateness_ms, accumulating=False)
    took = pane_row_count = 0
    steps = list(played_steps(seed, plan))
    for rows, _, pane_rows, _ in steps:
        took += len(rows)
        pane_row_count += sum(row["rows"] for row in pane_rows)
    operator = steps[-1][-1]
    if early is not None or lateness_ms:
        assert pane_row_count == took - operator.late_rows
    assert set(operator.blobs) <= {"note", "touched"}
