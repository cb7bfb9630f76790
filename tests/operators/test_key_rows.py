"""Windows that count a key's messages: each topic and partition for itself, by offset; see `laws`, too."""

from __future__ import annotations

from functools import partial

import pytest

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import (
    CompletedBy,
    KeyRowWindow,
    hopping_key_rows,
    tumbling_key_rows,
    tumbling_rows,
)
from keyedwm.operators.panes import Early
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.laws.small import SMALL
from tests.operators.stored import messages_of, operator_of, panes_of, plan_of, random_messages, table

# Event times say nothing here.
new_messages = partial(messages_of, "offset k n")
new_panes = partial(panes_of, "k partition start end n timing last")


def test_a_window_is_complete_with_its_last_message_and_counts_those_of_its_key_alone():
    for full, second in (
        (CompletedBy.WATERMARK, [("a", 0, 1, 6, [1, 3, 5], "on_time", False)]),
        (CompletedBy.MESSAGE, []),
    ):
        operator = operator_of(tumbling_key_rows(3), full=full)
        operator.add_message(table(new_messages((1, "a", 1), (2, "b", 2), (4, "a", 3))))
        operator.watermark(10**6)
        assert new_panes(operator) == []
        operator.add_message(table(new_messages((6, "a", 5))))
        assert new_panes(operator) == second
        operator.add_message(table(new_messages((7, "a", 7))))
        assert [row[2:5] for row in new_panes(operator)] == ([] if second else [(1, 6, [1, 3, 5])])


def test_each_partition_counts_for_itself():
    operator = operator_of(tumbling_key_rows(2))
    operator.add_message(table([*new_messages((0, "a", 1)), *new_messages((5, "a", 2), partition=1)]))
    assert new_panes(operator) == []
    operator.add_message(table([*new_messages((9, "a", 3), partition=1), *new_messages((1, "a", 4))]))
    assert [row[:5] for row in new_panes(operator)] == [("a", 0, 0, 1, [1, 4]), ("a", 1, 5, 9, [2, 3])]


def test_overlapping_windows_end_with_every_step_from_the_first_message_on():
    operator = operator_of(hopping_key_rows(4, 2))
    operator.add_message(table(new_messages(*((offset, "a", offset) for offset in range(7)))))
    assert [row[4] for row in new_panes(operator)] == [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5]]
    operator.finish()
    assert [row[4] for row in new_panes(operator)] == [[4, 5, 6], [6]]


def test_a_message_between_two_windows_comes_back():
    operator = operator_of(hopping_key_rows(1, 3))
    operator.add_message(table(new_messages(*((offset, "a", offset) for offset in range(5)))))
    rejected = operator.get_rejected()
    assert (rejected["offset"].to_pylist(), set(rejected["reason"].to_pylist())) == ([1, 2, 4], {"between windows"})
    assert [row[4] for row in new_panes(operator)] == [[0], [3]]


def test_beyond_a_limit_the_keys_whose_messages_lie_farthest_behind_go_and_begin_anew():
    operator = operator_of(tumbling_key_rows(3), retention=Retention(max_messages=3))
    operator.add_message(table(new_messages((0, "a", 1), (1, "a", 2), (2, "b", 3), (3, "c", 4), (4, None, 5))))
    assert new_panes(operator) == [("a", 0, 0, 1, [1, 2], "early", True)]
    assert (operator.counts.dropped_windows, operator.counts.dropped_messages) == (1, 2)
    operator.add_message(table(new_messages((5, "a", 6), (6, "b", 7), (7, "b", 8))))
    assert new_panes(operator)[0] == ("b", 0, 2, 7, [3, 7, 8], "on_time", False)
    assert operator.oldest_offsets() == {("t", 0): 0}
    assert operator.next_offsets() == {("t", 0): 8}


def test_an_overlap_of_the_most_windows_is_accepted():
    assert plan_of(hopping_key_rows(2_000_000, 2)).kind == KeyRowWindow(2_000_000, 2)


def test_a_key_between_two_windows_keeps_its_count_whatever_the_limits():
    operator = operator_of(hopping_key_rows(1, 3), retention=Retention(max_messages=1, max_bytes=1))
    operator.add_message(table(new_messages(*((key, f"{key}", key) for key in range(50)))))
    operator.flush()
    assert operator.get_messages(0, 10**6).num_rows == 0
    operator.add_message(table(new_messages(*((50 + key, f"{key}", key) for key in range(50)))))
    assert operator.get_rejected()["reason"].to_pylist() == ["between windows"] * 50


def test_closed_windows_leave_nothing_behind():
    store = MemoryStore(limits=SMALL)
    operator = WindowOperator(plan_of(tumbling_key_rows(2)), store)
    for key in range(200):
        operator.add_message(table(new_messages((2 * key, f"{key}", 1), (2 * key + 1, f"{key}", 2))))
        assert operator.flush().num_rows == 1
        assert set(store.blobs) <= {MANIFEST, "open-keys"}  # a log of few rows may wait
        assert sum(store.sizes.values()) < 5_000


def test_a_store_that_was_lost_is_made_anew_from_the_first_offset_since_places_are_counted_from_there():
    messages = random_messages(3, 60)
    before, again = operator_of(tumbling_key_rows(3)), operator_of(tumbling_key_rows(3))
    before.add_message(table(messages))
    oldest = before.oldest_offsets()
    again.add_message(table([one for one in messages if one.offset >= oldest[one[3:5]]]))
    assert again.get_messages(0, 10**6) == before.get_messages(0, 10**6)
    assert again.get_result() == before.get_result()
    assert before.get_result().num_rows > 5


INVALID_PLANS = {
    "early panes": (lambda: plan_of(KeyRowWindow(2, 2), early=Early(rows=1)), "messages show one pane"),
    "late panes": (lambda: plan_of(KeyRowWindow(2, 2), late_rows=3), "messages show one pane"),
    "a number of windows": (
        lambda: plan_of(KeyRowWindow(2, 2), retention=Retention(max_windows=3)), "give max_messages or max_bytes, not"),
    "a time": (lambda: plan_of(KeyRowWindow(2, 2), retention=Retention(time_ms=3)), "kept by number, not by time"),
    "no rows": (lambda: tumbling_key_rows(0), "the size of a window of rows is 0, it must be from 1 to"),
    "more windows than can be shown": (
        lambda: plan_of(hopping_key_rows(1_000_001, 1)),
        "a message would lie in 1000001 windows, each with a result of its own, and at most 1000000 are possible",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "sentence"), INVALID_PLANS.values(), ids=INVALID_PLANS)
def test_a_plan_that_cannot_run_is_refused_where_it_is_written(build, sentence):
    with pytest.raises(OptionError, match=sentence):
        build()


def test_the_state_of_windows_of_offsets_is_not_that_of_windows_of_a_keys_messages():
    store = MemoryStore()
    operator = WindowOperator(plan_of(tumbling_key_rows(3), aggregates=(("n", median("n")),)), store)
    operator.add_message(table(new_messages((1, "a", 1))))
    operator.flush()
    with pytest.raises(FormatError, match="windows, by, aggregates"):
        WindowOperator(plan_of(tumbling_rows(3), aggregates=(("n", median("n")),)), store)
