"""Joins of windows: the worked examples row by row, a model over any input and cut, waiting, limits, refused plans."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from keyedwm.core.errors import DamagedError, FormatError, InputError, OptionError
from keyedwm.operators.frames.plan import SlidingWindow, tumbling
from keyedwm.operators.messages.join.plan import Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import (
    CompletedBy,
    HoppingWindow,
    RowWindow,
    hopping,
    hopping_rows,
    tumbling_rows,
)
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin
from tests.operators.stored import KEEP_ALL, SCHEMA, Message, table
from tests.operators.window_joins import NAMES, Model, PlayedWindowJoin, as_table, plan_of, recut, steps
from tests.seeds import seeds

WINDOWS = (HoppingWindow(10, 10), HoppingWindow(10, 3, 2), HoppingWindow(4, 10, 1), SlidingWindow(12, 4, 1))
ROWS = (RowWindow(4, 4), RowWindow(5, 3), RowWindow(2, 5))


def messages(*rows: tuple, partition: int = 0, k: str | None = "k") -> pa.Table:
    """Of (offset, event time)."""
    return table([Message(k, offset, time, "t", partition, offset) for offset, time in rows])


def new_pairs(operator: WindowJoin) -> list[tuple]:
    """Offsets of both sides, start of the window, timing."""
    pairs = []
    for row in operator.flush().to_pylist():
        start = next(iter(row["window"].values()))
        start = start if isinstance(start, int) else round(start.timestamp() * 1000)
        pairs.append((row["offset_left"], row["offset_right"], start, row["timing"]))
    return pairs


# The worked examples

MINUTE, NINE = 60_000, 32_400_000
ORDERS = (
    {"offset": 1, "value": 0, "id": 1, "time": NINE - 50_000, "arrives": NINE},
    {"offset": 2, "value": 5, "id": 3, "time": NINE, "arrives": NINE + 59_000},
    {"offset": 3, "value": 9, "id": 9, "time": NINE - 30_000, "arrives": NINE + 121_000},
)
SHIPMENTS = (
    {"offset": 1000, "cost": 0, "id": 3, "time": NINE + 10_000, "arrives": NINE},
    {"offset": 1001, "cost": 2, "id": 1, "time": NINE + 10_000, "arrives": NINE + 10_000},
    {"offset": 1002, "cost": 3, "id": 1, "time": NINE + 70_000, "arrives": NINE + 61_000},
    {"offset": 1003, "cost": 1, "id": 9, "time": NINE + 80_000, "arrives": NINE + 61_000},
)


def worked_plan(window) -> WindowJoinPlan:
    numbers = [("id", pa.int64()), ("time", pa.int64()), ("topic", pa.string()), ("partition", pa.int32()),
               ("offset", pa.int64())]  # fmt: skip
    orders, shipments = (
        WindowJoinSide(
            name=name, schema=pa.schema([*numbers, (own, pa.int64())]), on=("id",), time="time",
            unbounded=name == "shipments",
        )
        for name, own in (("orders", "value"), ("shipments", "cost"))
    )  # fmt: skip
    return WindowJoinPlan(left=orders, right=shipments, window=window, retention=KEEP_ALL, early_every_ms=MINUTE)


@pytest.mark.parametrize("window", [tumbling(2 * MINUTE, offset_ms=MINUTE), tumbling_rows(3)], ids=["time", "tuples"])
def test_the_worked_join_of_orders_and_shipments_comes_row_by_row_at_its_ticks(window):
    plan, store, rows_by_tick = worked_plan(window), MemoryStore(), {}
    arrivals = [(row["arrives"], "orders", row) for row in ORDERS] + [
        (row["arrives"], "shipments", row) for row in SHIPMENTS
    ]
    ticks = [(NINE + tick * MINUTE, "tick", None) for tick in (1, 2, 3)]
    operator = WindowJoin(plan, store)
    for now_ms, name, row in sorted([*arrivals, *ticks], key=lambda one: one[0]):
        if row is None:
            operator.timeout(now_ms)
        else:
            side = plan.sides[plan.number_of(name)]
            rows = pa.table([[{**row, "topic": name, "partition": 0}[one]] for one in side.schema.names], side.schema)
            operator.add_message(name, rows, now_ms)
        new_rows = operator.flush().to_pylist()
        rows_by_tick.setdefault((now_ms - NINE) // 1000, []).extend(
            (row["id"], row["value"], row["cost"]) for row in new_rows
        )
        operator = WindowJoin(plan, store)
    assert {tick: rows for tick, rows in rows_by_tick.items() if rows} == {
        60: [(3, 5, 0), (1, 0, 2)], 120: [(1, 0, 3)], 180: [(9, 9, 1)],
    }  # fmt: skip


# Any input, any cut, a restart after each step


def differential(seed: int, plan: WindowJoinPlan, count: int) -> int:
    """Play random messages at once, cut otherwise, and with waiting ones; return how many pairs there were."""
    all_steps, model, player = steps(seed, count), Model(plan), PlayedWindowJoin(plan)
    for name, side, argument in all_steps:
        before = len(model.pairs)
        getattr(model, name)(side, argument)
        assert sorted(player.step(name, side, as_table(name, argument))) == sorted(model.pairs[before:])
    for side in NAMES:
        assert sorted(player.rejected[side], key=str) == sorted(model.sides[side].rejected, key=str)
        counts = player.operator.counts(side)
        assert counts.given == counts.taken + counts.rejected + counts.replayed
        assert counts.rejected == len(model.sides[side].rejected)
    intervals = {"early_every_ms": 7} if plan.is_rows else {"early_every_ms": 7, "late_every_ms": 5}
    waiting, pairs = PlayedWindowJoin(replace(plan, **intervals)), []
    for at, (name, side, argument) in enumerate(recut(seed, all_steps)):
        clock = (3 * at,) if name == "add_message" else ()
        pairs += waiting.step(name, side, as_table(name, argument), *clock)
        pairs += waiting.step("timeout", 3 * at + 1)
    pairs += waiting.step("finish")
    assert sorted(one[:-1] for one in pairs) == sorted(one[:-1] for one in model.pairs)
    assert all(waiting.operator.counts(side).taken == player.operator.counts(side).taken for side in NAMES)
    return len(model.pairs)


@pytest.mark.parametrize("unbounded", ["", "left", "right"], ids=["both", "left unbounded", "right unbounded"])
@pytest.mark.parametrize("window", [*WINDOWS, *ROWS], ids=str)
def test_pairs_and_rejected_messages_are_those_of_the_model_for_any_input_and_cut(window, unbounded):
    place = [*WINDOWS, *ROWS].index(window) + 7 * ("", "left", "right").index(unbounded)
    pairs = 0
    for seed in seeds(1, first=place):
        keeps_all = isinstance(window, RowWindow) or (seed % 4 > 1 and not unbounded)
        retention = KEEP_ALL if keeps_all else Retention(time_ms=15)
        full = list(CompletedBy)[seed % 2]
        pairs += differential(seed, plan_of(window, unbounded=unbounded, full=full, retention=retention), 30)
    assert pairs


def test_what_both_sides_have_left_behind_is_not_held():
    operator = WindowJoin(plan_of(hopping(10, 5), retention=Retention(time_ms=10)))
    for side in NAMES:
        operator.add_message(side, messages(*((at, at * 5) for at in range(20))))
    operator.flush()
    operator.watermark("left", 90)
    operator.flush()
    blob_counts = [sum(name.startswith(f"messages-{side}-") for name in operator.store.blobs) for side in (0, 1)]
    assert blob_counts == [20, 6]  # one of 70 may still meet a left one of 75, which [75, 85) takes
    operator.watermark("right", 90)
    operator.flush()
    blob_counts = [sum(name.startswith(f"messages-{side}-") for name in operator.store.blobs) for side in (0, 1)]
    assert blob_counts == [6, 6]
    assert (operator.counts("left").expired, operator.counts("right").expired) == (14, 14)


def test_a_message_reads_the_slices_that_its_windows_reach_and_no_other():
    read = []

    class Counting(MemoryStore):
        def get(self, name: str) -> bytes:
            read.append(name)
            return super().get(name)

    store, plan = Counting(), plan_of(tumbling(10))
    operator = WindowJoin(plan, store)
    operator.add_message("right", messages(*((at, at * 10) for at in range(50))))
    operator.flush()
    operator = WindowJoin(plan, store)
    read.clear()
    operator.add_message("left", messages((0, 255)))
    assert new_pairs(operator) == [(0, 25, 250, "early")]
    assert {name for name in read if name.startswith("messages")} <= {f"messages-1-{at}" for at in (240, 250, 260)}


def test_null_equals_nothing_and_floats_are_equal_as_spark_compares_them():
    schema = pa.schema([*SCHEMA, ("x", pa.float64())])
    sides = {name: WindowJoinSide(name=name, schema=schema, on=("k", "x")) for name in NAMES}
    operator = WindowJoin(WindowJoinPlan(**sides, window=tumbling(10), retention=KEEP_ALL))
    keys = [("a", 0.0), ("a", float("nan")), ("a", None), (None, 1.0), ("b", 0.0)]
    for side, sign in zip(NAMES, (1, -1), strict=True):
        rows = table([Message(k, 0, 1, "t", 0, at) for at, (k, _) in enumerate(keys)])
        column = pa.array([None if number is None else sign * number for _, number in keys], pa.float64())
        operator.add_message(side, rows.append_column("x", column))
    assert [one[:2] for one in new_pairs(operator)] == [(0, 0), (1, 1), (4, 4)]


# One row for each key and window


def test_the_first_or_the_last_of_each_side_are_joined_when_both_have_completed_the_window():
    for keep, expected_offsets in ((Keep.FIRST, (0, 1)), (Keep.LAST, (0, 0))):
        operator = WindowJoin(plan_of(tumbling(10_000), keep=keep))
        operator.add_message("left", messages((0, 0)))
        operator.add_message("right", messages((0, 2_000), (1, 1_000)))
        operator.watermark("left", 20_000)
        assert new_pairs(operator) == []
        operator.watermark("right", 10_000)
        assert new_pairs(operator) == [(*expected_offsets, 0, "on_time")]


def test_a_late_message_gives_the_row_of_its_window_again_if_it_changes_it():
    plan, store, outcomes = plan_of(hopping(10, 5), keep=Keep.LAST, retention=Retention(time_ms=10)), MemoryStore(), []
    for name, side, argument in (
        ("add_message", "left", messages((0, 7))), ("add_message", "right", messages((0, 8))),
        ("watermark", "left", 15), ("watermark", "right", 15), ("add_message", "right", messages((1, 6))),
        ("add_message", "right", messages((2, 9))), ("add_message", "left", messages((1, 3))),
        ("watermark", "left", 25), ("add_message", "right", messages((3, 9), (4, 9))),
    ):  # fmt: skip
        operator = WindowJoin(plan, store)
        getattr(operator, name)(side, argument)
        outcomes.append(new_pairs(operator))
    on_time = [(0, 0, 0, "on_time"), (0, 0, 5, "on_time")]
    late = [(0, 2, 0, "late"), (0, 2, 5, "late")]
    assert outcomes == [[], [], [], on_time, [], late, [], [], [(0, 4, 5, "late")]]  # [0, 10) is over


@pytest.mark.parametrize("keep", [Keep.FIRST, Keep.LAST], ids=lambda keep: keep.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_last_row_of_a_key_and_window_is_that_of_the_model_for_any_cut(window, keep):
    for seed in seeds(1, first=WINDOWS.index(window) + (keep is Keep.LAST)):
        plan = plan_of(window, full=list(CompletedBy)[seed % 2], keep=keep)
        all_steps, model, last = steps(seed, 60 if window.size_ms == 4 else 25), Model(plan), []
        for name, side, argument in all_steps:
            getattr(model, name)(side, argument)
        for again in (all_steps, recut(seed, all_steps)):
            player, pairs = PlayedWindowJoin(plan), []
            for name, side, argument in again:
                pairs += player.step(name, side, as_table(name, argument))
            pairs += player.step("finish")
            last.append({(key, row[6]): row[:6] for key, row in zip(player.keys, pairs, strict=True)})
        assert last[0] == last[1] == model.kept_rows(first=keep is Keep.FIRST)
        assert len(last[0]) > 1


@pytest.mark.parametrize("keep", list(Keep), ids=lambda keep: keep.value)
def test_a_side_that_is_far_ahead_loses_no_row_of_a_slow_one(keep):
    operator = WindowJoin(plan_of(tumbling(10), keep=keep, retention=Retention(time_ms=10)))
    operator.add_message("left", messages((0, 5)))
    operator.watermark("left", 100)
    operator.add_message("right", messages((0, 6)))
    operator.watermark("right", 10)
    assert [row[:3] for row in new_pairs(operator)] == [(0, 0, 0)]
    operator.watermark("right", 100)
    counts = operator.counts("left")
    assert (counts.taken, counts.expired) == (1, 1)


# Limits of size


@pytest.mark.parametrize(
    "limit", [Retention(max_messages=5), Retention(max_bytes=5 * 38), Retention(max_windows=2)], ids=str
)
def test_beyond_its_limits_a_join_drops_the_oldest_windows_and_says_how_much(limit):
    operator = WindowJoin(plan_of(tumbling(10), retention=limit))
    operator.add_message("left", messages((0, 1), (1, 2), (2, 11), (3, 21)))
    operator.add_message("right", messages((0, 11), (1, 22)))
    assert len(new_pairs(operator)) == 2
    counts = operator.counts("left")
    assert (counts.dropped_windows, counts.dropped_messages) == (1, 2)
    operator.add_message("left", messages((4, 3), (5, 12)))
    assert operator.get_rejected("left")["reason"].to_pylist() == ["outside the retention"]
    assert new_pairs(operator) == [(5, 0, 10, "early")]


def test_a_window_that_must_go_before_it_is_full_gives_its_row():
    operator = WindowJoin(plan_of(tumbling(10), keep=Keep.LAST, retention=Retention(max_windows=1)))
    operator.add_message("left", messages((0, 1), (1, 2)))
    operator.add_message("right", messages((0, 3), (1, 12)))
    assert new_pairs(operator) == [(1, 0, 0, "early")]
    operator.add_message("left", messages((2, 4)))
    operator.finish()
    assert new_pairs(operator) == []


def test_windows_of_rows_are_kept_by_number_for_each_partition():
    operator = WindowJoin(plan_of(tumbling_rows(2), unbounded="right", retention=Retention(max_windows=2)))
    operator.add_message("left", messages(*((at, 1) for at in range(10, 17))))
    operator.add_message("left", messages((5, 1), partition=1))
    operator.flush()
    operator.add_message("right", messages((0, 1)))
    assert new_pairs(operator) == [(5, 0, 5, "early"), (14, 0, 14, "early"), (15, 0, 14, "early"), (16, 0, 16, "early")]


# State and bad input


def test_state_of_another_join_is_refused_and_limits_may_change():
    store = MemoryStore()
    WindowJoin(plan_of(tumbling(10)), store).flush()
    for other in (
        plan_of(tumbling(20)),
        plan_of(tumbling(10), unbounded="left"),
        plan_of(tumbling(10), full=CompletedBy.MESSAGE),
    ):
        with pytest.raises(FormatError, match="the window join belongs to plan"):
            WindowJoin(other, store)
    WindowJoin(plan_of(tumbling(10), retention=Retention(max_windows=3)), store)
    store.blobs["note"] = b'{"version": 99}'
    with pytest.raises(FormatError, match="of version 99, this keyedwm reads 3"):
        WindowJoin(plan_of(tumbling(10)), store)


def test_a_program_that_dies_before_flush_is_given_the_same_records_and_says_the_same_again():
    store, plan = MemoryStore(), plan_of(tumbling(10))
    operator = WindowJoin(plan, store)
    operator.add_message("left", messages((0, 1)))
    operator.flush()
    assert (operator.next_offsets("left"), operator.next_offsets("right")) == ({("t", 0): 1}, {})
    for _ in range(2):
        operator = WindowJoin(plan, store)
        operator.add_message("left", messages((0, 1), (1, 2)))
        operator.add_message("right", messages((0, 3)))
        assert operator.get_result() == operator.get_result()
        assert operator.get_result()["offset_left"].to_pylist() == [0, 1]
    assert (operator.counts("left").given, operator.counts("left").replayed) == (3, 1)


def test_what_a_call_left_that_failed_halfway_is_never_written():
    store, plan = MemoryStore(), plan_of(tumbling(10))
    join = WindowJoin(plan, store)
    join.add_message("left", messages((0, 1)))
    join.flush()
    join, before = WindowJoin(plan, store), dict.fromkeys(store.blobs, b"")
    store.blobs.update(before)
    with pytest.raises(DamagedError):
        join.add_message("right", messages((0, 1)))
    for again in (join.flush, join.finish):
        with pytest.raises(InputError, match=r"an earlier call failed halfway \(DamagedError"):
            again()
    assert store.blobs == before


def side(**change) -> WindowJoinSide:
    return WindowJoinSide(**{"name": "left", "schema": SCHEMA, "on": ("k",), **change})


def with_left(**change) -> WindowJoinPlan:
    return replace(plan_of(tumbling(10)), left=side(**change))


LISTS = pa.schema([*SCHEMA, ("tags", pa.list_(pa.int64()))])
INVALID_PLANS = {
    "two unbounded sides": (
        lambda: replace(plan_of(tumbling(10), unbounded="right"), left=side(unbounded=True)),
        "left and right, are unbounded: one of them needs the windows"),
    "one row of rows": (
        lambda: plan_of(tumbling_rows(3), keep=Keep.FIRST), "keep='first' gives rows when a window of time is full"),
    "one row with an unbounded side": (
        lambda: plan_of(tumbling(10), keep=Keep.LAST, unbounded="left"), "no windows of rows, no unbounded side"),
    "one row at intervals": (lambda: plan_of(tumbling(10), keep=Keep.LAST, early_every_ms=5), "and no interval"),
    "two sides of one name": (lambda: with_left(name="right"), "both sides of a join are called 'right'"),
    "a side without a name": (lambda: side(name=""), "a side of a join has no name"),
    "no such column": (lambda: side(on=("z",)), "the input has no column 'z'"),
    "a list as key": (
        lambda: side(schema=LISTS, on=("tags",)), "'tags' of left is of type list.*cannot be joined on"),
    "as many columns": (lambda: with_left(on=("k", "n")), "left is joined on 2 columns and right on 1"),
    "unequal types": (lambda: with_left(on=("n",)), "'n' of left is of type int64 and 'k' of right of string: cast"),
    "a retention shorter than the window": (
        lambda: plan_of(tumbling(60_000), retention=Retention(time_ms=1_000)),
        "the retention of 1 second is shorter than the window of 1 minute; give at least that"),
    "rows kept by time": (
        lambda: plan_of(tumbling_rows(3), retention=Retention(time_ms=10)), "windows of rows are kept by number"),
    "late rows": (lambda: plan_of(hopping_rows(3, 1), late_every_ms=5), "messages never come late to windows of rows"),
    "every 0 ms": (lambda: plan_of(tumbling(10), early_every_ms=0), "early pairs every 0 ms: the interval must be 1"),
    "a taken name": (
        lambda: with_left(schema=pa.schema([*SCHEMA, ("timing", pa.string())])),
        "a column of a pair cannot be called 'timing'"),
    "a name twice": (
        lambda: with_left(schema=pa.schema([*SCHEMA, ("n_right", pa.string())])),
        "a pair would have two columns called 'n_right'"),
    "an offset that is a text": (lambda: side(offset="k"), "the column 'k' is of type string"),
    "a time that is a text": (lambda: side(time="k"), "the event-time column 'k' is of type string"),
    "no such side": (
        lambda: WindowJoin(plan_of(tumbling(10))).watermark("orders", 1),
        "the join has no side 'orders', it has left and right"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "sentence"), INVALID_PLANS.values(), ids=INVALID_PLANS)
def test_a_join_that_cannot_run_is_refused_where_it_is_written(build, sentence):
    with pytest.raises(OptionError, match=sentence):
        build()


def test_messages_without_a_column_or_of_impossible_times_are_refused_and_change_nothing():
    operator = WindowJoin(plan_of(tumbling(10)))
    with pytest.raises(InputError, match="the messages have no column 'offset', they have k, n, "):
        operator.add_message("left", messages((0, 1)).drop_columns(["offset"]))
    with pytest.raises(InputError, match="1 of 1 messages have no offset"):
        operator.add_message("left", table([Message("k", 1, 1, "t", 0, None)]))
    with pytest.raises(InputError, match="farther from 1970 than"):
        operator.add_message("left", messages((0, 2**60)))
    assert operator.counts("left").given == 0
