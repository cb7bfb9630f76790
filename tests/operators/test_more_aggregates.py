"""Variance, trend, quantiles, the highest few, maps and conditions: as computed one by one, the same bits always."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

from conformance.driver import DrivenOperator
from keyedwm.arrow.columns import as_floats
from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from tests.operators.streams import (
    WINDOWS,
    Event,
    Restarted,
    events,
    plan_of,
    play_batches,
    split_rows,
    table,
    windows_of,
)

CONDITION = "n > 0 AND s IS NOT NULL"
AGGREGATES = (
    ("var_n", agg.variance("n")),
    ("var_x", agg.variance("x")),
    ("dev", agg.stddev("n")),
    ("trend", agg.linear_trend("x")),
    ("middle", agg.median("x")),
    ("ninth", agg.quantile("n", 0.9)),
    ("approx", agg.approx_quantile("n", 0.9)),
    ("hll", agg.hll_sketch("s")),
    ("theta", agg.theta_sketch("n")),
    ("kll", agg.kll_sketch("n")),
    ("best", agg.top_n(3, "n", "s")),
    ("most", agg.top_n(2, "x")),
    ("of_s", agg.map_agg("s", "n")),
    ("some", agg.count_if(CONDITION)),
    ("some_n", agg.sum("n", where=CONDITION)),
    ("some_list", agg.collect("offset", where=CONDITION)),
)


def exact_variance(values: list) -> float | None:
    if len(values) < 2:
        return None
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    return float(sum((one - mean) ** 2 for one in exact) / (len(exact) - 1))


def exact_trend(rows: list[Event]) -> float | None:
    points = [(Fraction(row.time_ms), Fraction(row.x)) for row in rows if row.x is not None]
    if len({time for time, _ in points}) < 2:
        return None
    time, value = (sum(one[at] for one in points) / len(points) for at in (0, 1))
    rise = sum((t - time) * (v - value) for t, v in points)
    return float(1_000 * rise / sum((t - time) ** 2 for t, _ in points))


def exact_quantile(values: list, share: float) -> float | None:
    if not values:
        return None
    place = (len(values) - 1) * share
    low, high = (sorted(values)[edge(place)] for edge in (math.floor, math.ceil))
    between = (math.ceil(place) - place) * low + (place - math.floor(place)) * high
    return float(low if low == high else between)


def rank_of(values: list, share: float) -> float | None:
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1] if values else None


def exact_best(rows: list[Event], by: str, column: str, most: int) -> list:
    """Rows are in order of event time and offset, and a sort is stable."""
    ranked = sorted((row for row in rows if getattr(row, by) is not None), key=lambda row: -getattr(row, by))
    return [getattr(row, column) for row in ranked[:most]]


def exact(rows: list[Event]) -> dict:
    n, x = ([value for row in rows if (value := getattr(row, name)) is not None] for name in "nx")
    chosen_rows = [row for row in rows if row.n is not None and row.n > 0 and row.s is not None]
    return {
        "var_n": exact_variance(n),
        "var_x": exact_variance(x),
        "dev": None if len(n) < 2 else math.sqrt(exact_variance(n)),
        "trend": exact_trend(rows),
        "middle": statistics.median(x) if x else None,
        "ninth": exact_quantile(n, 0.9),
        "approx": rank_of(n, 0.9),
        "hll": one(agg.hll_sketch("v"), [row.s for row in rows], kind=pa.string()),
        "theta": one(agg.theta_sketch("v"), n, kind=pa.int64()) if n else one(agg.theta_sketch("v"), [None]),
        "kll": one(agg.kll_sketch("v"), n or [None]),
        "best": exact_best(rows, "n", "s", 3),
        "most": exact_best(rows, "x", "x", 2),
        "of_s": sorted({row.s: row.n for row in rows if row.s is not None}.items()),
        "some": len(chosen_rows),
        "some_n": sum(row.n for row in chosen_rows) if chosen_rows else None,
        "some_list": [row.offset for row in chosen_rows],
    }


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_results_are_those_of_each_window_and_no_cut_or_restart_changes_a_bit(window):
    rows = events(5, 60)
    plan = plan_of(window, AGGREGATES)
    results_by_cut = []
    for seed, operator in enumerate((DrivenOperator(plan), DrivenOperator(plan), Restarted(plan))):
        shuffled = random.Random(seed).sample(rows, len(rows))
        batches = [(split_rows(seed, batch, 3), None) for batch in split_rows(seed, shuffled, 1 + 3 * seed)]
        results_by_cut.append(
            sorted(play_batches(plan, operator, batches), key=lambda row: (row["end"], row["start"], str(row["k"])))
        )
    assert results_by_cut[0] == results_by_cut[1] == results_by_cut[2]
    model = {(start, end, key): exact(inside) for start, end, key, inside in windows_of(window, rows)}
    assert {(row["start"], row["end"], row["k"]) for row in results_by_cut[0]} == set(model)
    for row in results_by_cut[0]:
        expected = model[row["start"], row["end"], row["k"]]
        assert {name: row[name] for name in expected} == expected


def one(spec: AggregateSpec, values: list, times: list[int] | None = None, kind: pa.DataType | None = None):
    """The result over rows in one window; values: of the column `v`."""
    times = list(range(len(values))) if times is None else times
    schema = pa.schema([("v", kind or pa.float64()), ("time", pa.int64())])
    plan = WindowPlan(
        schema=schema, by=(), window=SlidingWindow(10**13, 10**13, 10**12), aggregates=(("r", spec),), time="time"
    )
    operator = DrivenOperator(plan)
    operator.take(combine_rows(plan, pa.table({"v": values, "time": times}, schema=schema)))
    return operator.complete().column("r").to_pylist()[0]


def test_whole_numbers_beyond_the_digits_of_a_float_are_rounded_and_stop_no_window():
    large = [2**53 + 1, 2**60, 2**63 - 1]
    floats = [float(value) for value in large]
    for spec in (agg.median("v"), agg.quantile("v", 0.9), agg.variance("v"), agg.stddev("v"), agg.linear_trend("v")):
        assert one(spec, large, kind=pa.int64()) == one(spec, floats)
    assert one(agg.median("v"), large, kind=pa.int64()) == 2.0**60


@pytest.mark.parametrize("digits", [5, 15, 16, 38])
def test_decimals_are_taken_as_the_nearest_floats(digits, seed):
    rng = random.Random(seed)
    decimals = [Decimal(rng.randrange(-(10**5), 10**5)).scaleb(-2), *[Decimal("0.29"), Decimal("0.57"), None]] * 2
    floats = [None if value is None else float(value) for value in decimals]
    for spec in (agg.median("v"), agg.variance("v"), agg.linear_trend("v")):
        assert one(spec, decimals, kind=pa.decimal128(digits, 2)) == one(spec, floats)
    column = pa.array(decimals, pa.decimal128(digits, 2))
    assert as_floats(column).to_pylist() == floats
    assert as_floats(column.slice(3)).to_pylist() == floats[3:]


@pytest.mark.parametrize("spec", [agg.variance("v"), agg.stddev("v"), agg.linear_trend("v")])
def test_less_than_two_values_have_no_spread_and_no_trend(spec):
    assert one(spec, [1.0]) is None
    assert one(spec, [None, None]) is None
    assert one(agg.linear_trend("v"), [1.0, 2.0], [5, 5]) is None


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_not_finite_shows(odd):
    assert math.isnan(one(agg.variance("v"), [1.0, odd, 3.0]))
    assert one(agg.top_n(2, "v"), [1.0, math.inf, 3.0]) == [math.inf, 3.0]
    assert math.isnan(one(agg.top_n(1, "v"), [1.0, math.nan, 3.0])[0])
    assert one(agg.median("v"), [1.0, odd, 3.0]) == 3.0


@pytest.mark.parametrize("spec", [agg.median("v"), agg.min("v"), agg.max("v"), agg.sum("v"), agg.quantile("v", 0.9)])
def test_which_of_two_zeros_came_first_changes_no_bit(spec):
    assert {str(one(spec, zeros)) for zeros in ([0.0, -0.0, 0.0], [-0.0, 0.0, -0.0])} == {"0.0"}


def test_only_the_highest_few_are_held_between_batches():
    plan = plan_of(WINDOWS[0], (("best", agg.top_n(2, "n", "offset")),), by=())
    operator = DrivenOperator(plan)
    rows = [Event(None, 1, n, None, None, n) for n in range(1_000)]
    partials = combine_rows(plan, table(rows))
    assert partials.nbytes < 500
    operator.take(partials)
    assert operator.complete().column("best").to_pylist() == [[999, 998]]


SCHEMA = pa.schema([("v", pa.float64()), ("s", pa.string()), ("list", pa.list_(pa.int64())), ("time", pa.int64())])
INVALID_SPECS = [
    (lambda: agg.quantile("v", 1.5), r"quantile\('v', 1.5\): a share from 0 to 1 is expected"),
    (lambda: agg.top_n(0, "v"), r"top_n\(0, 'v'\): a number of rows from 1 is expected"),
    (lambda: agg.count_if(5), r"count_if\(5\): the text of a condition is expected"),
    (lambda: agg.sum("v", where=5), r"sum: where=5: the text of a condition is expected"),
    (lambda: agg.variance("s"), r"variance\(s\) needs numbers, not string; cast the column"),
    (lambda: agg.median("s"), r"median\(s\) needs numbers, not string"),
    (lambda: agg.top_n(2, "list"), r"top_n\(list, list, 2\): values of 'list' are of type .*, which has no order"),
    (lambda: agg.map_agg("v", "s"), r"map_agg\(v, s\): 'v' is of type double, which cannot be a key of a map"),
    (lambda: agg.count_if("w > 0"), r"count\(\): the condition 'w > 0' names a column 'w' that is not there"),
    (lambda: agg.sum("v", where="s > 0"), r"sum\(v\): the condition 's > 0' cannot be evaluated"),
    (lambda: agg.sum("v", where="v + 1"), r"sum\(v\): the condition 'v \+ 1' is of type double, a comparison is"),
    (lambda: agg.sum("v", where="a.v > 1"), r"sum\(v\): the condition 'a.v > 1' names a column 'a'"),
    (lambda: replace(agg.first("v"), where="v > 1"), r"first\(v\): where= is for aggregates that ignore nulls"),
]


@pytest.mark.parametrize(("spec", "sentence"), INVALID_SPECS)
def test_what_cannot_be_computed_is_refused_when_the_plan_is_built(spec, sentence):
    with pytest.raises(OptionError, match=sentence):
        WindowPlan(schema=SCHEMA, by=(), window=WINDOWS[0], aggregates=(("r", spec()),), time="time")


def test_what_an_aggregate_does_is_part_of_the_plans_digest():
    specs = [
        agg.sum("v"), agg.sum("v", where="v > 1"), agg.sum("v", where="v > 2"), agg.quantile("v", 0.1),
        agg.quantile("v", 0.2), agg.top_n(1, "v"), agg.top_n(2, "v"), agg.variance("v"), agg.stddev("v"),
    ]  # fmt: skip
    plans = [WindowPlan(schema=SCHEMA, by=(), window=WINDOWS[0], aggregates=(("r", s),), time="time") for s in specs]
    assert len({plan.digest() for plan in plans}) == len(specs)
