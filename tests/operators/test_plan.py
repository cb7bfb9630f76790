"""What is wrong with a plan is told when it is built; aggregates say which types they take."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from decimal import Decimal
from itertools import permutations

import pyarrow as pa
import pytest

from conformance.driver import DrivenOperator
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.window_rules import LateRule
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan, tumbling
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.panes import Early
from keyedwm.operators.process.plan import ProcessInput
from tests.operators.streams import PRODUCT, SCHEMA, plan_of

WINDOW = tumbling(10)


def results_of(column, values, kind, aggregate=agg.sum):
    schema = pa.schema({"time": pa.int64(), column: kind})
    plan = WindowPlan(schema=schema, by=(), window=WINDOW, aggregates=(("made", aggregate(column)),), time="time")
    table = pa.table([pa.array([0] * len(values)), pa.array(values, kind)], schema=schema)
    operator = DrivenOperator(plan)
    for at in range(len(values)):
        operator.take(combine_rows(plan, table.slice(at, 1)))
    result_column = DrivenOperator(plan, operator.snapshot()).complete()["made"]
    assert result_column.type == plan.result_schema.field("made").type
    return result_column.to_pylist()


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: SlidingWindow(10, 3),
            r"10 ms every 3 ms is no whole number of slides: .* \(a size of 9 ms would do\)",
        ),
        (lambda: SlidingWindow(5, 10), "5 ms every 10 ms: the slide is longer than the size, .* are they exchanged"),
        (lambda: SlidingWindow(10, 0), "the slide of a window is 0 ms, it must be 1 or more"),
        (lambda: SlidingWindow(10, 5, 5), "the offset of a window is 5 ms, it must be 0 or more and below 5 ms"),
        (lambda: SessionWindow(0), "the gap of a session is 0 ms, it must be 1 or more"),
        (lambda: SessionWindow(-3), "the gap of a session is -3 ms"),
        (Early, "early panes need a number of rows, an interval, or both"),
        (lambda: Early(rows=0), "the number of rows between early panes is 0, it must be 1 or more"),
        (lambda: plan_of(WINDOW, aggregates=()), "needs at least one aggregate"),
        (lambda: plan_of(WINDOW, by=("who",)), "the input has no column 'who', it has k, event_time, n, x, s, offset"),
        (lambda: plan_of(WINDOW, aggregates=(("a", agg.sum("price")),)), "the input has no column 'price'"),
        (lambda: plan_of(WINDOW, time="when"), "the input has no column 'when'"),
        (lambda: plan_of(WINDOW, time="x"), "column 'x' is of type double, it must be a timestamp or int64 millis"),
        (lambda: plan_of(WINDOW, aggregates=(("k", agg.count()),)), "the result would have two columns called 'k'"),
        (lambda: plan_of(WINDOW, aggregates=(("K", agg.count()),)), "the result would have two columns called 'K'"),
        (lambda: plan_of(WINDOW, aggregates=(("window", agg.count()),)), "a result column cannot be called 'window'"),
        (lambda: plan_of(WINDOW, aggregates=(("Pane", agg.count()),)), "a result column cannot be called 'Pane'"),
        (lambda: plan_of(WINDOW, lateness_ms=-1), "the allowed lateness is -1 ms"),
        (lambda: plan_of(WINDOW, lateness_ms=5, late_rule=LateRule.FRAME), "needs the late rule 'window', not 'frame'"),
        (lambda: plan_of(SessionWindow(5), late_rule=LateRule.FRAME), "sessions have no frames"),
        (lambda: plan_of(WINDOW, aggregates=(("a", agg.sum("s")),)), r"sum\(s\) needs numbers .*, not string; cast"),
        (lambda: plan_of(WINDOW, aggregates=(("a", agg.avg("s")),)), r"avg\(s\) needs whole numbers or floats"),
        (
            lambda: SlidingWindow(2**53, 2**53),
            "the size of a window is 9007199254740992 ms, it must be 4503599627370496 ms",
        ),
        (lambda: SessionWindow(2**53), "the gap of a session is 9007199254740992 ms"),
        (lambda: plan_of(WINDOW, lateness_ms=2**53), "the allowed lateness is 9007199254740992 ms"),
        (lambda: Early(every_ms=2**53), "the interval between early panes is 9007199254740992 ms"),
        (lambda: agg.sum(None), r"sum\(None\): the name of a column is expected"),
        (lambda: replace(PRODUCT, column=7), r"Aggregate\(7\): the name of a column is expected"),
        (lambda: replace(PRODUCT, result="bigint"), "result='bigint': an Arrow type such as pa.int64"),
        (lambda: replace(PRODUCT, create=0), "create=0: a function is expected"),
        (lambda: replace(PRODUCT, combine="add"), "combine='add': a function is expected"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_with_the_fix(build, sentence):
    with pytest.raises(OptionError, match=sentence) as error:
        build()
    assert error.value.message.count(". ") == 0


def test_an_aggregate_that_cannot_combine_needs_the_single_stage_form():
    last = {
        "column": "n",
        "result": pa.int64(),
        "create": lambda: 0,
        "accumulate": lambda total, value: total * 2 + value,
    }
    with pytest.raises(OptionError, match=r"over 'n' has no combine function.*or ask for single_stage=True"):
        plan_of(WINDOW, aggregates=(("a", agg.Aggregate(**last)),))
    assert results_of("n", [1, 2, 3], pa.int64(), lambda _: agg.Aggregate(**last, single_stage=True)) == [11]


def test_a_users_functions_see_no_nulls_and_their_windows_come_all_the_same():
    def longest(column):
        return agg.Aggregate(
            column=column,
            result=pa.int64(),
            create=lambda: 0,
            accumulate=lambda length, value: max(length, len(value)),
            combine=max,
        )

    assert results_of("s", ["ab", None, "c"], pa.string(), longest) == [2]
    assert results_of("s", [None], pa.string(), longest) == [0]


def test_an_event_time_in_the_wrong_unit_is_refused():
    schema = pa.schema({"t": pa.int64()})
    plan = WindowPlan(schema=schema, by=(), window=WINDOW, aggregates=(("rows", agg.count()),), time="t")
    with pytest.raises(
        InputError, match=r"the event time 1700000000000000000 ms is farther from 1970 .* is its unit right"
    ):
        combine_rows(plan, pa.table([[1, 1_700_000_000_000_000_000]], schema=schema))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_float_keys_are_grouped_as_spark_groups_them(kind):
    schema = pa.schema({"t": pa.int64(), "k": kind})
    plan = WindowPlan(schema=schema, by=("k",), window=WINDOW, aggregates=(("rows", agg.count()),), time="t")
    keys = pa.array([0.0, -0.0, math.nan, -math.nan, None], kind)
    partials = combine_rows(plan, pa.table([[0] * 5, keys], schema=schema))
    assert str(partials["k"].to_pylist()) == "[0.0, nan, None]"
    assert partials["__rows"].to_pylist() == [2, 2, 1]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct({"a": pa.int64()}), pa.map_(pa.string(), pa.int8())])
def test_nested_values_are_no_keys_and_are_not_told_apart(kind):
    schema = pa.schema({"time": pa.int64(), "v": kind})
    with pytest.raises(OptionError, match=r"the key column 'v' is of type .*, which cannot be a key"):
        WindowPlan(schema=schema, by=("v",), window=WINDOW, aggregates=(("n", agg.count()),), time="time")
    with pytest.raises(OptionError, match=r"approx_count_distinct\(v\) needs plain values, not"):
        results_of("v", [], kind, agg.approx_count_distinct)


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        (pa.null(), "cast it to the type that its values will have"), (pa.float16(), "cast it to float32"),
        (pa.month_day_nano_interval(), "take a number of"), (pa.string_view(), "cast it to string"),
        (pa.binary_view(), "cast it to binary"),
    ],
    ids=str,
)  # fmt: skip
def test_a_key_of_a_type_that_arrow_does_not_compare_is_refused_in_one_sentence(kind, cure):
    schema = pa.schema({"time": pa.int64(), "v": kind})
    sentence = f"the key column 'v' is of type {kind}, which cannot be a key: {cure}"
    for per_key in (None, PerKey(0, 5)):
        with pytest.raises(OptionError, match=sentence):
            WindowPlan(
                schema=schema, by=("v",), window=WINDOW, aggregates=(("n", agg.count()),), time="time",
                key_watermark=per_key,
            )  # fmt: skip
    with pytest.raises(OptionError, match=sentence):
        ProcessInput(schema=schema, by=("v",), time="time")


def test_nested_values_have_no_order():
    nested = pa.list_(pa.int64())
    with pytest.raises(OptionError, match=r"min\(v\): values of type list<.*> have no order"):
        results_of("v", [], nested, agg.min)
    with pytest.raises(OptionError, match="rows of the same event time need order columns"):
        results_of("v", [], nested, agg.first)


def test_rows_without_a_column_of_the_plan_are_refused():
    with pytest.raises(InputError, match="the rows have no column 'x', they have k, event_time, n, s, offset"):
        combine_rows(plan_of(WINDOW), SCHEMA.empty_table().drop_columns(["x"]))


def test_rows_without_event_time_belong_to_no_window():
    plan = plan_of(WINDOW, aggregates=(("rows", agg.count()),))
    rows = pa.table([[None, "a"], [None, 5], [1, 1], [0.0, 0.0], ["", ""], [1, 2]], schema=SCHEMA)
    assert combine_rows(plan, rows)["k"].to_pylist() == ["a"]


def test_event_times_finer_than_a_millisecond_are_floored():
    schema = pa.schema({"t": pa.timestamp("ns")})
    plan = WindowPlan(schema=schema, by=(), window=tumbling(1), aggregates=(("rows", agg.count()),), time="t")
    times = pa.array([-1, 0, 999_999, 1_000_000], pa.int64()).view(pa.timestamp("ns"))
    assert combine_rows(plan, pa.table([times], schema=schema))["__start"].to_pylist() == [-1, 0, 1]


def test_a_sum_beyond_64_bits_is_refused():
    assert results_of("n", [2**62, 2**62 - 1], pa.int64()) == [2**63 - 1]
    with pytest.raises(InputError, match="the sum of 'n' in one window does not fit in 64 bits; cast the column to"):
        results_of("n", [2**62, 2**62], pa.int64())
    with pytest.raises(InputError, match="the sum of 'n' in one window does not fit in 64 bits; cast the column to"):
        results_of("n", [-(2**63), -1], pa.int64())


LARGE = (2**63 - 1, 2**62, 2**62, -(2**62), -(2**63), 5)


@pytest.mark.parametrize("values", sorted(set(permutations(LARGE)))[::20], ids=str)
def test_a_sum_that_fits_is_exact_in_every_order_of_rows(values):
    assert results_of("n", list(values), pa.int64()) == [sum(LARGE)]


def test_the_mean_of_large_numbers_is_exact_although_their_sum_is_beyond_64_bits():
    assert results_of("n", [2**63 - 1] * 3, pa.int64(), agg.avg) == [float(2**63 - 1)]
    assert results_of("n", [-(2**63)] * 4, pa.int64(), agg.avg) == [float(-(2**63))]
    assert results_of("n", [2**62, 2**62, -(2**62)], pa.int64(), agg.avg) == [2**62 / 3]


def test_a_sliding_window_deducts_numbers_whose_running_sum_is_beyond_64_bits():
    schema = pa.schema({"t": pa.int64(), "n": pa.int64()})
    plan = WindowPlan(schema=schema, by=(), window=SlidingWindow(30, 10), aggregates=(("sum", agg.sum("n")),), time="t")
    operator = DrivenOperator(plan)
    numbers = [-(2**62), 2**62, 2**62, -(2**62)]
    operator.take(combine_rows(plan, pa.table([[0, 10, 20, 30], numbers], schema=schema)))
    assert operator.complete()["sum"].to_pylist() == [sum(numbers[max(0, end - 3) : end]) for end in range(1, 7)]


def test_overlapping_windows_that_close_together_are_not_added_up():
    schema = pa.schema({"t": pa.int64(), "n": pa.int64()})
    plan = WindowPlan(schema=schema, by=(), window=SlidingWindow(20, 10), aggregates=(("sum", agg.sum("n")),), time="t")
    operator = DrivenOperator(plan)
    operator.take(combine_rows(plan, pa.table([[0, 10, 20], [2**61 + 2**60] * 3], schema=schema)))
    assert operator.advance(100)["sum"].to_pylist() == [3 * 2**60, 6 * 2**60, 6 * 2**60, 3 * 2**60]


def test_decimals_add_up_exactly():
    cents = [Decimal("0.10"), None, Decimal("-99999999999999.99"), Decimal("0.20")]
    assert results_of("price", cents, pa.decimal128(16, 2)) == [Decimal("-99999999999999.69")]
    assert results_of("price", [Decimal("9" * 18)] * 40, pa.decimal128(18, 0)) == [40 * Decimal("9" * 18)]
    with pytest.raises(
        OptionError, match=r"sum\(price\) needs numbers \(decimals of up to 18 digits\), not decimal128"
    ):
        results_of("price", [], pa.decimal128(30, 2))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [3, -5, None]),
        (pa.uint32(), [3, 2**32 - 1]),
        (pa.uint64(), [3, 2**64 - 1]),
        (pa.float32(), [0.5, -1.5, None]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [None, *pa.array([9, -9], pa.date32()).to_pylist()]),
        (pa.timestamp("us", "UTC"), pa.array([9, -9], pa.timestamp("us", "UTC")).to_pylist()),
        (pa.decimal128(30, 3), [Decimal("1.5"), Decimal("-2.125")]),
        (pa.binary(), [b"\x00", b"", None]),
        (pa.string(), ["\u00e9", "z", None]),
    ],
    ids=str,
)
def test_the_lowest_and_highest_value_of_every_type_that_has_an_order(kind, values):
    some = [value for value in values if value is not None]
    keyed = (lambda value: value.encode()) if pa.types.is_string(kind) else None
    assert results_of("v", values, kind, agg.min) == [min(some, key=keyed)]
    assert results_of("v", values, kind, agg.max) == [max(some, key=keyed)]
    assert results_of("v", [None, None], kind, agg.max) == [None]


def test_nan_is_above_every_number():
    nan = float("nan")
    assert str(results_of("x", [1.0, nan, float("inf")], pa.float64(), agg.max)) == "[nan]"
    assert results_of("x", [1.0, nan, -float("inf")], pa.float64(), agg.min) == [-float("inf")]


@pytest.mark.parametrize("count", [0, 1, 10, 300, 20_000])
def test_the_number_of_distinct_values_is_off_by_a_few_percent_at_most(count):
    schema = pa.schema({"time": pa.int64(), "v": pa.string()})
    plan = WindowPlan(
        schema=schema, by=(), window=WINDOW, aggregates=(("d", agg.approx_count_distinct("v")),), time="time"
    )
    texts = [f"visitor {number}" for number in range(count)] * 2 or [None]
    operator = DrivenOperator(plan)
    operator.take(combine_rows(plan, pa.table([[0] * len(texts), pa.array(texts, pa.string())], schema=schema)))
    assert operator.complete()["d"].to_pylist() == [pytest.approx(count, rel=0.1)]


def test_a_plan_survives_pickling_and_its_digest_tells_plans_apart():
    plan = plan_of(WINDOW, aggregates=(("rows", agg.count()), ("total", agg.sum("n"))))
    assert pickle.loads(pickle.dumps(plan)).digest() == plan.digest()  # noqa: S301  pickled here
    others = [
        plan_of(tumbling(20), aggregates=plan.aggregates),
        plan_of(WINDOW, aggregates=plan.aggregates, by=("s",)),
        plan_of(WINDOW, aggregates=plan.aggregates[:1]),
        plan_of(WINDOW, aggregates=plan.aggregates, lateness_ms=1),
        plan_of(WINDOW, aggregates=(("rows", agg.count()), ("total", agg.avg("n")))),
    ]
    assert len({one.digest() for one in [plan, *others]}) == len(others) + 1
