"""Vectors of joins of windows, worked out by hand from the design's rules, beside the recorded ones."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.families import family_of
from conformance.verdict import Outcome, Verdict
from conformance.windows import replay

MATCH, OTHERWISE, FAIL = Outcome.MATCH, Outcome.OTHERWISE, Outcome.FAIL
ONE_SIDE = {"operator": "join-window", "unit": "time", "size": 10_000, "advance": 10_000, "align": 0}
MINUTE = {"unit": "time", "size": 60_000, "align": 0}
PAIRS = {"left": {"stream": "orders", **MINUTE}, "right": {"stream": "shipments", "window": "unbounded preceding"},
         "on": "id", "emit": "every message at once", "select": ["id", "value", "cost"]}  # fmt: skip
ROWS = {"unit": "tuple", "size": 2}


def new(start: int, *offsets: int, end: int | None = None) -> dict:
    return {"window": [start, start + 10_000 if end is None else end], "new_messages": list(offsets)}


def message(offset: int, time: int, *out: Mapping, **more: Any) -> dict:
    return {"do": "add_message", "offset": offset, "time": time, "wall": time, **more, "out": list(out)}


def tick(wall: int, *out: Mapping) -> dict:
    return {"do": "timeout", "wall": wall, "out": list(out)}


def order(offset: int, number: int, time: int, value: int, *out: Mapping, do: str = "orders") -> dict:
    return {"do": do, "offset": offset, "id": number, "time": time, "wall": time, "value": value, "out": list(out)}


def shipment(offset: int, number: int, time: int, cost: int, *out: Mapping, do: str = "shipments") -> dict:
    return {"do": do, "offset": offset, "id": number, "time": time, "wall": time, "cost": cost, "out": list(out)}


def pair(number: int, value: int | None, cost: int | None) -> dict:
    return {"id": number, "value": value, "cost": cost}


def played(config: Mapping, *steps: dict) -> Verdict:
    vector = {"id": "x", "family": "seed.join", "config": dict(config), "compare": {"order": "exact", "partial": True}}
    return replay({**vector, "steps": list(steps)})


def one_side(*steps: dict, **config: Any) -> Verdict:
    return played({**ONE_SIDE, **config}, *steps)


def rejected(offset: int) -> dict:
    return {"error_topic": offset}


def wrong_ones(steps: Sequence[Mapping]) -> list[list[dict]]:
    """The steps with one step's outputs left out, and with an output moved to the step before."""
    variants = []
    for index, step in enumerate(steps):
        if step["out"]:
            without = copy.deepcopy(list(steps))
            without[index]["out"] = []
            variants.append(copy.deepcopy(without))
            if index:
                without[index - 1]["out"] = [*without[index - 1]["out"], *step["out"]]
                variants.append(without)
    return variants


VECTORS = {
    "full before the beat": (
        {**ONE_SIDE, "early": "every 10000 ms of wall clock"},
        [message(1, 1_000), message(2, 12_000, new(0, 1), wall=2_000), tick(10_000, new(10_000, 2))]),
    "due with a message": (
        {**ONE_SIDE, "early": "every 10 s of wall clock"},
        [message(1, 1_000), message(2, 2_000, new(0, 1, 2), wall=10_000)]),
    "a beat from the first message": (
        {**ONE_SIDE, "early": "every 10 seconds from the first pending message"},
        [message(1, 1_000), tick(10_999), tick(11_000, new(0, 1))]),
    "never before it is full": (
        {**ONE_SIDE, "early": "disabled"}, [message(1, 1_000), tick(10**9), message(2, 10_000, new(0, 1))]),
    "the end shows what waits": (
        {**ONE_SIDE, "early": "every 10000 ms of wall clock"},
        [message(1, 1_000), {"do": "end", "out": [new(0, 1)]}]),
    "late by window": (
        {**ONE_SIDE, "late": "every 10000 ms of wall clock from the first pending late message"},
        [message(1, 1_000, new(0, 1)), message(2, 12_000, new(10_000, 2)), message(3, 22_000, new(20_000, 3)),
         message(4, 12_001, wall=23_000), message(5, 2_000, wall=28_000), tick(32_999), tick(33_000, new(10_000, 4)),
         tick(38_000, new(0, 5))]),
    "late at once by default": (
        {**ONE_SIDE, "late": "default"},
        [message(1, 1_000, new(0, 1)), message(2, 12_000, new(10_000, 2)), message(3, 3_000, new(0, 3))]),
    "out of the retention": (
        {**ONE_SIDE, "retention_time": 20_000},
        [message(1, 1_000, new(0, 1)), message(2, 31_000, new(30_000, 2)), message(3, 9_999, rejected(3)),
         message(4, 10_000, new(10_000, 4))]),
    "so many windows, empty ones as well": (
        {**ONE_SIDE, "retention_size": 3},
        [message(1, 1_000, new(0, 1)), message(2, 31_000, new(30_000, 2)), message(3, 9_999, rejected(3)),
         message(4, 10_000, new(10_000, 4))]),
    "a restart": (
        ONE_SIDE,
        [message(1, 1_000, new(0, 1)), {"do": "restart_from_checkpoint", "replay_from": 1, "out": []},
         message(1, 1_000, noop=True), message(2, 2_000, new(0, 2), noop=False)]),
    "rows": (
        {**ONE_SIDE, "unit": "tuple", "size": 4, "advance": 2},
        [message(1, 0, new(1, 1, end=4)), message(3, 0, new(1, 3, end=4)), message(5, 0, new(3, 5, end=6))]),
    "left and right as steps": (
        PAIRS, [order(1, 1, 1_000, 5, do="left"), shipment(9, 1, 99_000, 7, pair(1, 5, 7), do="right")]),
    "the right side's windows": (
        {**PAIRS, "left": {"stream": "orders"}, "right": {"stream": "shipments", **MINUTE}},
        [shipment(9, 1, 1_000, 7), order(1, 1, 99_000, 5, pair(1, 5, 7))]),
    "windows on both sides": (
        {**PAIRS, "right": {"stream": "shipments", **MINUTE}},
        [order(1, 1, 1_000, 5), shipment(9, 1, 2_000, 7, pair(1, 5, 7)), shipment(10, 1, 61_000, 8),
         order(2, 1, 62_000, 6, pair(1, 6, 8))]),
    "windows of rows on both sides": (
        {**PAIRS, "left": {"stream": "orders", **ROWS}, "right": {"stream": "shipments", **ROWS}},
        [order(1, 1, 0, 5), shipment(1000, 1, 0, 7, pair(1, 5, 7)), shipment(1001, 9, 0, 8), shipment(1002, 1, 0, 9),
         order(3, 1, 0, 4, pair(1, 4, 9))]),
    "left alone": (
        {**PAIRS, "right": {"stream": "shipments", **MINUTE}, "how": "left"},
        [order(1, 1, 1_000, 5), order(2, 1, 61_000, 6),
         shipment(9, 1, 61_000, 7, pair(1, 5, None), pair(1, 6, 7))]),
    "results when they are asked for": (
        ONE_SIDE,
        [message(1, 1_000), *({"do": "get_result", "out": [new(0, 1)]} for _ in range(2)), {"do": "flush", "out": []},
         {"do": "get_result", "out": []}, message(2, 2_000), {"do": "get_result", "out": [new(0, 2)]}]),
}  # fmt: skip


@pytest.mark.parametrize(("config", "steps"), VECTORS.values(), ids=VECTORS)
def test_a_join_answers_as_the_words_say_and_at_no_other_step(config, steps):
    assert played(config, *steps) == Verdict(MATCH)
    wrong = wrong_ones(steps)
    assert wrong
    assert {played(config, *one).outcome for one in wrong} == {FAIL}


def test_a_wrong_window_message_or_replay_fails():
    for out in (new(0, 2), new(10_000, 1), new(0, 1, end=9_999), {**new(0, 1), "more": 1}, rejected(1)):
        assert one_side(message(1, 1_000, out)).outcome is FAIL
    assert one_side(message(1, 1_000, new(0, 1), noop=True)).outcome is FAIL
    assert one_side(message(1, 1_000, new(0, 1)), message(1, 1_000, noop=False)).outcome is FAIL
    assert played(PAIRS, order(1, 1, 0, 5), shipment(9, 1, 0, 7, pair(1, 7, 5))).outcome is FAIL
    with pytest.raises(LookupError, match="a step 'sleep' is not known"):
        one_side({"do": "sleep", "out": []})


@pytest.mark.parametrize("order_", ["exact", "any"])
def test_rows_of_a_step_are_compared_in_order_where_the_vector_says_so(order_):
    rows = [pair(1, 5, 7), pair(1, 5, 8)]
    vector = {"id": "x", "family": "seed.join", "config": {**PAIRS, "emit": "every 10 s"}, "compare": {"order": order_}}
    for out, outcome in ((rows, MATCH), (rows[::-1], {"exact": FAIL, "any": MATCH}[order_]), ([rows[0]] * 2, FAIL)):
        steps = [order(1, 1, 0, 5), shipment(9, 1, 0, 7), shipment(10, 1, 1, 8), tick(10_000, *out)]
        assert replay({**vector, "steps": steps}).outcome is outcome


def test_a_message_before_the_first_window_is_taken_otherwise_and_nothing_else_is():
    verdict = one_side(message(1, 25_000, new(20_000, 1)), message(2, 5_000, rejected(2)))
    assert (verdict.outcome, verdict.step) == (OTHERWISE, 1)
    assert "opens its own" in verdict.reason
    assert one_side(message(1, 25_000, new(20_000, 1)), message(2, 21_000, rejected(2))).outcome is FAIL
    assert one_side(message(1, 25_000, new(20_000, 1)), message(2, 5_000, rejected(3))).outcome is FAIL


def test_a_retention_that_the_product_refuses_is_otherwise_where_a_message_is_taken_for_it_alone():
    steps = [message(1, 1_000, new(0, 1)), message(2, 12_000, new(10_000, 2)), message(3, 5_000, rejected(3))]
    assert one_side(*steps, retention_time=5_000).outcome is OTHERWISE
    assert one_side(*steps[:2], retention_time=5_000).outcome is MATCH
    assert one_side(*steps, message(4, 13_000), retention_time=5_000).outcome is FAIL
    by_time = [message(1, 0, new(1, 1, end=2)), message(2, 99_000, rejected(2))]
    verdict = one_side(*by_time, unit="tuple", size=2, advance=2, retention_time=10_000)
    assert (verdict.outcome, verdict.reason) == (OTHERWISE, "windows of rows are kept by number, not by time")


def test_what_a_lost_store_had_told_is_told_again_and_what_is_new_is_compared():
    steps = [message(1, 1_000, new(0, 1)), message(2, 2_000, new(0, 2)), {"do": "lose_message_store", "out": []},
             message(1, 1_000, noop=True), message(2, 2_000, noop=True), message(3, 3_000, new(0, 3))]  # fmt: skip
    verdict = one_side(*steps)
    assert (verdict.outcome, verdict.step) == (OTHERWISE, 2)
    assert one_side(*steps[:-1], message(3, 3_000)).outcome is FAIL
    assert one_side(*steps[:3], message(1, 11_000, noop=True)).outcome is FAIL


def test_sides_with_different_windows_and_plans_that_are_refused_are_otherwise():
    half = {**PAIRS, "right": {"stream": "shipments", **MINUTE, "size": 30_000}}
    assert "same windows" in played(half, order(1, 1, 0, 5)).reason
    assert "refused when the plan is built" in played({**PAIRS, "how": "left"}, order(1, 1, 0, 5)).reason


@pytest.mark.parametrize("name", ["seed-join-x", "join-session-x", "join-window-x", "join-tumbling-x"])
def test_files_of_joins_belong_to_their_family(name):
    assert family_of(Path(f"windows/{name}.json")).name == "joins of windows"


# Rows of both sides


def rows_of(
    *rows: Sequence, left: Sequence = ([0, 1],), right: Sequence = ([1_000, 2], [2_000, 3]), **more: Any
) -> Verdict:
    config = {"window": {"type": "session", "gap": 10_000}, "sides": 2, **more}
    expected_rows = [row if isinstance(row, dict) else {"row": row} for row in rows]
    steps = [{"do": "inputs", "left": left, "right": right, "out": []}, {"do": "end", "out": expected_rows}]
    return replay({"id": "x", "family": "join.window.rows", "config": config, "steps": steps})


TWO = {"left": [[0, 1], [1_000, 2]], "right": [[1_000, 3], [2_000, 4]]}
BOTH = {
    ("first", "final"): [[1, 3]], ("last", "final"): [[2, 4]], ("product", "final"): [[1, 3], [1, 4], [2, 3], [2, 4]],
    ("first", "complete"): [[1, 3], [2, 4]], ("last", "complete"): [[1, 3], [2, 4]],
    ("product", "complete"): [[1, 3], [2, 4]],
    ("first", "running"): [[1, None], [1, 3], [1, 3], [1, 3]],
    ("last", "running"): [[1, None], [1, 3], [2, 3], [2, 4]],
    ("product", "running"): [[1, None], [1, 3], [1, 3], [2, 3], [1, 3], [1, 4], [2, 3], [2, 4]],
}  # fmt: skip


@pytest.mark.parametrize(("insert", "emit"), BOTH, ids="-".join)
def test_rows_are_those_of_each_mode_in_their_order(insert, emit):
    rows, mode = BOTH[insert, emit], {"insert_mode": insert, "emit_mode": emit}
    assert rows_of(*rows, **TWO, **mode) == Verdict(MATCH)
    others = [other for other in BOTH.values() if other != rows]
    swapped = [rows[::-1]] if rows != rows[::-1] else []
    for wrong in [*others, *swapped, rows[:-1], [*rows, rows[0]]]:
        assert rows_of(*wrong, **TWO, **mode).outcome is FAIL


def test_without_a_mode_the_last_of_each_side_come_when_the_session_is_over():
    assert rows_of([1, 3]).outcome is MATCH
    assert rows_of([1, 2]).outcome is FAIL


@pytest.mark.parametrize("emit", ["final", "complete"])
@pytest.mark.parametrize("insert", ["first", "last", "product"])
def test_a_side_that_has_nothing_is_empty_in_rows_at_the_end_and_gives_none_when_both_are_needed(insert, emit):
    mode = {"left": [[0, 1], [30_000, 5]], "right": [[1_000, 2]], "insert_mode": insert, "emit_mode": emit}
    side_rows = [[5, None]] if emit == "final" else []
    assert rows_of([1, 2], *side_rows, **mode).outcome is MATCH
    assert rows_of([1, 2], [None, 5], **mode).outcome is FAIL


def test_messages_may_be_steps_and_rows_at_the_end_are_not_there_before():
    steps = [{"do": "right", "time": 1_000, "value": 2, "out": []}, {"do": "left", "time": 0, "value": 1, "out": []}]
    vector = {"id": "x", "family": "join.window.rows", "config": {"window": {"gap": 10_000}}}
    end = {"do": "end", "out": [{"row": [1, 2]}]}
    assert replay({**vector, "steps": [*steps, end]}).outcome is MATCH
    early_end = [steps[0], {**steps[1], "out": end["out"]}, {"do": "end", "out": []}]
    assert replay({**vector, "steps": early_end}).outcome is FAIL
    running = {**vector["config"], "emit_mode": "running"}
    assert replay({**vector, "config": running, "steps": steps}).outcome is FAIL  # they are given, also without an end


def test_start_and_end_of_a_session_are_compared_where_they_are_told():
    assert rows_of({"row": [1, 3], "start": 0, "end": 12_000}).outcome is MATCH
    assert rows_of({"row": [1, 3], "start": 5}).outcome is FAIL


TUMBLING = {"window": {"type": "tumbling", "size": 10_000}, "left": [[0, 1], [12_000, 5]],
            "right": [[1_000, 2], [9_999, 3], [10_000, 4]]}  # fmt: skip


def test_windows_of_time_have_one_row_each_and_all_their_pairs_at_once():
    assert rows_of([1, 3], [5, 4], **TUMBLING) == Verdict(MATCH)
    assert rows_of([1, 2], [5, 4], **TUMBLING, insert_mode="first") == Verdict(MATCH)
    assert rows_of([5, 4], [1, 3], **TUMBLING).outcome is FAIL
    sides = {**TUMBLING, "left": [[0, 1], [9_000, 6]]}
    pairs = [[1, 2], [1, 3], [6, 2], [6, 3], [None, 4]]
    assert rows_of(*pairs, **sides, insert_mode="product").outcome is OTHERWISE
    for wrong in (pairs[1:], [*pairs, pairs[0]]):
        assert rows_of(*wrong, **sides, insert_mode="product").outcome is FAIL


def test_three_sides_and_rows_with_each_message_of_other_windows_have_no_counterpart():
    for options in ({"sides": 3}, {**TUMBLING, "emit_mode": "running"}):
        verdict = rows_of([1, 2], **options)
        assert verdict.outcome is OTHERWISE
        assert "no counterpart" in verdict.reason
