"""Panes of vectors that nobody has seen: they are kept, or exactly a rule of the design decides otherwise."""

from __future__ import annotations

import pytest

from conformance import decided
from conformance.verdict import MATCH, Outcome, otherwise
from tests.core.window_vectors import SESSION, TUMBLING, beam, bundle, event, pane, replayed, watermark


def early(*values, **more):
    return pane(0, 10, list(values), "EARLY", **more)


def on_time(*values, **more):
    return pane(0, 10, list(values), "ON_TIME", **more)


def late(*values, **more):
    return pane(0, 10, list(values), "LATE", **more)


def test_late_panes_come_together_after_so_many_rows():
    steps = [
        bundle(1, 2),
        watermark(10, on_time(1, 2, index=0)),
        bundle(3),
        bundle(4, 5, out=(late(1, 2, 3, 4, 5, index=1, nonspec_index=1),)),
    ]
    assert beam("watermark(late=count(3))", steps, allowed_lateness=100) == MATCH
    steps[3] = bundle(4, 5, out=(late(1, 2, 3, 4, index=1),))
    assert beam("watermark(late=count(3))", steps, allowed_lateness=100).outcome is Outcome.FAIL


def test_a_trigger_that_ends_with_its_window_drops_late_rows():
    steps = [bundle(1), watermark(10, on_time(1, last=True)), bundle(3)]
    assert beam("watermark", steps, allowed_lateness=100) == MATCH


def test_an_early_trigger_that_speaks_once_repeats_here():
    steps = [bundle(1, 2, out=(early(1, 2),)), bundle(3, 4), watermark(10)]
    assert beam("any(count(2), watermark)", steps) == otherwise(decided.REPEATS, 1)
    assert beam("repeat(any(count(2), watermark))", steps).outcome is Outcome.FAIL  # the pane on time is missing


def test_what_is_new_in_a_pane_that_is_set_aside_is_part_of_the_next():
    config = {"clock": "processing", "type": "tumbling", "size": 1000, "keyed": False, "mode": "discarding"}
    message = {"do": "message", "key": 1, "value": 1}
    steps = [
        message | {"out": []},
        message | {"out": [{"size": 2, "firing": "EARLY"}]},
        *(message | {"out": []} for _ in range(3)),
        {"do": "advance_clock", "by": 1000, "out": []},
        {"do": "run_timers", "out": [{"pane_start": 0, "size": 3, "firing": "DEFAULT"}]},
    ]
    config |= {"early": "count(2)"}
    assert replayed("samza.window", config, steps) == otherwise(decided.REPEATS, 3)
    steps[-1] = {"do": "run_timers", "out": [{"pane_start": 0, "size": 4, "firing": "DEFAULT"}]}
    assert replayed("samza.window", config, steps).outcome is Outcome.FAIL


def test_a_trigger_without_a_setting_is_told_by_the_panes_of_each_row():
    steps = [
        bundle(0, out=(pane(0, 100, [0], "EARLY"),)),
        bundle(1),
        bundle(2, out=(pane(0, 100, [1, 2], "EARLY"),)),
    ]
    config = {"window": {"type": "tumbling", "size": 100}, "mode": "discarding"}
    assert beam("repeat(each(count(1), count(2)))", steps, **config) == otherwise(decided.NEAREST, 1)
    steps[2] = bundle(2, out=(pane(0, 100, [2], "EARLY"),))
    assert beam("repeat(each(count(1), count(2)))", steps, **config).outcome is Outcome.FAIL


@pytest.mark.parametrize("trigger", ["watermark(early=count(2))", "repeat(any(count(2), watermark))"])
def test_a_pane_on_time_without_news_must_not_be_missing(trigger):
    steps = [bundle(1, 2, out=(early(1, 2),)), watermark(10)]
    assert beam(trigger, steps, mode="discarding").outcome is Outcome.FAIL


def test_a_pane_on_time_without_news_may_be_left_out_by_the_config():
    steps = [bundle(1, 2, out=(early(1, 2),)), watermark(10)]
    verdict = beam("repeat(any(count(2), watermark))", steps, mode="discarding", on_time="if-non-empty")
    assert verdict == otherwise(decided.ALWAYS, 1)


def test_a_closing_pane_is_told_once_and_says_nothing():
    steps = [
        bundle(1, 2, out=(early(1, 2),)),
        watermark(20, on_time(1, 2)),
        watermark(150, late(1, 2, last=True)),
    ]
    config = {"closing": "always", "allowed_lateness": 100}
    assert beam("repeat(any(count(2), watermark))", steps, **config) == otherwise(decided.NO_CLOSING, 2)
    steps[2] = watermark(150, late(1, 2, 3))
    assert beam("repeat(any(count(2), watermark))", steps, **config).outcome is Outcome.FAIL
    steps[2] = watermark(50, late(1, 2))
    assert beam("repeat(any(count(2), watermark))", steps, **config).outcome is Outcome.FAIL


@pytest.mark.parametrize(("kind", "time"), [("latest", 3), ("earliest", 1)])
def test_a_result_has_the_event_time_of_its_window_and_not_of_a_row(kind, time):
    steps = [bundle(1, 2, 3), watermark(10, on_time(1, 2, 3, output_ts=time))]
    assert beam("default", steps, output_time=kind) == otherwise(decided.ROW_TIME, 1)
    steps[1] = watermark(10, on_time(1, 2, 3, output_ts=777))
    assert beam("default", steps, output_time=kind).outcome is Outcome.FAIL


def test_a_pane_on_time_is_the_last_one_where_the_watermark_is_past_all_lateness():
    steps = [event(1), watermark(150, {"start": 0, "end": 10, "value": 1, "timing": "ON_TIME", "last": True})]
    config = {"window": TUMBLING, "trigger": "default", "agg": "sum", "allowed_lateness": 100}
    assert replayed("beam.runner", config, steps, "exact") == otherwise(decided.LAST, 1)
    steps[1]["ts"] = 50
    assert replayed("beam.runner", config, steps, "exact").outcome is Outcome.FAIL


def test_what_is_due_by_the_clock_comes_when_its_time_is_reached():
    config = {"window": TUMBLING, "trigger": "repeat(5 ms after first element of pane)", "agg": "sum"}
    shown = {"start": 0, "end": 10, "value": 1, "timing": "EARLY"}
    clock = [{"do": "clock", "ms": ms, "out": []} for ms in (5, 6)]
    steps = [event(1), clock[0] | {"out": [shown]}, clock[1]]
    assert replayed("beam.runner", config, steps, "exact") == MATCH
    later = [event(1), clock[0], clock[1] | {"out": [shown]}]
    assert replayed("beam.runner", config, later, "exact") == otherwise(decided.CLOCK_DUE, 1)
    wrong = [event(1), clock[0], clock[1] | {"out": [shown | {"value": 2}]}]
    assert replayed("beam.runner", config, wrong, "exact").outcome is Outcome.FAIL


def test_late_panes_come_together_so_long_after_the_first_late_row():
    first = "repeat(5 ms after first element of pane) or-finally watermark"
    trigger = f"each({first}, repeat(25 ms after first element of pane))"
    late_at = {"do": "clock", "ms": 31, "out": [{"start": 0, "end": 10, "value": 3, "timing": "LATE", "index": 1}]}
    steps = [
        event(1),
        watermark(10, {"start": 0, "end": 10, "value": 1, "timing": "ON_TIME", "index": 0}),
        {"do": "clock", "ms": 6, "out": []},
        event(2),
        {"do": "clock", "ms": 20, "out": []},
        event(3),
        late_at,
    ]
    config = {"window": TUMBLING, "trigger": trigger, "agg": "sum", "allowed_lateness": 100}
    assert replayed("beam.runner", config, steps, "exact") == MATCH
    late_at["out"][0]["value"] = 2
    assert replayed("beam.runner", config, steps, "exact").outcome is Outcome.FAIL


def test_what_beam_lists_has_no_order():
    steps = [event(2, 2), event(1, 1), watermark(10, {"value": [2, 1]})]
    config = {"window": TUMBLING, "trigger": "default", "agg": "list"}
    assert replayed("beam.runner", config, steps, "exact") == MATCH
    steps[2] = watermark(10, {"value": [2, 2]})
    assert replayed("beam.runner", config, steps, "exact").outcome is Outcome.FAIL


def test_sessions_of_beam_that_touch_stay_apart():
    steps = [
        event(1, 1),
        event(11, 11),
        watermark(100, {"start": 1, "end": 11, "value": [1]}, {"start": 11, "end": 21, "value": [11]}),
    ]
    config = {"window": {"type": "session", "gap": 10}, "trigger": "default", "mode": "discarding", "agg": "list"}
    assert replayed("beam.runner", config, steps, "exact") == MATCH


def test_a_session_that_has_spoken_and_is_gone_opens_anew():
    steps = [bundle(6), watermark(16, pane(6, 16, [6], "ON_TIME")), bundle(8), watermark(30)]
    assert beam("watermark", steps, window=SESSION) == otherwise(decided.GOES_ON, 3)


def test_a_window_over_everything_ends_with_the_end_of_time():
    steps = [bundle(1), bundle(2, out=({"values": [1, 2], "timing": "EARLY"},)), bundle(3), watermark("max")]
    steps[3]["out"] = [{"values": [3], "timing": "ON_TIME"}]
    assert beam("repeat(any(count(2), watermark))", steps, window={"type": "global"}, mode="discarding") == MATCH


def test_a_step_that_does_not_divide_the_size_is_played_on_kept_messages():
    windows = [(-3, 7), (0, 10)]
    panes = [pane(start, end, [6], "ON_TIME", output_ts=end - 1) for start, end in [*windows, (3, 13), (6, 16)]]
    config = {"window": {"type": "hopping", "size": 10, "slide": 3}}
    assert beam("default", [bundle(6), watermark(20, *panes)], **config) == MATCH
    assert beam("default", [bundle(6), watermark(20, *panes[1:])], **config).outcome is Outcome.FAIL


def test_windows_before_time_0_are_set_aside_only_where_the_config_has_none():
    steps = [event(1), watermark(22, {"start": 0, "end": 10, "value": 1})]
    config = {"type": "hopping", "size": 10, "slide": 5, "agg": "sum"}
    told = config | {"windows_before_first_event": False}
    assert replayed("sliding.stream", told, steps) == otherwise(decided.BEFORE_ZERO, 1)
    assert replayed("sliding.stream", config, steps).outcome is Outcome.FAIL


def test_windows_of_a_stream_stand_at_their_offset():
    steps = [event(1, 1), event(6, 2), watermark(22)]
    steps[2]["out"] = [{"start": -5, "end": 5, "value": 1}, {"start": 5, "end": 15, "value": 2}]
    assert replayed("sliding.stream", {**TUMBLING, "offset": 5, "agg": "sum"}, steps) == MATCH


def test_a_window_without_rows_says_nothing():
    config = {**TUMBLING, "agg": "sum", "emit_empty": True}
    steps = [event(1, 1), watermark(22, {"start": 0, "end": 10, "value": 1}, {"start": 10, "end": 20, "value": 0})]
    assert replayed("sliding.stream", config, steps) == otherwise(decided.NOT_EMPTY, 1)
    steps[1]["out"][1]["value"] = 1
    assert replayed("sliding.stream", config, steps).outcome is Outcome.FAIL


def test_a_late_row_is_answered_with_the_next_watermark_elsewhere():
    config = {"gap": 10, "touch": "merge", "agg": "sum", "allowed_lateness": 1000}
    steps = [event(2600), watermark(3000, {"start": 2600, "end": 2610, "value": 1}), event(2500), watermark(4000)]
    assert replayed("session.lateness", config, steps).outcome is Outcome.FAIL  # the vector never tells it
    steps[3]["out"] = [{"start": 2500, "end": 2510, "value": 1}]
    assert replayed("session.lateness", config, steps) == otherwise(decided.AT_ONCE, 2)


@pytest.mark.parametrize(("total", "outcome"), [(3, Outcome.MATCH), (2, Outcome.FAIL)])
def test_dropped_rows_are_counted_for_each_window_that_is_gone(total, outcome):
    config = {"window": {"type": "hopping", "size": 100, "slide": 50}, "trigger": "watermark", "agg": "sum"}
    steps = [
        event(23),
        watermark(70),
        event(40, dropped_total=1),
        watermark(150),
        event(60, dropped_total=total),
    ]
    assert replayed("beam.runner", config | {"metric": "dropped"}, steps).outcome is outcome


def test_a_row_that_is_said_to_be_dropped_must_be_late():
    config = {"gap": 10, "touch": "merge", "agg": "sum", "allowed_lateness": 100}
    dropped = [watermark(3000), event(2500, dropped=True)]
    assert replayed("session.lateness", config, dropped) == MATCH
    assert replayed("session.lateness", config, dropped[1:]).outcome is Outcome.FAIL
    taken = [event(1), *dropped, event(2500)]
    assert replayed("session.lateness", config, taken).outcome is Outcome.FAIL


def test_a_row_is_late_when_no_window_takes_it_and_not_by_its_own_time():
    config = {"gap": 10, "touch": "merge", "agg": "sum", "allowed_lateness": 1000}
    closed = {"start": 2600, "end": 2610, "value": 1}
    steps = [event(2600), watermark(3000, closed), event(1999, dropped=True), watermark(4000)]
    assert replayed("session.lateness", config, steps) == otherwise(decided.BY_WINDOW, 2)
    early = [event(2600), event(1500, dropped=True), watermark(3000, closed)]
    assert replayed("session.lateness", config, early) == otherwise(decided.BY_WINDOW, 2)
    steps[2] = event(2500, dropped=True)
    assert replayed("session.lateness", config, steps).outcome is Outcome.FAIL


def test_results_told_in_another_order_are_a_failure_where_the_order_counts():
    told = [{"start": 10, "end": 20, "value": 1}, {"start": 0, "end": 10, "value": 1}]
    steps = [event(1), event(11), watermark(30, *told)]
    config = {**TUMBLING, "agg": "sum"}
    assert replayed("sliding.stream", config, steps, "exact").outcome is Outcome.FAIL
    assert replayed("sliding.stream", config, steps, "any") == MATCH


@pytest.mark.parametrize(
    ("changed", "told"),
    [("value", {"values": [1, 2, 4]}), ("start", {"start": 1}), ("timing", {"timing": "LATE"}), ("index", {"index": 1}),
     ("nonspec_index", {"nonspec_index": 2}), ("first", {"first": False}), ("output_ts", {"output_ts": 10})],
)  # fmt: skip
def test_a_planted_error_is_a_failure(changed, told):
    right = on_time(1, 2, 3, index=0, nonspec_index=0, first=True, output_ts=9)
    assert beam("default", [bundle(1, 2, 3), watermark(10, right)]) == MATCH
    assert beam("default", [bundle(1, 2, 3), watermark(10, right | told)]).outcome is Outcome.FAIL


@pytest.mark.parametrize("trigger", ["count(2)", "any(count(2), watermark)", "all(count(2), watermark)"])
def test_a_planted_value_is_a_failure_also_where_a_rule_decides_otherwise(trigger):
    steps = [bundle(1, 2, out=(early(1, 3),))]
    assert beam(trigger, steps).outcome is Outcome.FAIL
