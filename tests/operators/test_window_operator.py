"""The standalone operator: its calls, its limits, rows by offset, panes by the clock, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import tumbling
from keyedwm.operators.messages.functions import median, quantile, window_function
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import (
    CompletedBy,
    HoppingWindow,
    hopping,
    hopping_rows,
    tumbling_key_rows,
    tumbling_rows,
)
from keyedwm.operators.panes import EveryBy
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.stored import KEEP_ALL, Message, plan_of, table

BY_DAY = Retention(time_ms=86_400_000)


def messages(*rows: tuple, partition: int = 0) -> pa.Table:
    """Of (offset, event time, n), all of key k."""
    return table([Message("k", n, time, "t", partition, offset) for offset, time, n in rows])


def operator_of(window, *aggregates, **settings) -> WindowOperator:
    return WindowOperator(plan_of(window, aggregates=aggregates, **settings))


def results(operator: WindowOperator, *names: str) -> list[tuple]:
    """Start of the window in ms (or its first offset), the timing, and these columns."""
    panes = []
    for row in operator.flush().to_pylist():
        first = next(iter(row["window"].values()))
        start = first if isinstance(first, int) else round(first.timestamp() * 1000)
        panes.append((start, row["pane"]["timing"], *(row[name] for name in names)))
    return panes


def test_a_late_message_inside_the_retention_updates_the_median_of_its_window():
    operator = operator_of(tumbling(10), ("median", median("n")), retention=Retention(time_ms=20))
    operator.add_message(messages((0, 1, 5), (1, 2, 1), (2, 3, 9), (3, 11, 7)))
    operator.watermark(10)
    assert results(operator, "median") == [(0, "on_time", 5.0)]
    operator.add_message(messages((4, 4, 2)))
    assert results(operator, "median") == [(0, "late", 3.5)]
    operator.watermark(30)
    assert results(operator, "median") == [(10, "on_time", 7.0)]
    operator.add_message(messages((5, 9, 2), (6, 10, 3)))
    assert operator.get_rejected().to_pylist() == [
        {**messages((5, 9, 2)).to_pylist()[0], "reason": "outside the retention"}
    ]
    assert results(operator, "median") == [(10, "late", 5.0)]


@pytest.mark.parametrize("q", [0, 0.1, 0.5, 0.99, 1])
def test_quantiles_interpolate_between_neighbours_and_leave_nulls_out(q):
    plan = StorePlan(
        schema=pa.schema([*table([]).schema, ("x", pa.float64())]), by=("k",), window=tumbling(10),
        aggregates=(("q", quantile("x", q)), ("values", agg.count("x"))), retention=KEEP_ALL,
    )  # fmt: skip
    groups = {"a": [3.0, None, 1.0, 2.0, 9.5], "b": [None, None], "c": [4.0]}
    rows = [(key, value) for key, values in groups.items() for value in values]
    message_rows = table([Message(key, 0, 1, "t", 0, at) for at, (key, _) in enumerate(rows)])
    operator = WindowOperator(plan)
    operator.add_message(message_rows.append_column("x", pa.array([value for _, value in rows], pa.float64())))
    operator.finish()
    quantiles = {row["k"]: row["q"] for row in operator.get_result().to_pylist()}
    for key, values in groups.items():
        known = sorted(value for value in values if value is not None)
        place = q * (len(known) - 1)
        low = int(place)
        expected_quantile = None
        if known:
            expected_quantile = known[low] + (place - low) * (known[min(low + 1, len(known) - 1)] - known[low])
        assert quantiles[key] == (None if expected_quantile is None else pytest.approx(expected_quantile))


def test_a_function_of_ones_own_is_given_the_arrow_table_of_each_window_in_order():
    spread = window_function(lambda rows: rows["n"][-1].as_py() - rows["n"][0].as_py(), pa.int64())
    operator = operator_of(tumbling(10), ("spread", spread), ("rows", agg.count()), ("last", agg.last("n")))
    operator.add_message(messages((0, 8, 5), (1, 2, 1), (2, 5, 90)))
    operator.watermark(10)
    assert results(operator, "spread", "rows", "last") == [(0, "on_time", 4, 3, 5)]


def test_results_stay_until_flush_and_asking_twice_says_the_same():
    operator = operator_of(tumbling(10), ("n", agg.sum("n")))
    operator.add_message(messages((0, 1, 5)))
    operator.watermark(10)
    operator.add_message(table([Message("k", 0, None, "t", 0, 1)]))
    assert operator.get_result() == operator.get_result()
    assert (operator.get_result().num_rows, operator.get_rejected()["reason"].to_pylist()) == (1, ["no event time"])
    operator.flush()
    assert (operator.get_result().num_rows, operator.get_rejected().num_rows) == (0, 0)


def test_a_program_that_dies_before_flush_is_given_the_same_records_and_says_the_same_again():
    store, plan = MemoryStore(), plan_of(tumbling(10), aggregates=(("n", agg.sum("n")),))
    operator = WindowOperator(plan, store)
    operator.add_message(messages((0, 1, 5)))
    operator.flush()
    assert operator.next_offsets() == {("t", 0): 1}
    for _ in range(2):
        operator = WindowOperator(plan, store)
        operator.add_message(messages((0, 1, 5), (1, 2, 7), (2, 12, 1)))
        operator.watermark(10)
        assert [row["n"] for row in operator.get_result().to_pylist()] == [12]
    assert (operator.counts.given, operator.counts.replayed, operator.counts.taken) == (4, 1, 3)


def test_a_store_that_was_lost_is_made_anew_from_the_oldest_offset_of_what_it_held():
    plan = plan_of(tumbling(10), aggregates=(("n", agg.sum("n")),), retention=Retention(time_ms=10))
    log = [(0, 1, 5), (1, 12, 1), (2, 25, 2), (3, 17, 4), (4, 28, 8)]
    operator = WindowOperator(plan)
    operator.add_message(messages(*log))
    operator.watermark(21)
    assert operator.oldest_offsets() == {("t", 0): 1}
    again = WindowOperator(plan)
    again.add_message(messages(*log[1:]))
    again.watermark(21)
    for one in (operator, again):
        one.flush()
        one.add_message(messages((5, 15, 16)))
        one.watermark(40)
    assert again.get_result() == operator.get_result()
    assert again.get_messages(0, 99) == operator.get_messages(0, 99)


def test_windows_are_listed_by_channel_and_by_key_from_their_offsets():
    operator = operator_of(hopping(10, 5), ("rows", agg.count()))
    operator.add_message(messages((7, 6, 1), (8, 12, 1)))
    operator.add_message(messages((3, 7, 1), partition=1))
    operator.watermark(10)
    for by_key in (False, True):
        windows = operator.get_windows(0, 9, by_key=by_key).to_pylist()
        assert [
            (row["start"], row["end"], row["partition"], row["first_offset"], row["last_offset"], row["messages"])
            for row in windows
        ] == [(0, 10, 0, 7, 7, 1), (0, 10, 1, 3, 3, 1), (5, 15, 0, 7, 8, 2), (5, 15, 1, 3, 3, 1)]
        assert [row["is_complete"] for row in windows] == [True, True, False, False]
        assert [row.get("k") for row in windows] == ["k" if by_key else None] * 4
    assert sorted(operator.get_windows(10, 11)["start"].unique().to_pylist()) == [5, 10]
    assert operator.get_windows(20, 90)["start"].to_pylist() == []


def test_messages_are_read_by_range_join_keys_key_or_both():
    operator = operator_of(tumbling(10), ("rows", agg.count()))
    operator.add_message(
        table([Message("xy"[at % 2], at % 3, time, "t", 0, at) for at, time in enumerate([100, 90, 100, 110, 100])])
    )

    def offsets(*edges, **forms):
        return operator.get_messages(*edges, **forms)["offset"].to_pylist()

    assert offsets(90, 110) == [1, 0, 2, 4, 3]
    assert offsets((100, 1), (110, 3)) == [2, 4, 3]
    assert offsets((90, 0), (100, 2)) == [1, 0, 2]
    assert offsets(90, 110, key={"k": "x"}) == [0, 2, 4]
    assert offsets(90, 110, join_keys={"n": 0}) == [0, 3]
    assert offsets(90, 110, join_keys={"n": 0}, key={"k": "y"}) == [3]
    with pytest.raises(OptionError, match="'n' is no by column, they are k"):
        offsets(90, 110, key={"n": 0})
    with pytest.raises(OptionError, match="messages have no column 'm', they have k, n, "):
        offsets(90, 110, join_keys={"m": 0})


# Rows


@pytest.mark.parametrize("window", [tumbling_rows(4), tumbling_key_rows(4)], ids=str)
def test_a_trend_over_windows_of_rows_goes_by_event_times_and_a_list_by_offsets(window):
    operator = operator_of(window, ("rise", agg.linear_trend("n")), ("all", agg.collect("n")))
    times = (4_000, None, 1_000, 2_000)  # the value of a row is its second
    operator.add_message(table([Message("x", (ms or 0) // 1_000, ms, "a", 0, at) for at, ms in enumerate(times)]))
    (row,) = operator.flush().to_pylist()
    assert (round(row["rise"], 12), row["all"]) == (1.0, [4, 0, 1, 2])


def test_a_window_of_rows_is_complete_with_its_last_offset_or_with_the_first_message_behind_it():
    for full, third, fourth in (
        (CompletedBy.WATERMARK, [(5, "on_time", 6)], []),
        (CompletedBy.MESSAGE, [], [(5, "on_time", 6)]),
    ):
        operator = operator_of(tumbling_rows(3), ("n", agg.sum("n")), by=(), full=full)
        operator.add_message(messages((5, 9, 1), (6, 3, 2)))
        assert results(operator, "n") == []
        operator.add_message(messages((7, None, 3)))
        assert results(operator, "n") == third
        operator.add_message(messages((8, 1, 4)))
        assert results(operator, "n") == fourth


def test_offsets_that_are_no_messages_count_and_each_channel_has_windows_of_its_own():
    operator = operator_of(hopping_rows(4, 2), ("offsets", agg.collect("offset")), by=("k",))
    operator.add_message(messages((0, 1, 1), (3, 1, 1)))  # 1 and 2 are a marker and a compacted record
    operator.add_message(messages((10, 1, 1), (11, 1, 1), (15, 1, 1), partition=1))
    result_rows = operator.flush().to_pylist()
    assert [(row["partition"], *row["window"].values(), row["offsets"]) for row in result_rows] == [
        (0, 0, 3, [0, 3]),
        (1, 10, 13, [10, 11]),
        (1, 12, 15, [15]),
    ]


def test_windows_of_rows_are_kept_by_number():
    operator = operator_of(tumbling_rows(1), ("rows", agg.count()), by=(), retention=Retention(max_windows=2))
    operator.add_message(messages(*((offset, 100 - offset, 1) for offset in range(1, 6))))
    assert len(results(operator)) == 5
    assert operator.get_messages(0, 9)["offset"].to_pylist() == [4, 5]
    assert (operator.counts.dropped_windows, operator.counts.dropped_messages) == (3, 3)


# Limits of size


def test_beyond_its_limits_a_store_drops_whole_windows_and_says_how_much():
    each = 1 + 4 + 8 + 8 + 1 + 4 + 4 + 8  # k and its length, n, time, topic and its length, partition, offset
    for limit in (Retention(max_messages=3), Retention(max_bytes=3 * each), Retention(max_windows=2)):
        operator = operator_of(tumbling(10), ("rows", agg.count()), retention=limit)
        operator.add_message(messages((0, 1, 1), (1, 2, 1), (2, 11, 1), (3, 21, 1), (4, 22, 1)))
        assert results(operator, "rows") == [(0, "early", 2)]
        counts = operator.counts
        assert (counts.dropped_windows, counts.dropped_messages, counts.dropped_bytes) == (1, 2, 2 * each)
        operator.add_message(messages((5, 3, 1)))
        assert operator.get_rejected()["reason"].to_pylist() == ["outside the retention"]
        operator.watermark(30)
        assert results(operator, "rows") == [(10, "on_time", 1), (20, "on_time", 2)]


def test_the_last_pane_of_an_open_window_that_must_go_says_that_it_is_the_last():
    operator = operator_of(tumbling(10), ("rows", agg.count()), retention=Retention(max_windows=1))
    operator.add_message(messages((0, 1, 1), (1, 11, 1)))
    assert [row["pane"] for row in operator.flush().to_pylist()] == [{"timing": "early", "index": 0, "last": True}]
    operator.watermark(10)
    assert results(operator) == []


# State


def test_a_late_message_reads_the_slices_of_its_windows_and_no_other():
    read = []

    class Counting(MemoryStore):
        def get(self, name: str) -> bytes:
            read.append(name)
            return super().get(name)

    store, plan = Counting(), plan_of(hopping(20, 10), aggregates=(("n", agg.sum("n")),), retention=BY_DAY)
    operator = WindowOperator(plan, store)
    operator.add_message(messages(*((at, at * 10, 1) for at in range(50))))
    operator.watermark(10_000)
    operator.flush()
    operator = WindowOperator(plan, store)
    read.clear()
    operator.add_message(messages((50, 255, 4)))
    assert results(operator, "n") == [(240, "late", 6), (250, "late", 6)]
    assert sorted(name for name in read if name.startswith("messages")) == [
        "messages-0-240", "messages-0-250", "messages-0-260",
    ]  # fmt: skip


def test_a_message_is_held_in_little_more_than_its_arrow_size():
    operator = operator_of(tumbling(10_000), ("rows", agg.count()))
    message_rows = messages(*((at, at, at) for at in range(20_000)))
    for start in range(0, 20_000, 500):
        operator.add_message(message_rows.slice(start, 500))
        operator.flush()
    assert sum(operator.store.sizes.values()) < 1.3 * message_rows.nbytes


def test_state_of_another_plan_or_version_is_refused():
    store = MemoryStore()
    WindowOperator(plan_of(tumbling(10)), store).flush()
    with pytest.raises(FormatError, match="the window store belongs to plan"):
        WindowOperator(plan_of(tumbling(20)), store)
    WindowOperator(plan_of(tumbling(10), retention=Retention(max_windows=3)), store)  # limits may change
    for blob, sentence in ((b"{", "is not JSON"), (b'{"version": 99}', "of version 99, this keyedwm reads 3")):
        store.blobs["note"] = blob
        with pytest.raises(FormatError, match=sentence):
            WindowOperator(plan_of(tumbling(10)), store)
    del store.blobs["note"]
    store.blobs["slices-0"] = b""
    with pytest.raises(FormatError, match="holds slices-0, but no note"):
        WindowOperator(plan_of(tumbling(10)), store)


# Bad input

INVALID_PLANS = {
    "a retention shorter than the window": (
        lambda: plan_of(tumbling(60_000), retention=Retention(time_ms=1_000)),
        "the retention of 1 second is shorter than the window of 1 minute; give at least that",
    ),
    "no limit": (Retention, "a store without a limit would keep every message for ever"),
    "a limit of nothing": (lambda: Retention(max_windows=0), "the max_windows of a store is 0, it must be 1 or more"),
    "rows kept by time": (lambda: plan_of(tumbling_rows(3), retention=BY_DAY), "windows of rows are kept by number"),
    "no rows": (lambda: tumbling_rows(0), "the size of a window of rows is 0, it must be from 1 to"),
    "a step beyond all offsets": (lambda: hopping_rows(3, 10**30), "it must be from 1 to 4503599627370496"),
    "more windows than can be shown": (
        lambda: plan_of(hopping(86_400_000, 1)),
        "a message would lie in 86400000 windows, each with a result of its own, and at most 1000000 are possible",
    ),
    "a topic that is a number": (lambda: plan_of(tumbling(10), topic="n"), "'n' is of type int64: a topic is a text"),
    "no step": (lambda: hopping(10, 0), "the step of a window is 0 ms, it must be 1 or more"),
    "an offset beyond the step": (lambda: HoppingWindow(10, 5, 5), "the offset of a window is 5 ms"),
    "no such column": (lambda: plan_of(tumbling(10), by=("z",)), "the input has no column 'z'"),
    "a result of a taken name": (
        lambda: plan_of(tumbling(10), aggregates=(("pane", agg.count()),)), "a result column cannot be called 'pane'"),
    "a share of 2": (lambda: quantile("n", 2), r"quantile\('n', 2\): a share from 0 to 1 is expected"),
    "a median of text": (
        lambda: plan_of(tumbling(10), aggregates=(("m", median("k")),)), "median or quantile of 'k' needs whole"),
    "no aggregate": (lambda: plan_of(tumbling(10), aggregates=(("m", 3),)), "3 is no aggregate"),
    "an offset that is a text": (lambda: plan_of(tumbling(10), offset="k"), "the column 'k' is of type string"),
    "event time without an interval": (
        lambda: plan_of(tumbling(10), late_by=EveryBy.EVENT), "late panes by event time need an interval"),
    "event time of rows": (
        lambda: plan_of(tumbling_rows(3), late_by=EveryBy.EVENT, late_every_ms=5), "of rows have no event time"),
    "late panes every 0 ms": (lambda: plan_of(tumbling(10), late_every_ms=0), "late panes every 0 ms"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "sentence"), INVALID_PLANS.values(), ids=INVALID_PLANS)
def test_a_plan_that_cannot_run_is_refused_where_it_is_written(build, sentence):
    with pytest.raises(OptionError, match=sentence):
        build()


def test_messages_without_a_column_or_an_offset_are_refused_and_change_nothing():
    operator = operator_of(tumbling(10), ("rows", agg.count()))
    with pytest.raises(InputError, match="the messages have no column 'offset', they have k, n, "):
        operator.add_message(messages((0, 1, 1)).drop_columns(["offset"]))
    with pytest.raises(InputError, match="1 of 1 messages have no offset"):
        operator.add_message(table([Message("k", 1, 1, "t", 0, None)]))
    with pytest.raises(InputError, match="farther from 1970 than"):
        operator.add_message(messages((0, 2**60, 1)))
    assert operator.counts.taken == 0
