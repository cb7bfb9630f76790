"""Early panes of windows of keys with watermarks of their own: every row is told, and nothing that has closed again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from conformance.driver import DrivenOperator
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.panes import Early, EveryBy
from tests.operators.laws.small import SMALL
from tests.operators.per_key_model import Model, Row
from tests.operators.streams import rows_of
from tests.operators.test_per_key import KEYS, WINDOWS, panes, plan_of, stream, table


@pytest.mark.parametrize("window", WINDOWS[:2], ids=str)
@pytest.mark.parametrize("early", [Early(rows=3), Early(every_ms=7, by=EveryBy.EVENT)], ids=str)
@pytest.mark.parametrize("per_key", [KEYS[0], KEYS[3]], ids=str)
def test_panes_that_discard_tell_every_row_of_a_window_once(window, early, per_key):
    plan = plan_of(window, per_key, early=early, accumulating=False)
    blobs, actual_counts, expected_counts = {}, Counter(), Counter()
    model = Model(per_key.lag_ms, per_key.behind_ms, window.size_ms, window.slide_ms, per_key.idle_ms)
    for rows, front_ms in [*stream(1), ([], None)]:
        operator = DrivenOperator(plan, blobs, SMALL)
        if rows:
            actual_counts.update(rows_by_window(panes(operator.take(combine_rows(plan, table(rows))))))
        expected_counts.update(rows_by_window(model.add_rows(rows)))
        if front_ms is not None:
            actual_counts.update(rows_by_window(panes(operator.advance(front_ms))))
            expected_counts.update(rows_by_window(model.advance(front_ms)))
        blobs = operator.snapshot()
    actual_counts.update(rows_by_window(panes(DrivenOperator(plan, blobs, SMALL).complete())))
    expected_counts.update(rows_by_window(model.complete()))
    assert actual_counts == expected_counts


def test_a_window_of_which_an_early_pane_told_all_closes_though_its_aggregate_merges_in_another_form():
    """An approximate count is merged as lists and totalled as registers, and there is no row left to total."""
    plan = replace(
        plan_of(WINDOWS[0], PerKey(0, 100), early=Early(rows=1), accumulating=False),
        aggregates=(("pages", agg.approx_count_distinct("page")),),
    )
    operator, result_rows = DrivenOperator(plan), []
    for time_ms in (1, 25):
        result_rows += rows_of(operator.take(combine_rows(plan, table([Row("a", "x", 0, time_ms, time_ms)]))))
    assert [(row["end"], row["pane"]["timing"], row["pages"]) for row in result_rows] == [
        (10, "early", 1), (30, "early", 1), (10, "on_time", 0),
    ]  # fmt: skip


def test_a_window_that_has_just_closed_shows_no_early_pane():
    """W - behind closes windows and lets early panes leave in the same call."""
    plan = plan_of(WINDOWS[1], PerKey(0, 0), early=Early(every_ms=7, by=EveryBy.EVENT))
    operator = DrivenOperator(plan)
    operator.advance(0)
    operator.take(combine_rows(plan, table([Row("a", "x", 0, 1, 0)])))
    assert [(end, timing) for *_, end, _, timing in panes(operator.advance(9))] == [
        (4, "on_time"), (8, "on_time"), (12, "early"),
    ]  # fmt: skip


def rows_by_window(pane_rows) -> Counter:
    rows = Counter()
    for owner, page, end, count, _ in pane_rows:
        rows[owner, page, end] += count
    return rows
