"""A store given what it cannot take, or a function that fails: nothing is lost and nothing half done is kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.frames.plan import tumbling
from keyedwm.operators.messages.functions import window_function
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, tumbling_rows
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.stored import Message, plan_of, table


def messages(*times: int, first: int = 0, partition: int = 0) -> pa.Table:
    """Of key k, with these event times and offsets in a row."""
    return table([Message("k", 1, time, "t", partition, first + at) for at, time in enumerate(times)])


def test_messages_that_are_refused_for_their_time_can_be_given_again():
    operator = WindowOperator(plan_of(tumbling(10)))
    with pytest.raises(InputError, match="is its unit right"):
        operator.add_message(messages(1, FARTHEST_MS + 1))
    assert operator.counts.given == 0
    operator.add_message(messages(1, 2))
    assert (operator.counts.taken, operator.counts.replayed) == (2, 0)
    assert operator.next_offsets() == {("t", 0): 2}


def test_limits_of_size_take_from_the_partition_that_holds_most():
    operator = WindowOperator(plan_of(tumbling_rows(2), retention=Retention(max_messages=6)))
    operator.add_message(messages(1, 2, partition=0))
    operator.add_message(messages(*range(10), partition=1))
    operator.flush()
    held_windows = operator.get_windows(0, 10).select(["partition", "first_offset"]).to_pylist()
    assert [tuple(row.values()) for row in held_windows] == [(0, 0), (1, 6), (1, 8)]
    assert operator.counts.dropped_messages == 6


def divide_by_zero(_: pa.Table) -> float:
    return 1 / 0


WRONG_FUNCTIONS = {
    "<lambda> returned what is no int64: ArrowInvalid: Could not convert 'three'": (lambda _: "three", pa.int64()),
    "<lambda> returned what is no int32: ArrowInvalid: Value ": (lambda _: 2**40, pa.int32()),
    "<lambda> returned what is no int64: 1.5 has a fraction": (lambda _: 1.5, pa.int64()),
    f"<lambda> returned what is no int64: {np.float32(2.5)!r} has a fraction": (lambda _: np.float32(2.5), pa.int64()),
    "<lambda> returned what is no list<item: int32>: [2.5] has a": (lambda _: [2.5], pa.list_(pa.int32())),
    "<lambda> returned what is no struct<a: int32>: {'a': 2.5} ": (lambda _: {"a": 2.5}, pa.struct({"a": pa.int32()})),
    "<lambda> returned what is no timestamp[us]: ValueError: ": (lambda _: pd.NaT, pa.timestamp("us")),
    "divide_by_zero raised ZeroDivisionError: division by zero": (divide_by_zero, pa.float64()),
    "<lambda> raised KeyError: ": (lambda rows: rows["nope"], pa.float64()),
    "<lambda> raised TypeError: ": (lambda rows: rows(), pa.float64()),
}


@pytest.mark.parametrize("sentence", WRONG_FUNCTIONS)
def test_a_function_that_raises_or_returns_another_type_is_one_sentence(sentence):
    operator = WindowOperator(plan_of(tumbling(10), [("told", window_function(*WRONG_FUNCTIONS[sentence]))]))
    operator.add_message(messages(1))
    with pytest.raises(InputError) as error:
        operator.watermark(10)
    assert f"the window_function {sentence}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("number", [3.0, np.float64(3), 3, None])
def test_a_whole_number_may_come_as_a_float(number):
    operator = WindowOperator(plan_of(tumbling(10), [("told", window_function(lambda _: number, pa.int64()))]))
    operator.add_message(messages(1))
    operator.watermark(10)
    assert operator.flush()["told"].to_pylist() == [number]


@pytest.mark.parametrize("function", ["len", None, 3])
def test_what_is_no_function_is_refused_before_a_row_is_read(function):
    with pytest.raises(OptionError, match="a function of a window's Arrow table is expected"):
        window_function(function, pa.int64())


@pytest.mark.parametrize("call", ["add_message", "watermark"])
def test_what_a_call_left_that_failed_halfway_is_never_written(call):
    broken = [True]

    def count_rows(rows: pa.Table) -> int:
        if broken[0] and rows["event_time"][0].as_py() >= 10:
            raise ValueError("no answer")
        return rows.num_rows

    plan = plan_of(tumbling(10), [("told", window_function(count_rows, pa.int64()))],
                   full=CompletedBy.MESSAGE if call == "add_message" else CompletedBy.WATERMARK)  # fmt: skip
    store = MemoryStore()
    operator = WindowOperator(plan, store)

    def go_on() -> None:
        operator.add_message(messages(1, 12, 25))
        operator.watermark(30)

    with pytest.raises(InputError, match="count_rows raised ValueError: no answer"):
        go_on()
    before = dict(store.blobs)
    for again in (operator.flush, operator.finish, go_on):
        with pytest.raises(InputError, match=r"an earlier call failed halfway \(.*ValueError: no answer"):
            again()
    assert store.blobs == before
    broken[0], operator = False, WindowOperator(plan, store)
    go_on()
    operator.finish()
    assert [row["told"] for row in operator.flush().to_pylist()] == [1, 1, 1]
