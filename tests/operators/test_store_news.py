"""Windows that keep their messages, with panes that hold what is new: together they tell each message once."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, tumbling
from keyedwm.operators.messages.functions import median, window_function
from keyedwm.operators.messages.message_plan import ARRIVAL
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.read_only_store import listed_store
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.store_description import describe
from keyedwm.operators.messages.windows import CompletedBy, hopping, hopping_rows
from keyedwm.operators.panes import Early
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators import streams
from tests.operators.stored import KEEP_ALL, SCHEMA, Message, pane_tuple, plan_of, random_messages, split_steps, table
from tests.operators.test_store_buckets import Buckets, bucket_store, rising

COUNT = (("rows", agg.count()), ("total", agg.sum("n")))


def message_table(*rows: tuple) -> pa.Table:
    """(offset, event time, n)"""
    return table([Message("k", n, time, "t", 0, offset) for offset, time, n in rows])


def new_panes(operator: WindowOperator) -> list[tuple]:
    return [(row["rows"], row["total"], row["pane"]["timing"], row["pane"]["index"])
            for row in operator.flush().to_pylist()]  # fmt: skip


def test_a_pane_holds_what_came_since_the_one_before_and_the_on_time_pane_comes_even_if_nothing_did():
    plan, store = plan_of(tumbling(10), aggregates=COUNT, early=Early(rows=2), accumulating=False), MemoryStore()
    panes = []
    for name, step in (
        ("add_message", message_table((0, 1, 1))),
        ("add_message", message_table((1, 5, 2))),
        ("add_message", message_table((2, 0, 4))),
        ("add_message", message_table((3, 3, 8))),
        ("watermark", 10),
        ("add_message", message_table((4, 2, 16))),
    ):
        operator = WindowOperator(plan, store)
        getattr(operator, name)(step)
        panes += new_panes(operator)
    assert panes == [(2, 3, "early", 0), (2, 12, "early", 1), (0, None, "on_time", 2), (1, 16, "late", 3)]


def test_what_waits_for_a_late_pane_is_told_once():
    settings = {"late_rows": 2, "retention": Retention(time_ms=20), "accumulating": False}
    operator = WindowOperator(plan_of(tumbling(10), aggregates=COUNT, **settings))
    operator.add_message(message_table((0, 1, 1)))
    operator.watermark(10)
    for one in ((1, 2, 2), (2, 3, 4), (3, 4, 8)):
        operator.add_message(message_table(one))
    operator.watermark(30)  # the window goes
    assert new_panes(operator) == [(1, 1, "on_time", 0), (2, 6, "late", 1), (1, 8, "late", 2)]


def test_early_panes_by_the_clock_say_nothing_without_news():
    operator = WindowOperator(
        plan_of(tumbling(10), aggregates=COUNT, early=Early(rows=1, every_ms=5), accumulating=False)
    )
    operator.add_message(message_table((0, 1, 1)), now_ms=0)
    operator.timeout(5)
    assert new_panes(operator) == [(1, 1, "early", 0)]


@pytest.mark.parametrize("full", CompletedBy, ids=lambda full: full.value)
@pytest.mark.parametrize("window", [hopping(10, 3), hopping_rows(5, 3)], ids=str)
def test_the_panes_of_a_window_tell_each_of_its_messages_once_whatever_the_cut(window, full, seed):
    messages, last = random_messages(f"{seed} {window}", 90), []
    for way in range(2):
        whole, new_records = Counter(), Counter()
        for accumulating, records in ((True, whole), (False, new_records)):
            settings = {"full": full, "early": Early(rows=2), "accumulating": accumulating}
            operator = WindowOperator(plan_of(window, **settings))
            for name, piece in split_steps(f"{seed} {way}", messages, watermarks=False):
                getattr(operator, name)(table(piece))
            operator.finish()
            for row in operator.get_result().to_pylist():
                start, end, key, texts, *_ = pane_tuple(row)
                place = start, end, key, row.get("topic"), row.get("partition")
                if accumulating:
                    records.update({(place, one): 1 - records[place, one] for one in texts.split()})
                else:
                    records.update((place, one) for one in (texts or "").split())
        assert new_records == whole
        last.append(new_records)
    assert last[0] == last[1]
    assert set(last[0].values()) == {1}
    assert len(last[0]) > 50


def test_buckets_tell_what_is_new_as_the_standalone_operator_does(seed):
    settings = {"retention": Retention(time_ms=15), "early": Early(rows=2), "accumulating": False}
    steps = rising(split_steps(f"{seed} new", random_messages(f"{seed} new", 90), watermarks=True))
    one_operator = WindowOperator(plan_of(hopping(10, 3), **settings))
    for name, piece in steps:
        getattr(one_operator, name)(table(piece) if name == "add_message" else piece)
    one_operator.watermark(-(10**9))
    panes, _ = Buckets(bucket_store(hopping(10, 3), **settings), 3, tasks=2, seed=seed).run(steps)
    assert Counter(panes) == Counter(pane_tuple(row) for row in one_operator.flush().to_pylist())
    assert {pane[4] for pane in panes} == {"early", "on_time", "late"}


EVERY = [
    agg.count(), agg.count("n"), agg.sum("n"), agg.avg("n"), agg.min("n"), agg.max("n"), agg.first("n"), agg.last("n"),
    agg.collect("n"), agg.approx_count_distinct("n"), agg.stddev("n"), agg.median("n"), agg.top_n(2, "n"),
    agg.map_agg("k", "n"), agg.count(where="n > 3"),
]  # fmt: skip


def test_an_aggregate_of_nothing_is_what_it_is_without_a_store():
    specs = tuple((f"c{number}", spec) for number, spec in enumerate(EVERY))
    names = [name for name, _ in specs]
    how = {"early": Early(rows=1), "accumulating": False}
    operator = WindowOperator(plan_of(tumbling(10), aggregates=specs, **how))
    operator.add_message(message_table((0, 1, 1)))
    operator.watermark(10)
    row = operator.get_result().to_pylist()[-1]
    plan = streams.plan_of(SlidingWindow(10, 10), aggregates=specs, **how)
    without = streams.Restarted(plan)
    without.take(combine_rows(plan, streams.table([streams.Event("k", 1, 1, None, None, 0)])))
    (expected_row,) = streams.rows_of(without.advance(10))
    assert [row[name] for name in names] == [expected_row[name] for name in names]
    assert (row["c0"], row["c2"]) == (0, None)


def test_a_median_of_nothing_is_null_and_a_function_is_not_called_for_it():
    aggregates = (("median", median("n")), ("first", window_function(lambda rows: rows["n"][0].as_py(), pa.int64())))
    operator = WindowOperator(plan_of(tumbling(10), aggregates=aggregates, early=Early(rows=1), accumulating=False))
    operator.add_message(message_table((0, 1, 7)))
    operator.watermark(10)
    assert [(row["median"], row["first"]) for row in operator.flush().to_pylist()] == [(7.0, 7), (None, None)]


def test_messages_are_given_back_with_their_own_columns_and_counted_by_these():
    outcomes, stores = [], (MemoryStore(), MemoryStore())
    for store, accumulating in zip(stores, (True, False), strict=True):
        operator = WindowOperator(plan_of(tumbling(10), accumulating=accumulating), store)
        operator.add_message(message_table((0, 1, 7), (1, None, 3), (2, 2, 3)))
        operator.flush()
        listed_messages = listed_store(describe(operator.plan), store).messages()
        windows = [operator.get_windows(0, 9, by_key=by_key).to_pylist() for by_key in (True, False)]
        outcomes.append((operator.get_messages(0, 9), listed_messages, windows))
    assert outcomes[0] == outcomes[1]
    with pytest.raises(FormatError, match="belongs to plan"):
        WindowOperator(plan_of(tumbling(10)), stores[1])


def test_a_message_cannot_have_the_column_that_panes_of_what_is_new_need():
    settings = {"by": ("k",), "window": tumbling(10), "aggregates": COUNT, "retention": KEEP_ALL}
    with pytest.raises(OptionError, match=f"a message's column cannot be called '{ARRIVAL}'"):
        StorePlan(schema=SCHEMA.append(pa.field(ARRIVAL, pa.int64())), accumulating=False, **settings)
