"""The vectorised windows against a brute-force model, however the input is cut and wherever a restart falls."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise

import pyarrow as pa
import pytest

from conformance.driver import DrivenOperator
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from tests.operators.streams import (
    WINDOWS,
    Event,
    Restarted,
    events,
    plan_of,
    play_batches,
    rows_of,
    split_rows,
    table,
    windows_of,
)
from tests.seeds import seeds

each_window = pytest.mark.parametrize("window", WINDOWS, ids=str)


def expected(window, rows):
    answers = [answer(*window_rows) for window_rows in windows_of(window, rows)]
    return sorted(answers, key=place)


def place(row):
    return row["end"], row["start"], row["k"] is None, row["k"] or ""


def answer(start, end, key, rows):
    numbers = [row.n for row in rows if row.n is not None]
    floats = [row.x for row in rows if row.x is not None]
    texts = [row.s for row in rows if row.s is not None]
    return {
        "start": start,
        "end": end,
        "k": key,
        "rows": len(rows),
        "values": len(numbers),
        "total": sum(numbers) if numbers else None,
        "exact": math.fsum(floats) if floats else None,
        "mean": sum(numbers) / len(numbers) if numbers else None,
        "mean_x": math.fsum(floats) / len(floats) if floats else None,
        "low": min(numbers, default=None),
        "high": max(floats, default=None),
        "low_s": min(texts, default=None),
        "high_s": max(texts, default=None),
        "first": rows[0].s,
        "last": rows[-1].n,
        "all": numbers,
        "distinct": len(set(texts)),
        "product": math.prod(number or 1 for number in numbers) % 10007,
        "pane": {"timing": "on_time", "index": 0, "last": True},
    }


def close(results, expected_results):
    """Floats may differ by the rounding of one division; everything else by nothing."""
    assert len(results) == len(expected_results)
    for one, other in zip(results, expected_results, strict=True):
        means = [(one.pop(name), other.pop(name)) for name in ("mean", "mean_x")]
        assert one == other
        for actual_mean, expected_mean in means:
            assert actual_mean == expected_mean or math.isclose(actual_mean, expected_mean, rel_tol=1e-15)


@each_window
@pytest.mark.parametrize("seed", seeds(2))
def test_complete_input_gives_the_windows_of_the_model_however_it_is_cut(window, seed):
    rows = events(seed, 60)
    plan = plan_of(window)
    whole = play_batches(plan, DrivenOperator(plan), [([rows], None)])
    close([dict(row) for row in whole], expected(window, rows))
    shuffled = random.Random(seed).sample(rows, len(rows))
    batches = [(split_rows(seed, batch, 3), None) for batch in split_rows(seed + 1, shuffled, 5)]
    assert play_batches(plan, Restarted(plan), batches) == whole


@each_window
@pytest.mark.parametrize("seed", seeds(2))
def test_watermarks_that_nothing_falls_behind_change_no_window(window, seed):
    rows = events(seed, 60)
    plan = plan_of(window)
    whole = play_batches(plan, DrivenOperator(plan), [([rows], None)])
    batches = []
    for number, piece in enumerate(pieces := split_rows(seed, rows, 6)):
        behind = [row.time_ms for later in pieces[number + 1 :] for row in later]
        batches.append((split_rows(seed + number, piece, 2), min(behind, default=None)))
    operator = Restarted(plan)
    assert sorted(play_batches(plan, operator, batches), key=place) == whole
    assert operator.late_rows == 0


@each_window
def test_results_of_a_step_stand_in_order_of_end_start_and_key(window):
    plan = plan_of(window)
    result_rows = play_batches(plan, DrivenOperator(plan), [([events(1, 200, keys=6)], None)])
    assert [place(row) for row in result_rows] == sorted(place(row) for row in result_rows)


@pytest.mark.parametrize("seed", seeds(1))
def test_without_by_columns_everything_is_one_key(seed):
    rows = events(seed, 50, keys=1)
    for window in WINDOWS:
        keyed, keyless = plan_of(window), plan_of(window, by=())
        with_key = play_batches(keyed, DrivenOperator(keyed), [([rows], None)])
        without = play_batches(keyless, Restarted(keyless), [([rows[:20], rows[20:]], None)])
        assert without == [{name: value for name, value in row.items() if name != "k"} for row in with_key]


def test_several_by_columns_are_a_key_together():
    rows = events(3, 80, keys=4)
    for window in WINDOWS:
        plan = plan_of(window, by=("k", "s"))
        result_rows = play_batches(plan, Restarted(plan), [([part], None) for part in split_rows(3, rows, 4)])
        row_count = sum(row["rows"] for row in result_rows)
        overlap = 1 if isinstance(window, SessionWindow) else window.size_ms // window.slide_ms
        assert row_count == overlap * len(rows)
        assert len({(row["k"], row["s"], row["start"]) for row in result_rows}) == len(result_rows)


def test_slices_record_batches_and_dictionaries_are_rows_like_any_other():
    rows = events(9, 90, keys=4)
    whole = table(rows)
    encoded = whole.set_column(0, "k", whole["k"].dictionary_encode())
    for window in WINDOWS:
        plan = plan_of(window)
        expected_rows = play_batches(plan, DrivenOperator(plan), [([rows[30:70]], None)])
        for part in (whole.slice(30, 40), whole.combine_chunks().to_batches()[0].slice(30, 40), encoded.slice(30, 40)):
            operator = DrivenOperator(plan)
            operator.take(combine_rows(plan, part))
            assert rows_of(operator.complete()) == expected_rows


def test_two_inputs_are_grouped_together_by_a_union_in_which_the_others_columns_are_null():
    left = [row.__class__(row.k, row.time_ms, row.n, None, None, row.offset) for row in events(1, 30)]
    right = [row.__class__(row.k, row.time_ms, None, None, row.s, row.offset) for row in events(2, 30)]
    plan = plan_of(WINDOWS[1], aggregates=(("left", agg.collect("n")), ("right", agg.collect("s"))))
    result_rows = play_batches(plan, Restarted(plan), [([left], None), ([right], None)])
    side_results = {}
    for name, side in (("left", left), ("right", right)):
        side_results[name] = {
            (row["k"], row["start"]): row[name] for row in play_batches(plan, DrivenOperator(plan), [([side], None)])
        }
    assert {(row["k"], row["start"]) for row in result_rows} == side_results["left"].keys() | side_results[
        "right"
    ].keys()
    for row in result_rows:
        for name, rows in side_results.items():
            assert row[name] == rows.get((row["k"], row["start"]), [])


def test_floats_of_any_size_add_up_to_the_same_bits_in_any_order():
    rng = random.Random(5)
    numbers = [rng.choice([1.0, -1.0]) * rng.random() * 2.0 ** rng.randrange(-400, 400) for _ in range(60)]
    plan = plan_of(WINDOWS[1])
    rows = [
        row.__class__(row.k, row.time_ms, row.n, number, row.s, row.offset)
        for row, number in zip(events(5, 60), numbers, strict=True)
    ]
    sums = []
    for seed in range(5):
        shuffled = random.Random(seed).sample(rows, len(rows))
        result_rows = play_batches(
            plan, DrivenOperator(plan), [([part], None) for part in split_rows(seed, shuffled, 4)]
        )
        sums.append([(row["exact"], row["mean_x"]) for row in result_rows])
    assert sums == [sums[0]] * 5
    for row, (start, end, key, inside) in zip(
        result_rows,
        sorted(windows_of(WINDOWS[1], rows), key=lambda window: (window[1], window[2] is None, window[2] or "")),
        strict=True,
    ):
        assert (row["start"], row["end"], row["k"]) == (start, end, key)
        true = sum(Fraction(one.x) for one in inside)
        allowed = (
            len(inside) * Fraction(math.ulp(max(abs(one.x) for one in inside))) / 2**32
            + Fraction(math.ulp(row["exact"])) / 2
        )
        assert abs(Fraction(row["exact"]) - true) <= allowed


def test_infinities_and_nan_follow_their_own_rules():
    plan = plan_of(WINDOWS[0])
    inf, nan = math.inf, math.nan
    for values, total in (
        ([inf, 1e308, 1e308], inf),
        ([inf, -inf], nan),
        ([1.0, nan, inf], nan),
        ([1e308, 1e308], inf),
    ):
        rows = [events(0, 1, keys=1)[0].__class__("a", 1, 1, number, "s", at) for at, number in enumerate(values)]
        exact_values = [
            row["exact"] for row in play_batches(plan, DrivenOperator(plan), [([[row] for row in rows], None)])
        ]
        assert exact_values == [total] or (math.isnan(total) and math.isnan(exact_values[0]))


def test_many_keys_come_and_go_and_only_those_of_open_windows_are_known():
    plan = plan_of(WINDOWS[0], aggregates=plan_of(WINDOWS[0]).aggregates[:3])
    operator = DrivenOperator(plan)
    one = events(0, 1)[0]
    row_count = 0
    for batch in range(6):
        rows = [one.__class__(f"{batch}-{number}", batch * 10, number, None, None, number) for number in range(3000)]
        operator.take(combine_rows(plan, table(rows)))
        result_rows = rows_of(operator.advance(batch * 10 + 10))
        assert [row["total"] for row in sorted(result_rows, key=lambda row: row["total"])] == list(range(3000))
        row_count += len(result_rows)
    assert row_count == 18000
    assert set(operator.snapshot()) == {"note"}


@pytest.mark.parametrize(
    "pack",
    [lambda x: x, lambda x: (x, 1), lambda x: {"sum": [x]}, complex],
    ids=["a float", "a tuple", "a dictionary", "a complex number"],
)
def test_an_own_aggregate_of_floats_gives_the_same_wherever_the_watermark_cuts(pack):
    """Deducting cannot bring back what rounding took: 1e300 + 1 - 1e300 is 0."""
    value_of = {float: lambda a: a, tuple: lambda a: a[0], dict: lambda a: a["sum"][0], complex: lambda a: a.real}
    numbers = [1e300, 1.0, 2.0, -1e300, 3.0, 1e300, 5.0]
    own = agg.Aggregate(
        column="x",
        result=pa.float64(),
        create=lambda: pack(0.0),
        accumulate=lambda a, x: pack(value_of[type(a)](a) + x),
        combine=lambda a, b: pack(value_of[type(a)](a) + value_of[type(b)](b)),
        deduct=lambda a, b: pack(value_of[type(a)](a) - value_of[type(b)](b)),
        finish=lambda a: value_of[type(a)](a),
    )
    plan = plan_of(SlidingWindow(20, 10), aggregates=(("own", own),))
    rows = [Event("a", 10 * at, None, number, None, at) for at, number in enumerate(numbers)]
    whole = play_batches(plan, DrivenOperator(plan), [([rows], None)])
    for cuts in range(1, 8):
        assert play_batches(plan, DrivenOperator(plan), [([rows], None), ([], 10 * cuts)]) == whole
    assert [row["own"] for row in whole[1:-1]] == [a + b for a, b in pairwise(numbers)]
