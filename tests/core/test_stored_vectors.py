"""Vectors of the design's operators, worked out by hand from its rules, beside the recorded ones."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from conformance.verdict import Outcome, Verdict
from conformance.windows import replay

TIME = {"unit": "time", "size": 10_000, "advance": 10_000, "agg": "sum", "late": "every message at once"}
MESSAGES = [(1, 100, "x"), (2, 90, "y"), (3, 100, "y"), (4, 110, "x"), (5, 120, "x")]


def message(offset: int, time: int, *out: Mapping, value: int = 1, wall: int | None = None, **more: Any) -> dict:
    own = {"do": "add_message", "offset": offset, "time": time, "value": value, "wall": time if wall is None else wall}
    return {**own, "out": list(out), **more}


def pane(start: int, result: float, end: int | None = None, **more: Any) -> dict:
    return {"window": [start, start + 10_000 if end is None else end], "result": result, **more}


def aggregate(*steps: dict, family: str = "seed.aggregate", **config: Any) -> Verdict:
    return replay({"id": "x", "family": family, "config": {**TIME, **config}, "steps": list(steps)})


def outcome(*steps: dict, **config: Any) -> Outcome:
    return aggregate(*steps, **config).outcome


def test_results_stay_until_they_are_flushed_and_asked_twice_say_the_same():
    panes = [pane(0, 1)]
    steps = [
        message(1, 1_000),
        message(2, 11_000, value=2),
        *({"do": "get_result", "out": panes} for _ in range(2)),
        {"do": "flush", "out": []},
        {"do": "get_result", "out": []},
        message(3, 2_000, value=4),
        {"do": "get_result", "out": [pane(0, 5)]},
    ]
    assert outcome(*steps, family="seed.standalone") is Outcome.MATCH
    wrong = [*steps[:-1], {"do": "get_result", "out": [pane(0, 4)]}]
    assert outcome(*wrong, family="seed.standalone") is Outcome.FAIL


@pytest.mark.parametrize("late_option", ["default", "default (10 s)", "batch 10 seconds", "every 10000 ms", None])
def test_late_messages_are_collected_for_ten_seconds_unless_the_words_say_otherwise(late_option):
    steps = [
        message(1, 1_000),
        message(2, 11_000, pane(0, 1)),
        message(3, 2_000, wall=12_000),
        {"do": "timeout", "wall": 21_999, "out": []},
        message(4, 12_000, pane(0, 2), wall=22_000),
    ]
    config = {**TIME, "late": late_option}
    if late_option is None:
        del config["late"]
    vector = {"id": "x", "family": "seed.aggregate", "config": config, "steps": steps}
    assert replay(vector).outcome is Outcome.MATCH
    vector["config"] = TIME
    assert replay(vector).outcome is Outcome.FAIL


def test_retention_reaches_back_from_the_start_of_the_current_window():
    """1.5.5 of the design: what begins before the current start less the retention is gone."""
    steps = [message(1, 1_000), message(2, 30_500, pane(0, 1))]
    retained_message, expired_message = message(4, 10_000, pane(10_000, 1)), message(3, 9_999, {"error_topic": 3})
    assert outcome(*steps, expired_message, retained_message, retention_time=25_000) is Outcome.MATCH
    assert outcome(*steps, message(3, 9_999, pane(0, 2)), retention_time=25_000) is Outcome.FAIL


def test_a_retention_that_is_shorter_than_the_window_is_refused_and_no_failure():
    verdict = aggregate(message(1, 1_000), retention_time=5_000)
    assert verdict.outcome is Outcome.OTHERWISE
    assert "refused when the plan is built" in verdict.reason


def test_no_other_refusal_of_a_plan_is_excused():
    assert outcome(message(1, 1_000), size=0, advance=1) is Outcome.FAIL


def test_windows_of_rows_begin_with_the_first_offset():
    config = {"unit": "tuple", "size": 4, "advance": 2}
    full = [pane(1, 10, 4), pane(3, 18, 6)]
    steps = [message(at, at, *([full[at // 2 - 2]] if at in {5, 7} else []), value=at) for at in range(1, 8)]
    assert outcome(*steps, **config) is Outcome.MATCH
    first_window = pane(-1, 3, 2)
    steps[2] = {**steps[2], "out": [first_window]}
    assert outcome(*steps, **config) is Outcome.FAIL


def test_which_messages_are_new_in_a_pane_is_compared():
    steps = [message(1, 1_000), message(2, 11_000, pane(0, 1, new_messages=[1]))]
    late = message(3, 2_000, pane(0, 2, new_messages=[3]))
    assert outcome(*steps, late) is Outcome.MATCH
    assert outcome(*steps, {**late, "out": [pane(0, 2, new_messages=[1, 3])]}) is Outcome.FAIL


def test_what_was_lost_with_the_store_may_be_told_again_and_what_follows_is_the_same():
    steps = [
        message(1, 1_000),
        message(2, 11_000, pane(0, 1)),
        {"do": "lose_message_store", "replay_from": 1, "out": []},
        message(1, 1_000, noop=True),
        message(2, 11_000, noop=True),
        message(3, 2_000, pane(0, 3), value=2),
    ]
    assert outcome(*steps) is Outcome.OTHERWISE
    assert outcome(*steps[:-1], {**steps[-1], "out": [pane(0, 2)]}) is Outcome.FAIL


def test_a_caller_keeps_the_message_that_it_may_not_give_and_some_results_may_be_taken():
    steps = [
        message(1, 1_000),
        {"do": "downstream", "accept": False, "out": []},
        message(2, 11_000),
        message(3, 21_000, error="selector disabled"),
        {"do": "downstream", "accept": True, "out": []},
        {"do": "timeout", "wall": 30_000, "out": [pane(0, 1)]},
        message(4, 31_000, pane(10_000, 1)),
    ]
    assert outcome(*steps) is Outcome.OTHERWISE
    steps[1] = {**steps[1], "accept": 0}
    steps[-1] = {**steps[-1], "out": [pane(10_000, 1), pane(20_000, 1)]}  # as if 3 had been taken
    assert outcome(*steps) is Outcome.FAIL


def test_an_early_pane_without_news_after_it_is_repeated_on_time_and_nothing_else_is_forgiven():
    early = "every 60000 ms of wall clock from the opening of the window, if there is news"
    steps = [
        message(1, 1_000, wall=0),
        {"do": "timeout", "wall": 60_000, "out": [pane(0, 1)]},
        message(2, 11_000, wall=62_000),
    ]
    assert outcome(*steps, early=early) is Outcome.OTHERWISE
    steps[2] = message(2, 11_000, pane(0, 2), wall=62_000)
    assert outcome(*steps, early=early) is Outcome.FAIL


def test_late_messages_are_collected_for_each_window_by_itself():
    steps = [
        message(1, 1_000),
        message(2, 11_000, pane(0, 1)),
        message(3, 21_000, pane(10_000, 1)),
        message(4, 2_000, wall=30_000),
        message(5, 12_000, wall=35_000),
        {"do": "timeout", "wall": 40_000, "out": [pane(0, 2)]},
        {"do": "timeout", "wall": 45_000, "out": [pane(10_000, 2)]},
    ]
    assert outcome(*steps, late="default") is Outcome.MATCH
    steps[-1] = {"do": "timeout", "wall": 45_000, "out": [pane(10_000, 3)]}
    assert outcome(*steps, late="default") is Outcome.FAIL


@pytest.mark.parametrize(("agg", "more"), [("percentile", {"p": 50}), ("quantile(0.5)", {}), ("mean", {}), ("avg", {})])
def test_aggregates_are_found_by_their_names(agg, more):
    steps = [message(at, at, value=value) for at, value in ((1, 1), (2, 3), (3, 5))]
    assert outcome(*steps, message(4, 11_000, pane(0, 3)), agg=agg, **more) is Outcome.MATCH


def test_partitions_have_offsets_of_their_own_and_keys_results():
    steps = [message(1, 1_000, key="a"), message(1, 2_000, key="b", partition=1), message(2, 3_000, key="a")]
    last = message(3, 11_000, pane(0, 2, key="a"), pane(0, 1, key="b"), key="a")
    assert outcome(*steps, last) is Outcome.MATCH


# Sessions


def session(offset: int, key: str, time: int, *out: list) -> dict:
    results = [{"window": window, "result": result} for window, result in out]
    return {"do": "add_message", "session_key": key, "offset": offset, "time": time, "out": results}


def sessions(*steps: dict, **config: Any) -> Outcome:
    return replay(
        {"id": "x", "family": "seed.session", "config": {"agg": "count", **config}, "steps": list(steps)}
    ).outcome


def test_a_session_of_time_ends_by_the_messages_of_its_own_key():
    steps = [session(1, "a", 0), session(2, "b", 9_000), session(3, "a", 1_000), session(4, "a", 3_000, [["a", 0], 2])]
    assert sessions(*steps, max_gap=1_000) is Outcome.MATCH
    assert sessions(*steps[:-1], session(4, "a", 3_000, [["a", 0], 3]), max_gap=1_000) is Outcome.FAIL


def test_a_session_of_rows_begins_at_an_offset_and_ends_by_those_of_other_keys():
    ended = {"do": "end", "out": [{"window": ["b", 2], "result": 4}]}
    steps = [session(1, "a", 0), *(session(at, "b", at) for at in (2, 3)), session(4, "b", 4, [["a", 1], 1])]
    steps = [*steps, session(5, "b", 5), ended]
    assert sessions(*steps, unit="tuple", max_gap=2) is Outcome.MATCH
    later = [*steps[:3], session(4, "b", 4), session(5, "b", 5, [["a", 1], 1]), ended]
    assert sessions(*later, unit="tuple", max_gap=2) is Outcome.OTHERWISE  # over at once, not with the next message
    assert sessions(*later[:-2], session(5, "b", 5), ended, unit="tuple", max_gap=2) is Outcome.FAIL


# The message store


def case(keys: list, **more: Any) -> dict:
    messages = [{"offset": offset, "time": time, "flds": flds, "session_key": flds} for offset, time, flds in MESSAGES]
    return {"put": messages, "keys": keys, **more}


def scanned(layout: str, *cases: dict) -> Outcome:
    return replay({"id": "x", "family": "seed.store", "config": {"layout": layout}, "cases": list(cases)}).outcome


@pytest.mark.parametrize("name", ["equal_flds", "session_key"])
def test_messages_of_one_value_are_scanned_by_a_prefix(name):
    of_x = case([["x", 100, 1], ["x", 110, 4]], scan={"start": ["x", 100, 0], "end": ["x", 110, 4]})
    left = case([["x", 110, 4], ["x", 120, 5]], prefix="x", expire_before_time=105)
    assert scanned(f"<{name}>_<timestamp>_<offset>", of_x, left) is Outcome.MATCH
    wrong = copy.deepcopy(left)
    wrong["keys"].pop()
    assert scanned(f"<{name}>_<timestamp>_<offset>", of_x, wrong) is Outcome.FAIL
    by_offset = case([["y", 2]], scan={"start": ["y", 1], "end": ["y", 2]})
    assert scanned(f"<{name}>_<offset>", by_offset) is Outcome.MATCH


def test_a_value_between_time_and_offset_changes_the_order_alone():
    range_scan = case([[90, "y", 2], [100, "x", 1], [100, "y", 3]], scan={"start": [90, "", 0], "end": [100, "y", 9]})
    assert scanned("<timestamp>_<equal_flds>_<offset>", range_scan) is Outcome.OTHERWISE
    range_scan["keys"][0] = [90, "y", 3]
    assert scanned("<timestamp>_<equal_flds>_<offset>", range_scan) is Outcome.FAIL


def test_all_messages_may_expire():
    assert scanned("<offset>", case([], expire_through_offset=5)) is Outcome.MATCH
    assert scanned("<offset>", case([5], expire_through_offset=5)) is Outcome.FAIL
