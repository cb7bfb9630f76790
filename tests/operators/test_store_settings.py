"""What a program gives of another kind is one sentence where it is written down, also where Python would go on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, KeyedwmError, OptionError
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, tumbling
from keyedwm.operators.messages.functions import median, quantile, window_function
from keyedwm.operators.messages.join.plan import WindowJoinSide
from keyedwm.operators.messages.on_demand import on_demand
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.store_description import describe
from keyedwm.operators.messages.windows import (
    hopping,
    hopping_key_rows,
    hopping_rows,
    session_rows,
    tumbling_key_rows,
    tumbling_rows,
)
from keyedwm.operators.panes import Early
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin, WindowOperator
from tests.operators import window_joins
from tests.operators.stored import SCHEMA, Message, plan_of, table

NO_NUMBERS = ("1 minute", None, 1.5, True, np.float64(5), timedelta(minutes=1), Decimal(5), [5])
ONE = table([Message("a", 5, 1_000, "t", 0, 0)])

LENGTHS = {
    "tumbling": tumbling,
    "its offset": lambda number: tumbling(60_000, number),
    "slide": lambda number: SlidingWindow(60_000, number),
    "hopping": lambda number: hopping(number, 10),
    "step": lambda number: hopping(10, number),
    "gap": SessionWindow,
    "on demand": lambda number: on_demand(number, "n > 1"),
    "early": lambda number: Early(rows=1, every_ms=5 if number is None else number) and Early(rows=number),
    "retention": lambda number: (
        Retention(max_windows=5, time_ms=5 if number is None else number) and Retention(time_ms=number)
    ),
}
NUMBERS = {
    "rows": tumbling_rows,
    "rows of a key": tumbling_key_rows,
    "step of rows": lambda number: hopping_rows(5, number),
    "step of a key's": lambda number: hopping_key_rows(5, number),
    "between": session_rows,
    "windows": lambda number: Retention(max_windows=number),
    "messages": lambda number: Retention(max_messages=number),
    "bytes": lambda number: Retention(max_bytes=number),
    "late rows": lambda number: plan_of(tumbling(10), late_rows=0 if number is None else number),
    "late interval": lambda number: plan_of(tumbling(10), late_every_ms=0 if number is None else number),
}


@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("make", [*LENGTHS.values(), *NUMBERS.values()], ids=[*LENGTHS, *NUMBERS])
def test_a_length_or_number_that_is_none_is_refused_where_it_is_written(make, number):
    with pytest.raises(OptionError):
        make(number)


def test_a_duration_as_spark_takes_it_is_told_in_ms():
    with pytest.raises(OptionError, match=r"size of a window is '1 minute': a whole number of ms is expected, 60000"):
        hopping("1 minute", 10)


def test_a_window_without_a_length_is_told_by_the_name_that_was_given():
    with pytest.raises(OptionError, match="the size of a window is 0 ms"):
        tumbling(0)
    with pytest.raises(OptionError, match="the size of a window is '1 minute'"):
        tumbling("1 minute")


def test_numbers_of_numpy_make_the_plan_of_plain_ones():
    plain, other = (
        plan_of(tumbling(convert(60_000)), retention=Retention(time_ms=convert(60_000))) for convert in (int, np.int64)
    )
    assert (describe(plain), plain.window, plain.retention) == (describe(other), other.window, other.retention)
    assert type(other.window.size_ms) is int


WRONG_PLANS = {
    "the window is '1 minute'": {"window": "1 minute"},
    "the retention is '1 hour'": {"retention": "1 hour"},
    "full is 'message': CompletedBy.MESSAGE is expected": {"full": "message"},
    "full is None: one of CompletedBy.WATERMARK, CompletedBy.MESSAGE": {"full": None},
    "late_by is 'event': EveryBy.EVENT is expected": {"late_by": "event"},
    "accumulating is 'no': True or False": {"accumulating": "no"},
    "early is '1 minute'": {"early": "1 minute"},
    r"by is 'k': a tuple .* such as \('k',\)": {"by": "k"},
    "by is None": {"by": None},
    r"by is \(1,\)": {"by": (1,)},
    "None: the name of a column is expected, the input has k": {"time": None},
    "5: the name of a column is expected": {"aggregates": [("m", median(5))]},
    r"aggregates are \(\('n'": {"aggregates": [("n", count(), 1)]},
    "interval between late panes is": {"late_every_ms": 2**53},
}


@pytest.mark.parametrize(("sentence", "wrong"), WRONG_PLANS.items(), ids=WRONG_PLANS)
def test_a_plan_names_what_is_of_another_kind(sentence, wrong):
    with pytest.raises(OptionError, match=sentence):
        plan_of(**{"window": tumbling(10), **wrong})


WRONG_JOINS = {
    "left is 'orders': a WindowJoinSide": {"left": "orders"},
    "the window is None": {"window": None},
    "sessions by rows are not joined": {"window": session_rows(3)},
    "keep is 'first': Keep.FIRST is expected": {"keep": "first"},
    "how is 'semi': one of How.INNER": {"how": "semi"},
    "full is 'message': CompletedBy.MESSAGE": {"full": "message"},
    "interval of early pairs is '1 minute': a whole number of ms is expected, 60000": {"early_every_ms": "1 minute"},
    "interval of late pairs is 1.5": {"late_every_ms": 1.5},
}


@pytest.mark.parametrize(("sentence", "wrong"), WRONG_JOINS.items(), ids=WRONG_JOINS)
def test_so_does_a_plan_of_a_join(sentence, wrong):
    with pytest.raises(OptionError, match=sentence):
        replace(window_joins.plan_of(tumbling(10)), **wrong)


WRONG_SIDES = (
    {"name": 5},
    {"schema": {}},
    {"on": "k"},
    {"on": None},
    {"on": (5,)},
    {"unbounded": "yes"},
    {"time": None},
)


@pytest.mark.parametrize("wrong", WRONG_SIDES, ids=str)
def test_so_does_a_side(wrong):
    with pytest.raises(OptionError):
        WindowJoinSide(**{"name": "left", "schema": SCHEMA, "on": ("k",), **wrong})


@pytest.mark.parametrize("share", ["0.5", None, True, Decimal("0.5"), 50, float("nan")], ids=repr)
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(OptionError, match="a share from 0 to 1 is expected"):
        quantile("n", share)


@pytest.mark.parametrize("wrong", [lambda: 1, lambda _, more: more, lambda _, *, more: more])
def test_a_window_function_takes_a_table_alone(wrong):
    with pytest.raises(OptionError, match=r"cannot be called with one argument \(.*: a function of a window's"):
        window_function(wrong, pa.float64())


@pytest.mark.parametrize("right", [len, max, dict, lambda *_: 1, lambda _, more=1: more])
def test_further_arguments_may_have_defaults_and_functions_in_c_are_taken_at_their_word(right):
    assert window_function(right, pa.float64()).function is right


@pytest.mark.parametrize("name", ["", " "])
def test_a_result_column_has_a_name(name):
    with pytest.raises(OptionError, match=r"a result column is called '.?': a name is expected"):
        plan_of(tumbling(10), aggregates=((name, count()),))


def test_a_table_in_the_place_of_something_else_is_told_on_one_line():
    with pytest.raises(OptionError, match=r"^the join has no side pyarrow.Table k: .*, it has left and right .*$"):
        WindowJoin(window_joins.plan_of(tumbling(10))).add_message(ONE, "left")


def test_the_result_of_a_window_function_is_a_type_of_arrow():
    with pytest.raises(OptionError, match="result='double': the Arrow type of one value is expected"):
        window_function(len, "double")


@pytest.mark.parametrize("wrong", [None, "plan", {}], ids=repr)
def test_an_operator_needs_a_plan_and_a_store(wrong):
    for operator_type in (WindowOperator, WindowJoin):
        with pytest.raises(OptionError, match="the plan of a Window"):
            operator_type(wrong)
    for operator_type, plan in (
        (WindowOperator, plan_of(tumbling(10))),
        (WindowJoin, window_joins.plan_of(tumbling(10))),
    ):
        with pytest.raises(OptionError, match=r"store is 'messages.db': a MemoryStore\(\) is expected"):
            operator_type(plan, "messages.db")
    with pytest.raises(OptionError, match="the blobs of a store is 5"):
        MemoryStore(5)


def operator_with_row() -> WindowOperator:
    operator = WindowOperator(plan_of(tumbling(10_000)))
    operator.add_message(ONE)
    return operator


WRONG_EDGES = (
    ("0", "9"), (None, 5), (1.5, 2), (5, 1), ((1,), 5), ((1, 2, 3), 5), ((1, "x"), 5), ((5, 2), (5, 1)), (0, 2**70),
)  # fmt: skip


@pytest.mark.parametrize("edges", WRONG_EDGES, ids=str)
def test_a_range_is_one_of_whole_numbers_the_earlier_first(edges):
    for call in (operator_with_row().get_messages, operator_with_row().get_windows):
        with pytest.raises(OptionError):
            call(*edges)


def test_a_value_of_another_type_than_its_column_is_no_value_of_it():
    for values in ({"n": 5.5}, {"n": "x"}, {"n": 2**70}, {"k": 5}, {"k": ["a"]}, "k", ["k"]):
        with pytest.raises(OptionError):
            operator_with_row().get_messages(0, 9_999, join_keys=values)
    with pytest.raises(OptionError, match="'k' is asked for 'a' in key and for 'b' in join_keys: give one"):
        operator_with_row().get_messages(0, 9_999, key={"k": "a"}, join_keys={"k": "b"})
    assert operator_with_row().get_messages(0, 9_999, key={"k": "a"}, join_keys={"n": np.int64(5)}).num_rows == 1


MESSAGES = {
    "a time of another unit": ("event_time", pa.array([5], pa.timestamp("us"))),
    "a text for a number": ("n", pa.array(["5"])),
    "a number for a text": ("k", pa.array([5])),
    "true for a number": ("n", pa.array([True])),
}


@pytest.mark.parametrize(("name", "column"), MESSAGES.values(), ids=MESSAGES)
def test_a_column_of_another_kind_is_not_read_as_what_it_is_not(name, column):
    wrong_table = ONE.set_column(ONE.schema.get_field_index(name), name, column)
    with pytest.raises(InputError, match=f"the messages' column '{name}' is of type .*: cast it before"):
        operator_with_row().add_message(wrong_table)


@pytest.mark.parametrize("wrong", [True, np.True_])
def test_true_is_no_time(wrong):
    with pytest.raises(KeyedwmError):
        operator_with_row().watermark(wrong)


@pytest.mark.parametrize(
    "other",
    [{"early": Early(rows=2)}, {"late_every_ms": 5}, {"late_rows": 2}, {"accumulating": False}],
    ids=str,
)
def test_a_store_of_other_panes_says_that_these_cannot_change(other):
    store = MemoryStore()
    operator = WindowOperator(plan_of(tumbling(10)), store)
    operator.add_message(ONE)
    operator.flush()
    with pytest.raises(KeyedwmError, match="early panes, the kind of late panes and accumulating must stay"):
        WindowOperator(plan_of(tumbling(10), **other), MemoryStore(store.blobs))
