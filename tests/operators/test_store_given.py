"""What is given to windows that keep their messages: what does not fit is told in one sentence, and harms nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError
from keyedwm.operators.frames.plan import SessionWindow, tumbling
from keyedwm.operators.messages.bucket_operator import BucketOperator
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, hopping_rows, tumbling_key_rows, tumbling_rows
from keyedwm.operators.panes import Early
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin, WindowOperator
from tests.operators.session_joins import join_plan
from tests.operators.stored import KEEP_ALL, SCHEMA, Message, Restarted, pane_tuple, plan_of, table

ONE = table([Message("x", 1, 1, "t", 0, 0)])


def with_column(name: str, values: pa.Array) -> pa.Table:
    return ONE.set_column(ONE.schema.names.index(name), name, values)


WRONG = {
    "no table": ([{"k": "x"}], "messages are a table of Arrow, not a list: give a pyarrow.Table"),
    "a column twice": (ONE.append_column("n", ONE["n"]), "the messages have more than one column 'n', they have k, n"),
    "text for an offset": (with_column("offset", pa.array(["z"])), "'offset' is of type string, the plan has int64: "),
    "a large text": (with_column("n", pa.array(["z" * 10_000])), "'n' is of type string, the plan has int64: .{,220}$"),
    "a fraction": (with_column("event_time", pa.array([1.5])), "'event_time' is of type double, the plan has int64: "),
    "a partition too large": (
        with_column("partition", pa.array([2**40])),
        "'partition' is of type int64, the plan has",
    ),
    "an offset below 0": (
        with_column("offset", pa.array([-5])),
        "offsets in 'offset' lie between -5 and -5, they must be from 0",
    ),
    "the last offset there is": (with_column("offset", pa.array([2**63 - 1])), "offsets in 'offset' lie between 9223"),
}


def join() -> WindowJoin:
    sides = {name: WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in ("left", "right")}
    return WindowJoin(WindowJoinPlan(window=tumbling(10), retention=KEEP_ALL, **sides))


@pytest.mark.parametrize(("wrong_table", "why"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("window", [tumbling(10), tumbling_rows(2), tumbling_key_rows(2)], ids=str)
def test_a_table_that_does_not_fit_is_refused_in_one_sentence_and_the_operator_goes_on(window, wrong_table, why):
    operator = WindowOperator(plan_of(window))
    with pytest.raises(InputError, match=why):
        operator.add_message(wrong_table)
    assert (operator.counts.given, operator.next_offsets()) == (0, {})
    operator.add_message(ONE)
    assert (operator.counts.given, operator.next_offsets()) == (1, {("t", 0): 1})


@pytest.mark.parametrize(("wrong_table", "why"), WRONG.values(), ids=WRONG)
def test_so_is_one_for_a_side_of_a_join(wrong_table, why):
    operator = join()
    with pytest.raises(InputError, match=why):
        operator.add_message("left", wrong_table)
    assert (operator.counts("left").given, operator.next_offsets("left")) == (0, {})


@pytest.mark.parametrize("wrong", [None, 1.5, "2020", 2**70])
def test_a_time_that_is_no_whole_number_is_refused_in_one_sentence(wrong):
    operator, two = WindowOperator(plan_of(tumbling(10))), join()
    calls = [lambda: operator.watermark(wrong), lambda: operator.timeout(wrong), lambda: two.watermark("left", wrong)]
    for call in [*calls, lambda: two.timeout(wrong)]:
        with pytest.raises(
            InputError, match=r"(a watermark|now_ms) is .*: a (whole number of ms|number of 64 bits) is"
        ):
            call()


def test_times_may_be_numbers_of_numpy_as_the_state_holds_plain_ones():
    store = MemoryStore()
    for _ in range(2):
        operator = WindowOperator(plan_of(tumbling(10), early=Early(every_ms=5)), store)
        operator.add_message(ONE, np.int64(3))
        operator.timeout(np.int64(30))
        operator.watermark(np.int64(5))
        operator.flush()
    two = join()
    two.watermark("left", np.int64(5))
    assert two.flush().num_rows == 0


@pytest.mark.parametrize("window", [tumbling_rows(10), hopping_rows(10, 5)], ids=str)
@pytest.mark.parametrize("full", CompletedBy, ids=lambda full: full.value)
def test_windows_of_rows_of_a_store_that_was_lost_are_the_same_whatever_offsets_have_no_message(window, full):
    plan = plan_of(window, full=full, retention=Retention(max_windows=2))
    messages = [Message("x", 1, 0, "t", 0, at) for at in range(100) if at < 10 or at % 10 > 2]

    def panes(input_messages: list[Message]) -> tuple[WindowOperator, list]:
        player = Restarted(plan, always=False)
        for one in input_messages:
            player.step("add_message", table([one]))
        return player.operator, player.results

    before, panes_before = panes([one for one in messages if one.offset < 57])
    oldest = before.oldest_offsets()["t", 0]
    _, again = panes([one for one in messages if one.offset >= oldest])
    _, expected_panes = panes(messages)
    assert len(expected_panes) > len(panes_before) >= 5
    assert again == expected_panes


@pytest.mark.parametrize("full", CompletedBy, ids=lambda full: full.value)
def test_a_new_store_that_is_told_the_watermark_first_says_nothing_of_windows_that_were_gone(full):
    plan = plan_of(tumbling(10), full=full, retention=Retention(time_ms=10))
    log = [Message("x", 1, time, "t", 0, at) for at, time in enumerate([1, 2, 12, 3, 25])]
    lost_operator = WindowOperator(plan)
    lost_operator.add_message(table(log))
    lost_operator.watermark(21)
    assert lost_operator.oldest_offsets() == {("t", 0): 2}
    again = WindowOperator(plan)
    again.watermark(21)
    again.add_message(table(log[2:]))
    assert [pane_tuple(row)[:4] for row in again.flush().to_pylist()] == [(10, 20, "x", "t0:2")]
    assert again.get_messages(0, 99) == lost_operator.get_messages(0, 99)


def of_one_record(*numbers: float) -> pa.Table:
    messages = table([Message("x", 1, 1, "t", 0, 7) for _ in numbers])
    return messages.set_column(1, "n", pa.array(numbers, pa.float64()))


@pytest.mark.parametrize("window", [tumbling(10), tumbling_rows(2), tumbling_key_rows(2)], ids=str)
def test_rows_of_one_record_that_differ_are_refused_as_all_but_one_would_be_lost(window):
    schema = SCHEMA.set(1, pa.field("n", pa.float64()))
    plan = replace(plan_of(window), schema=schema)
    operator = WindowOperator(plan)
    with pytest.raises(
        InputError, match=r"several rows of one record differ in 'n' .t-0 at offset 7., and a record is one "
    ):
        operator.add_message(of_one_record(1.0, 1.0, 2.0))
    assert (operator.counts.given, operator.next_offsets()) == (0, {})
    operator.add_message(of_one_record(np.nan, np.nan))
    assert (operator.counts.taken, operator.counts.replayed) == (1, 1)
    operator.add_message(of_one_record(3.0))  # a record that comes again is a replay, whatever it holds
    assert (operator.counts.taken, operator.counts.replayed) == (1, 2)


@pytest.mark.parametrize("window", [tumbling(10), tumbling_rows(2), tumbling_key_rows(2), SessionWindow(10)], ids=str)
def test_in_spark_equal_rows_of_one_record_are_refused_too_as_no_batch_brings_a_record_twice(window):
    operator = BucketOperator(BucketStore(plan=plan_of(window)), MemoryStore())
    with pytest.raises(InputError, match=r"several rows of one record are equal \(t-0 at offset 7\), and a record is"):
        list(operator.on_rows(0, of_one_record(1, 1), None))


@pytest.mark.parametrize("window", [tumbling(10), SessionWindow(10)], ids=str)
def test_so_they_are_for_both_sides_of_a_join_in_spark(window):
    for side in (0, 1):
        operator = BucketOperator(BucketWindowJoin(plan=join_plan(window)), MemoryStore())
        with pytest.raises(InputError, match="several rows of one record are equal"):
            list(operator.on_rows(side, of_one_record(1, 1), None))


def test_so_they_are_for_a_side_of_a_join():
    operator = join()
    with pytest.raises(InputError, match="several rows of one record differ in 'n'"):
        operator.add_message("left", table([Message("x", number, 1, "t", 0, 7) for number in (1, 2)]))
    assert (operator.counts("left").given, operator.next_offsets("left")) == (0, {})


def test_messages_of_a_key_that_is_nan_or_null_are_found():
    schema = SCHEMA.set(0, pa.field("k", pa.float64()))
    operator = WindowOperator(replace(plan_of(tumbling(10)), schema=schema))
    keys = [np.nan, -0.0, None, np.nan]
    messages = table([Message(None, 1, 1, "t", 0, at) for at in range(4)])
    operator.add_message(messages.set_column(0, "k", pa.array(keys, pa.float64(), from_pandas=False)))
    offsets = [operator.get_messages(0, 9, key={"k": key})["offset"].to_pylist() for key in (np.nan, 0.0, None, 5.0)]
    assert offsets == [[0, 3], [1], [2], []]
