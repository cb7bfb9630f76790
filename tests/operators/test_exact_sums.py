"""Variance, deviation and trend are the exact ones, rounded once, wherever values lie, however rows are cut."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from conformance.driver import DrivenOperator
from keyedwm.operators.aggregates import exact_sum
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.aggregates.exact_ratio import centred, ratios, whole
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan, tumbling
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.windows import WindowOperator
from tests.operators.streams import rows_of
from tests.operators.test_running import RestartedRunning, plan_of

SPREADS = {"var": agg.variance("v"), "dev": agg.stddev("v"), "trend": agg.linear_trend("v")}
SCHEMA = pa.schema([("v", pa.float64()), ("time", pa.int64())])
START_MS = 1_700_000_000_000
ODD = (0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -1.7976931348623157e308)
# Where values lie, how far they are spread, how many there are.
FAR = [(1e8, 1e-3, 300), (1e9, 1e-3, 40), (1e3, 1e-9, 300), (1e12, 1.0, 2), (1e15, 0.5, 50), (-1e300, 1e284, 30),
       (0.0, 1e-160, 20), (1.0, 1.0, 100)]  # fmt: skip


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def spreads(values: list[float], times: list[int]) -> dict[str, float | None]:
    """Of values that are finite, whose squared distances from the mean a float can hold."""
    if len(values) < 2:
        return dict.fromkeys(SPREADS)
    exact, n = [Fraction(one) for one in values], len(values)
    mean, middle = sum(exact) / n, Fraction(sum(times), n)
    run = sum((one - middle) ** 2 for one in times)
    rise = sum((time - middle) * (one - mean) for time, one in zip(times, exact, strict=True))
    variance = nearest(sum((one - mean) ** 2 for one in exact) / (n - 1))
    return {"var": variance, "dev": math.sqrt(variance), "trend": nearest(1_000 * rise / run) if run else None}


def number(rng: random.Random) -> float:
    sign, kind = rng.choice([1, -1]), rng.randrange(5)
    if kind < 2:
        return sign * math.ldexp(rng.random(), rng.randrange(-1_080, 1_024))
    return (rng.gauss(0, 1), 1e8 + rng.gauss(0, 1e-3), rng.choice(ODD))[kind - 2]


def value(sums: exact_sum.Sums, at: int) -> Fraction:
    position, *digits = sums.digits[sums.offsets[at] : sums.offsets[at + 1]].tolist() or [0, 0]
    low = sum((digit & 0xFFFFFFFF) << 32 * place for place, digit in enumerate(digits[:-1]))
    return Fraction(low + (digits[-1] << 32 * (len(digits) - 1))) * Fraction(2) ** (32 * position)


@pytest.mark.parametrize("case", range(20))
def test_sums_of_products_of_any_floats_and_times_are_exact(seed, case):
    rng = random.Random(seed * 1_000 + case)
    count, groups = rng.randrange(1, 60), rng.randrange(1, 8)
    floats = [number(rng) for _ in range(count)]
    whole_ones = [rng.choice([rng.randrange(-(2**63), 2**63), rng.randrange(1_000)]) for _ in range(count)]
    of = {"x": floats, "t": whole_ones}
    split = {"x": exact_sum.of_floats(np.array(floats)), "t": exact_sum.of_ints(np.array(whole_ones, np.int64))}
    ids = np.array([rng.randrange(groups) for _ in range(count)])
    first = np.sort(np.array([rng.randrange(count) for _ in range(20)]))
    behind = np.maximum.accumulate(np.array([rng.randrange(low, count) + 1 for low in first]))
    for left, right in ("xx", "xt", "tt"):
        products = [Fraction(one) * Fraction(other) for one, other in zip(of[left], of[right], strict=True)]
        expected_sums = [sum(products[row] for row in np.flatnonzero(ids == group)) for group in range(groups)]
        sums = exact_sum.sums_of(split[left], split[right], ids, groups)
        assert [value(sums, group) for group in range(groups)] == expected_sums
        single = exact_sum.sums_of(split[left], split[right], np.arange(count), count)
        merged = exact_sum.merged(exact_sum.of_column(exact_sum.to_column(single)), ids, groups)
        assert exact_sum.to_column(merged) == exact_sum.to_column(sums), "the same bits for any grouping"
        sliding = exact_sum.by_span(single, first, behind)
        assert [value(sliding, at) for at in range(20)] == [
            sum(products[a:b]) for a, b in zip(first, behind, strict=True)
        ]
        quotients = ratios(sums, whole(np.arange(1, groups + 1)))
        assert quotients.tolist() == [nearest(expected_sums[group] / (group + 1)) for group in range(groups)]
        below = centred(sums, sums, sums, whole(np.full(groups, -1)))
        for above, by, quotient in zip(
            expected_sums, [one * one + one for one in expected_sums], ratios(sums, below), strict=True
        ):
            assert quotient == nearest(above / by) if by > 0 else True, (above, by)


@pytest.mark.parametrize(("off", "spread", "count"), FAR)
def test_spread_and_trend_are_right_to_the_last_digit_however_far_from_zero(seed, off, spread, count):
    """In windows, sliding ones that deduct, cut in any way; in stores; and row by row in `running`."""
    rng = random.Random(seed)
    values = [off + rng.gauss(0, spread) for _ in range(count)]
    times = [START_MS + rng.randrange(100) for _ in range(count)]
    for window in (SlidingWindow(10, 10), SlidingWindow(60, 4), SlidingWindow(200, 100)):
        for row in results(window, values, times):
            inside = [at for at, ms in enumerate(times) if row["start"] <= ms < row["end"]]
            expected_spreads = spreads([values[at] for at in inside], [times[at] for at in inside])
            assert {name: row[name] for name in expected_spreads} == expected_spreads
    assert stored_spreads(values, times) == spreads(values, times)
    player, kept_rows = RestartedRunning(plan_of(aggregates=tuple(SPREADS.items()))), []
    rows = [("a", value, ms, 0, ms) for ms, value in enumerate(values[:40])]
    for row in player.batch(rows[:7], 5) + player.batch(rows[7:], 10**9):
        kept_rows.append(row)
        assert {name: row[name] for name in SPREADS} == spreads(
            [one["v"] for one in kept_rows], [one["ms"] for one in kept_rows]
        )
    assert len(kept_rows) == len(rows)


def results(window: SlidingWindow, values: list[float], times: list[int]) -> list[dict]:
    plan = WindowPlan(schema=SCHEMA, by=(), window=window, aggregates=tuple(SPREADS.items()), time="time")
    operator = DrivenOperator(plan)
    for part in range(3):
        operator.take(combine_rows(plan, pa.table({"v": values[part::3], "time": times[part::3]}, schema=SCHEMA)))
    return rows_of(operator.complete())


def stored_spreads(values: list[float], times: list[int]) -> dict[str, float | None]:
    timestamp = pa.timestamp("us", tz="UTC")
    schema = pa.schema([
        ("v", pa.float64()), ("event_time", timestamp), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()),
    ])  # fmt: skip
    operator = WindowOperator(
        StorePlan(
            schema=schema, by=(), window=tumbling(1_000), aggregates=tuple(SPREADS.items()),
            retention=Retention(time_ms=1_000),
        )
    )  # fmt: skip
    many = len(values)
    at = pa.array([ms * 1_000 for ms in times], pa.int64()).cast(timestamp)
    operator.add_message(
        pa.table([pa.array(values), at, ["t"] * many, pa.array([0] * many, pa.int32()), range(many)], schema=schema)
    )
    operator.watermark(START_MS + 1_000)
    return operator.flush().select(list(SPREADS)).to_pylist()[0]


def test_infinities_and_squares_beyond_a_float_are_those_of_spark_and_leave_with_their_rows():
    """A row every 10 ms, windows of three rows."""
    values = [1e154, -1e154, 3.0, 4.0, 5.0, math.inf, 6.0, 7.0, 8.0, math.nan, 1.0, 1.0, 2.0]
    rows = results(SlidingWindow(30, 10), values, [10 * at for at in range(len(values))])
    spreads_by_start = {row["start"] // 10: (row["var"], row["dev"], row["trend"]) for row in rows}
    assert spreads_by_start[0] == (math.inf, math.inf, -5e155)
    assert spreads_by_start[2] == (1.0, 1.0, 100.0)
    assert spreads_by_start[6] == (1.0, 1.0, 100.0)
    assert all(math.isnan(one) for start in (3, 4, 5, 7, 8, 9) for one in spreads_by_start[start])
    assert spreads_by_start[10] == (1 / 3, math.sqrt(1 / 3), 50.0)
    assert spreads_by_start[12] == (None, None, None)
    assert results(SlidingWindow(30, 30), [1e200, -1e200], [0, 0])[0]["dev"] == math.inf
    assert results(SlidingWindow(30, 30), [1e308, 1e308], [0, 1])[0]["var"] == 0.0
