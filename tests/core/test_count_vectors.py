"""Vectors of windows that count rows, of sessions that close at the watermark, of assigned windows and clock joins."""

from __future__ import annotations

import pytest

from conformance import decided
from conformance.verdict import MATCH, Outcome, otherwise
from conformance.windows import replay
from tests.core.window_vectors import event, replayed, watermark

COUNT = {"type": "count-tumbling", "size": 3, "agg": "sum", "order_by": "offset"}
TTL = {"type": "ttl-join", "ttl_ms": 1000, "clock": "processing", "result": "left + right"}


def rows(*values, start=1):
    return [event(start + at, value) for at, value in enumerate(values)]


def values(*numbers):
    return [{"value": value} for value in numbers]


def test_a_watermark_is_no_arrival_of_a_count_window():
    steps = [*rows(1, 1), watermark(2), *rows(1, 2, 2, start=3), watermark(4, *values(3)), event(6, 2)]
    assert replayed("count.window", COUNT, [*steps, watermark(55, *values(6))], "exact") == MATCH
    assert replayed("count.window", COUNT, [*steps, watermark(55, *values(7))], "exact").outcome is Outcome.FAIL


@pytest.mark.parametrize(("order", "sums"), [("event-time", (4, 5)), ("offset", (3, 6))])
def test_a_count_window_counts_in_the_order_that_its_config_tells(order, sums):
    steps = [event(ts, value) for ts, value in ((1, 1), (19, 1), (29, 1), (39, 2), (10, 2), (50, 2), (51, 1))]
    all_steps = [*steps, watermark(55, *values(*sums))]
    assert replayed("count.window", COUNT | {"order_by": order}, all_steps, "exact") == MATCH


def test_by_event_time_only_rows_that_the_watermark_has_passed_are_counted():
    steps = [event(ts) for ts in (1, 19, 29, 39, 49, 50)]
    all_steps = [*steps, watermark(45, *values(3)), watermark(55, *values(3))]
    assert replayed("count.window", COUNT | {"order_by": "event-time"}, all_steps, "exact") == MATCH


def test_a_count_window_of_keys_counts_each_for_itself():
    steps = [event(1, 1, key="a"), event(2, 1, key="b"), event(3, 1, key="a"), event(4, 2, key="a")]
    all_steps = [*steps, watermark(55, {"key": "a", "value": 4})]
    assert replayed("count.window", COUNT | {"keyed": True}, all_steps, "exact") == MATCH


def test_count_windows_that_overlap_begin_with_the_first_row():
    config = {"type": "count-hopping", "size": 4, "slide": 2, "agg": "sum", "order_by": "offset"}
    all_steps = [*rows(1, 2, 3, 4, 5, 6, 7), watermark(55, *values(10, 18))]
    assert replayed("count.window", config, all_steps, "exact") == MATCH


def test_two_count_windows_of_one_stream_count_for_themselves():
    windows = [{"name": str(size), "type": "count-tumbling", "size": size} for size in (3, 5)]
    steps = [event(ts, value) for ts, value in ((1, 1), (19, 1), (29, 1), (39, 2), (41, 1), (10, 2))]
    results = [{"value": 4, "name": "3"}, {"value": 4, "name": "3"}, {"value": 7, "name": "5"}]
    config = {"windows": windows, "agg": "sum", "order_by": "event-time"}
    assert replayed("count.window", config, [*steps, watermark(55, *results)]) == MATCH
    assert replayed("count.window", config, [*steps, watermark(55, *results[1:])]).outcome is Outcome.FAIL


def test_the_end_of_the_input_shows_a_count_window_that_is_not_full():
    all_steps = [*rows(1, 1, 1, 5), {"do": "end", "out": values(3, 5)}]
    assert replayed("count.window", COUNT, all_steps, "exact") == MATCH


@pytest.mark.parametrize(("aggregate", "value"), [("max", 5), ("avg", 3), ("mean", 3), ("list", [1, 3, 5])])
def test_the_highest_the_mean_and_the_list_are_aggregates_of_all_families(aggregate, value):
    steps = [event(1, 1), event(2, 3), event(3, 5)]
    all_steps = [*steps, watermark(55, {"value": value})]
    assert replayed("count.window", COUNT | {"agg": aggregate}, all_steps, "exact") == MATCH
    session = {"gap": 10, "agg": aggregate}
    assert replayed("session.stream", session, all_steps, "exact") == MATCH
    window = {"type": "hopping", "size": 50, "slide": 50, "agg": aggregate}
    assert replayed("jet.sliding", window, all_steps, "exact") == MATCH


@pytest.mark.parametrize(
    ("touch", "close_when", "first", "then"),
    [("separate", "end<wm", [], [(0, 10)]), ("merge", "end<=wm", [(0, 10)], [])],
)
def test_a_session_that_ends_at_the_watermark_may_close_one_watermark_elsewhere(touch, close_when, first, then):
    config = {"gap": 10, "touch": touch, "agg": "count", "close_when": close_when}
    results_by_step = [
        [{"start": start, "end": end, "key": "k", "value": 1} for start, end in bounds] for bounds in (first, then)
    ]
    steps = [event(0, key="k"), watermark(10, *results_by_step[0]), watermark(11, *results_by_step[1])]
    assert replayed("jet.session", config, steps, "exact") == otherwise(decided.CLOSES, 1)
    wrong = [event(0, key="k"), watermark(10), watermark(11)]
    assert replayed("jet.session", config, wrong, "exact").outcome is Outcome.FAIL
    for one in (*results_by_step[0], *results_by_step[1]):
        one["value"] = 2
    assert replayed("jet.session", config, steps, "exact").outcome is Outcome.FAIL


def test_an_early_pane_that_the_clock_brings_comes_before_the_pane_on_time():
    config = {"clock": "processing", "clock_start": 1, "type": "tumbling", "size": 1000, "mode": "accumulating"}
    message = {"do": "message", "key": 1, "value": 1, "out": []}
    end = {"do": "run_timers", "out": [{"pane_start": 0, "size": 1, "firing": "DEFAULT", "key": 1}]}
    steps = [message, {"do": "advance_clock", "by": 1000, "out": []}, end]
    config["early"] = "repeat(since_first(500))"
    assert replayed("samza.window", config, steps) == otherwise(decided.CLOCK_FIRST, 2)


def test_a_session_of_samza_is_over_when_its_gap_is():
    config = {"clock": "processing", "clock_start": 1, "type": "session", "gap": 500, "mode": "discarding"}
    steps = [
        {"do": "message", "key": 1, "value": 1, "out": []},
        {"do": "advance_clock", "by": 500, "out": []},
        {"do": "run_timers", "out": [{"pane_start": 1, "size": 1, "firing": "DEFAULT", "key": 1}]},
    ]
    assert replayed("samza.window", config, steps) == MATCH


def test_a_fold_of_samza_is_the_aggregate_that_it_names():
    config = {"clock": "processing", "type": "tumbling", "size": 1000, "keyed": False, "fold": "sum"}
    steps = [
        {"do": "message", "key": 1, "value": 5, "out": []},
        {"do": "message", "key": 2, "value": 7, "out": []},
        {"do": "advance_clock", "by": 1000, "out": []},
        {"do": "run_timers", "out": [{"value": 12, "firing": "DEFAULT"}]},
    ]
    assert replayed("samza.window", config, steps) == MATCH


@pytest.mark.parametrize(("by", "out"), [(999, [{"value": 3}]), (1000, [])])
def test_a_row_joins_until_its_time_to_live_is_over(by, out):
    steps = [
        {"do": "left", "key": 1, "value": 1, "out": []},
        {"do": "advance_clock", "by": by, "out": []},
        {"do": "right", "key": 1, "value": 2, "out": out},
    ]
    assert replayed("samza.join", TTL, steps, "exact") == MATCH
    steps[2]["out"] = [{"value": 999}]
    assert replayed("samza.join", TTL, steps, "exact").outcome is Outcome.FAIL


def test_a_join_meets_older_rows_of_a_key_too_and_the_newest_is_told():
    left = [{"do": "left", "key": 1, "value": value, "out": []} for value in (1, 2)]
    right = {"do": "right", "key": 1, "value": 5}
    assert replayed("samza.join", TTL, [*left, right | {"out": [{"value": 7}]}]) == otherwise(decided.EVERY_ROW, 2)
    assert replayed("samza.join", TTL, [*left, right | {"out": [{"value": 6}]}]).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({"type": "tumbling", "size": 10, "align_to": 3}, [[-7, 3]]),
        ({"type": "hopping", "size": 10, "slide": 3}, [[-9, 1], [-6, 4], [-3, 7], [0, 10]]),
        ({"type": "hopping", "size": 3, "slide": 10}, [[0, 3]]),
        ({"type": "session", "gap": 10}, [[0, 10]]),
    ],
)
def test_windows_that_an_event_is_assigned_to_come_out_of_the_product(config, windows):
    vector = {"id": "new", "family": "assign", "config": config}
    assert replay(vector | {"cases": [{"ts": 0, "windows": windows}]}) == MATCH
    wrong = [[one + 1 for one in windows[0]], *windows[1:]]
    assert replay(vector | {"cases": [{"ts": 0, "windows": wrong}]}).outcome is Outcome.FAIL
