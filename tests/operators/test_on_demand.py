"""Windows that messages open: what they hold follows from the messages, whatever their order and the cut."""

from __future__ import annotations

import random
from functools import partial

import pytest

from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.core.rows import REJECTED
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.messages.driver import message_operator
from keyedwm.operators.messages.join.plan import WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.on_demand import OnDemandWindow, on_demand
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow
from keyedwm.operators.panes import Early
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators import stored
from tests.operators.laws.kinds import ON_DEMAND as WINDOWS
from tests.operators.laws.laws import mixed
from tests.operators.laws.small import SMALL
from tests.operators.stored import (
    KEEP_ALL,
    SCHEMA,
    Message,
    Restarted,
    messages_of,
    panes_of,
    plan_of,
    random_messages,
    split_steps,
    table,
)
from tests.operators.test_store_buckets import Buckets, bucket_store
from tests.operators.test_store_output_law import play_batches as nothing_behind

RETENTION = Retention(time_ms=30)
TEN = on_demand(10, "n >= 6")

new_messages = partial(messages_of, "offset k n time")
new_panes = partial(panes_of, "k start n timing")


def operator_of(window=TEN, **settings) -> WindowOperator:
    return stored.operator_of(window, **{"retention": RETENTION, **settings})


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_order_of_arrival_changes_no_window_and_nothing_that_is_given_back(window):
    messages, outcomes = random_messages(7, 120), []
    for seed in range(2):
        player = Restarted(plan_of(window, retention=Retention(time_ms=1_000)))
        steps = split_steps(seed, mixed(seed, messages), watermarks=False)
        for at, (name, piece) in enumerate(steps):
            player.step(name, table(piece))
            if seed % 2:  # so that most messages come late, also those that open windows
                player.step("watermark", 400 * at // len(steps))
        player.step("finish")
        outcomes.append(({pane[:3]: pane[3] for pane in player.results}, sorted(player.rejected, key=str)))
    assert outcomes == outcomes[:1] * 2
    assert len(outcomes[0][0]) > 10
    assert {reason for _, reason in outcomes[0][1]} == {"no event time", "between windows"}


def test_a_message_opens_a_window_of_its_key_that_begins_with_it_and_others_only_fall_into_it():
    operator = operator_of()
    operator.add_message(
        table(new_messages((0, "a", 1, 4), (1, "a", 9, 5), (2, "a", 2, 14), (3, "a", 3, 15), (4, "b", 4, 8)))
    )
    operator.watermark(14)
    assert new_panes(operator) == []
    operator.watermark(15)
    assert new_panes(operator) == [("a", 5, [9, 2], "on_time")]


def test_a_message_that_opens_a_window_inside_of_another_is_in_both():
    operator = operator_of()
    operator.add_message(
        table(new_messages((0, "a", 6, 0), (1, "a", 7, 4), (2, "a", 1, 9), (3, "a", 2, 12), (4, "a", 8, 4)))
    )
    operator.watermark(100)
    assert new_panes(operator) == [("a", 0, [6, 7, 8, 1], "on_time"), ("a", 4, [7, 8, 1, 2], "on_time")]


def test_a_late_message_opens_a_window_with_the_messages_that_waited_for_it():
    operator = operator_of()
    operator.add_message(table(new_messages((0, "a", 1, 3), (1, "a", 2, 11))))
    operator.watermark(40)
    assert new_panes(operator) == []
    operator.add_message(table(new_messages((2, "a", 9, 2))))
    assert new_panes(operator) == [("a", 2, [9, 1, 2], "late")]
    operator.add_message(table(new_messages((3, "a", 3, 5), (4, "b", 3, 5))))
    assert new_panes(operator) == [("a", 2, [9, 1, 3, 2], "late")]


def test_a_message_in_no_window_comes_back_when_none_can_be_opened_for_it_any_more():
    operator = operator_of()
    operator.add_message(table(new_messages((0, "a", 1, 3), (1, "a", 9, 5), (2, "b", 2, 6))))
    operator.watermark(57)
    assert operator.get_rejected().num_rows == 0
    assert operator.counts.taken == 3
    operator.watermark(58)
    assert [(row["offset"], row["reason"]) for row in operator.get_rejected().to_pylist()] == [
        (0, "between windows"), (2, "between windows"),
    ]  # fmt: skip
    counts = operator.counts
    assert (counts.given, counts.taken, counts.rejected, counts.expired) == (3, 1, 2, 1)


def test_a_message_is_taken_until_the_window_that_it_could_open_would_be_gone():
    operator = operator_of()
    operator.watermark(45)
    operator.add_message(table(new_messages((0, "a", 9, 6), (1, "a", 9, 5))))
    assert [(row["offset"], row["reason"]) for row in operator.get_rejected().to_pylist()] == [
        (1, "outside the retention")
    ]
    assert new_panes(operator) == [("a", 6, [9], "late")]


def test_windows_that_are_gone_leave_nothing_behind():
    store = MemoryStore(limits=SMALL)
    operator = operator_of(store=store)
    for at in range(200):
        operator.add_message(
            table(new_messages((2 * at, f"{at}", 9, 100 * at), (2 * at + 1, f"{at}", 1, 100 * at + 50)))
        )
        operator.watermark(100 * at + 60)
        assert len(new_panes(operator)) == 1
        assert sum(store.sizes.values()) < 20_000
    operator.watermark(10**6)
    operator.flush()
    assert set(store.blobs) == {MANIFEST}
    assert operator.counts.expired == operator.counts.rejected == 200


class CountingStore(MemoryStore):
    def get(self, name: str) -> bytes:
        self.read.add(name)
        return super().get(name)


def test_a_late_message_reads_the_slices_of_its_windows_and_no_other():
    store = CountingStore()
    store.read = set()
    for at in range(0, 300, 10):
        operator = operator_of(store=store, retention=Retention(time_ms=1_000))
        operator.add_message(table(new_messages((at, "a", 9, at + 5))))
        operator.flush()
    operator.watermark(310)
    operator.flush()
    store.read.clear()
    operator = operator_of(store=store, retention=Retention(time_ms=1_000))
    operator.add_message(table(new_messages((301, "a", 1, 107))))
    assert new_panes(operator) == [("a", 105, [9, 1], "late")]
    assert {name for name in store.read if name.startswith("messages-")} == {"messages-0-100", "messages-0-110"}


def test_a_store_that_was_lost_is_made_anew_from_its_oldest_offset_and_a_watermark_a_size_lower():
    messages = random_messages(3, 90)
    before, again = operator_of(), operator_of()
    before.add_message(table(messages[:60]))
    before.watermark(60)
    again.watermark(50)
    oldest = before.oldest_offsets()
    again.add_message(table([one for one in messages[:60] if one.offset >= oldest[one[3:5]]]))
    again.watermark(60)
    assert min(oldest.values()) > 4
    listed_windows = again.get_windows(0, 10**6, by_key=True).to_pylist()
    assert listed_windows == before.get_windows(0, 10**6, by_key=True).to_pylist()
    assert len(listed_windows) > 10


def test_messages_are_grouped_without_by_columns_too():
    operator = operator_of(by=())
    operator.add_message(table(new_messages((0, "a", 9, 3), (1, "b", 1, 5))))
    operator.finish()
    assert operator.flush()["n"].to_pylist() == [[9, 1]]


def test_messages_that_wait_in_vain_do_not_end_a_query_and_without_emit_they_are_counted():
    for late in (LatePolicy.FAIL, LatePolicy.DROP):
        buckets = Buckets(bucket_store(TEN, late=late, retention=RETENTION), 1)
        assert buckets.batch(new_messages((0, "a", 1, 3)), 1_000) == ([], [])
        assert buckets.batch([], 2_000) == ([], [])
        assert buckets.counts()["rejected"] == 1
        assert REJECTED not in buckets.plan.result_schema.names


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_no_pane_is_behind_the_watermark_that_was_passed_on(window, seed):
    plan = plan_of(OnDemandWindow(window.size_ms, "n >= 1"), retention=RETENTION)
    assert nothing_behind(message_operator(plan, MemoryStore()), f"{seed} {window}", 1) > 10


def test_windows_are_listed_by_their_keys_and_channels_and_say_whether_they_are_complete():
    operator = operator_of()
    rows = [Message("a", 9, 5, "t", 0, 3), Message("a", 1, 7, "t", 1, 8), Message("b", 8, 20, "t", 1, 9)]
    operator.add_message(table(rows))
    operator.watermark(15)
    listed_windows = operator.get_windows(0, 100).to_pylist()
    assert [tuple(one.values()) for one in listed_windows] == [
        (5, 15, "t", 0, 3, 3, 1, 38, True), (5, 15, "t", 1, 8, 8, 1, 38, True), (20, 30, "t", 1, 9, 9, 1, 38, False),
    ]  # fmt: skip
    assert operator.get_windows(16, 19).num_rows == 0
    assert operator.get_messages(6, 7)["offset"].to_pylist() == [8]


def test_a_condition_that_fails_leaves_the_operator_as_it_was():
    operator = operator_of(on_demand(10, f"n * {2**62} > 5"))
    with pytest.raises(InputError, match="on_demand: the condition 'n"):
        operator.add_message(table(new_messages((0, "a", 5, 3))))
    operator.add_message(table(new_messages((0, "a", 1, 3))))
    operator.finish()
    assert new_panes(operator) == [("a", 3, [1], "on_time")]


def join_of(window) -> WindowJoinPlan:
    sides = [WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in ("left", "right")]
    return WindowJoinPlan(left=sides[0], right=sides[1], window=window, retention=RETENTION)


INVALID_PLANS = {
    "no size": (lambda: on_demand(0, "n > 1"), "the size of a window is 0 ms, it must be 1 or more"),
    "a column that is not there": (
        lambda: operator_of(on_demand(9, "m > 1")), "on_demand: the condition 'm > 1' names a column 'm' that is not"),
    "no condition": (lambda: operator_of(on_demand(9, None)), "on_demand: condition=None: the text of a comparison"),
    "full by message": (
        lambda: operator_of(full=CompletedBy.MESSAGE),
        "windows on demand show panes when the watermark completes",
    ),
    "early panes": (lambda: operator_of(early=Early(rows=1)), "windows on demand show panes when"),
    "late panes": (lambda: operator_of(late_rows=2), "leave full, early and late panes out, and accumulating"),
    "what is new": (lambda: operator_of(accumulating=False), "windows on demand show panes when"),
    "no retention by time": (lambda: operator_of(retention=KEEP_ALL), "windows on demand hold every message as long"),
    "a limit of size": (
        lambda: operator_of(retention=Retention(time_ms=30, max_bytes=9)), "and no max_windows, max_messages or max_b"),
    "a short retention": (
        lambda: operator_of(retention=Retention(time_ms=9)), "the retention of 9 ms is shorter than the window of 10"),
    "a join": (lambda: join_of(TEN), "windows on demand are not joined: take windows of time or of rows"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "sentence"), INVALID_PLANS.values(), ids=INVALID_PLANS)
def test_a_plan_that_cannot_run_is_refused_where_it_is_written(build, sentence):
    with pytest.raises(OptionError, match=sentence):
        build()


@pytest.mark.parametrize("other", [on_demand(10, "n >= 7"), on_demand(11, "n >= 6"), HoppingWindow(10, 10)], ids=str)
def test_the_state_is_of_one_size_and_condition(other):
    store = MemoryStore()
    operator = operator_of(store=store)
    operator.add_message(table(new_messages((1, "a", 1, 5))))
    operator.flush()
    with pytest.raises(FormatError, match="windows, by, aggregates"):
        operator_of(other, store=store)


def test_a_message_that_comes_again_changes_nothing():
    operator = operator_of()
    messages = table(random.Random(1).sample(new_messages((0, "a", 9, 5), (1, "a", 1, 7), (2, "b", 9, 6)), 3))
    operator.add_message(messages)
    operator.watermark(20)
    assert len(new_panes(operator)) == 2
    operator.add_message(messages)
    assert (operator.flush().num_rows, operator.counts.replayed) == (0, 3)
