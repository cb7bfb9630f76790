"""Windows that count a key's messages: each topic and partition for itself, by offset, whatever the cut."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.messages import held, held_keys, key_row_operator
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.plan import Full, KeyRowWindow, hopping_key_rows, tumbling_key_rows, tumbling_rows
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.staged import StagedStore
from keyedwm.operators.panes import Early
from keyedwm.operators.state import key_dictionary
from keyedwm.operators.state import store as logs
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.key_rows import WINDOWS, Played, differential
from tests.operators.stored import Message, cut, plan_of, random_messages, shown, table
from tests.operators.test_store_buckets import Buckets, joined, rising, staged


def given(*rows: tuple, partition: int = 0) -> list[Message]:
    """(offset, key, value): event times say nothing here."""
    return [Message(key, value, 100 - offset, "t", partition, offset) for offset, key, value in rows]


def told(operator: WindowOperator) -> list[tuple]:
    return [
        (row["k"], row["partition"], *row["window"].values(), row["n"], row["pane"]["timing"], row["pane"]["last"])
        for row in operator.flush().to_pylist()
    ]


def operator_of(window, aggregate=None, **settings) -> WindowOperator:
    return WindowOperator(plan_of(window, aggregates=(("n", aggregate or agg.collect("n")),), **settings))


def in_pieces(seed: int, messages: list[Message]) -> list[tuple]:
    """The same messages, each channel in order, the channels mixed and cut anew."""
    rng = random.Random(seed)
    by_channel: dict = {}
    for one in messages:
        by_channel.setdefault(one[3:5], []).append(one)
    mixed = []
    while by_channel:
        channel = rng.choice(sorted(by_channel))
        mixed.append(by_channel[channel].pop(0))
        if not by_channel[channel]:
            del by_channel[channel]
    return cut(seed, mixed, watermarks=False)


@pytest.mark.parametrize("full", Full, ids=lambda full: full.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_panes_messages_and_counts_are_those_of_the_model_with_a_restart_after_each_step(window, full, monkeypatch):
    monkeypatch.setattr(logs, "FAN_OUT", 3)  # compaction at every third part
    monkeypatch.setattr(key_row_operator, "_FEW", 4)  # logs are written anew soon
    monkeypatch.setattr(key_dictionary, "_FEW", 1)  # numbers of keys change
    for seed in range(6):
        assert differential(seed, window, full, 60) > 5


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_neither_the_cut_nor_which_partition_was_read_first_changes_a_result(window):
    messages, made = random_messages(7, 120), []
    for seed in range(4):
        played = Played(plan_of(window))
        for name, piece in in_pieces(seed, messages):
            played.step(name, table(piece))
        made.append((sorted(played.made, key=str), sorted(played.rejected, key=str)))
    assert made == made[:1] * 4
    assert len(made[0][0]) > 10


def test_a_window_is_complete_with_its_last_message_and_counts_those_of_its_key_alone():
    for full, second in ((Full.WATERMARK, [("a", 0, 1, 6, [1, 3, 5], "on_time", False)]), (Full.MESSAGE, [])):
        operator = operator_of(tumbling_key_rows(3), full=full)
        operator.add_message(table(given((1, "a", 1), (2, "b", 2), (4, "a", 3))))
        operator.watermark(10**6)
        assert told(operator) == []
        operator.add_message(table(given((6, "a", 5))))
        assert told(operator) == second
        operator.add_message(table(given((7, "a", 7))))
        assert [row[2:5] for row in told(operator)] == ([] if second else [(1, 6, [1, 3, 5])])


def test_each_partition_counts_for_itself():
    operator = operator_of(tumbling_key_rows(2))
    operator.add_message(table([*given((0, "a", 1)), *given((5, "a", 2), partition=1)]))
    assert told(operator) == []
    operator.add_message(table([*given((9, "a", 3), partition=1), *given((1, "a", 4))]))
    assert [row[:5] for row in told(operator)] == [("a", 0, 0, 1, [1, 4]), ("a", 1, 5, 9, [2, 3])]


def test_overlapping_windows_end_with_every_step_from_the_first_message_on():
    operator = operator_of(hopping_key_rows(4, 2))
    operator.add_message(table(given(*((offset, "a", offset) for offset in range(7)))))
    assert [row[4] for row in told(operator)] == [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5]]
    operator.finish()
    assert [row[4] for row in told(operator)] == [[4, 5, 6], [6]]


def test_a_message_between_two_windows_comes_back():
    operator = operator_of(hopping_key_rows(1, 3))
    operator.add_message(table(given(*((offset, "a", offset) for offset in range(5)))))
    rejected = operator.get_rejected()
    assert (rejected["offset"].to_pylist(), set(rejected["reason"].to_pylist())) == ([1, 2, 4], {"between windows"})
    assert [row[4] for row in told(operator)] == [[0], [3]]


def test_beyond_a_limit_the_keys_whose_messages_lie_farthest_behind_go_and_begin_anew():
    operator = operator_of(tumbling_key_rows(3), retention=Retention(max_messages=3))
    operator.add_message(table(given((0, "a", 1), (1, "a", 2), (2, "b", 3), (3, "c", 4), (4, None, 5))))
    assert told(operator) == [("a", 0, 0, 1, [1, 2], "early", True)]
    assert (operator.counts.dropped_windows, operator.counts.dropped_messages) == (1, 2)
    operator.add_message(table(given((5, "a", 6), (6, "b", 7), (7, "b", 8))))
    assert told(operator)[0] == ("b", 0, 2, 7, [3, 7, 8], "on_time", False)
    assert operator.oldest_offsets() == {("t", 0): 0}
    assert operator.next_offsets() == {("t", 0): 8}


def test_closed_windows_leave_nothing_behind(monkeypatch):
    monkeypatch.setattr(key_row_operator, "_FEW", 4)
    store = MemoryStore()
    operator = WindowOperator(plan_of(tumbling_key_rows(2)), store)
    for key in range(200):
        operator.add_message(table(given((2 * key, f"{key}", 1), (2 * key + 1, f"{key}", 2))))
        assert operator.flush().num_rows == 1
        assert set(store.blobs) <= {NOTE, "open-keys"}  # a log of few rows may wait
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


@pytest.mark.parametrize("window", WINDOWS[:4], ids=str)
def test_the_windows_of_buckets_are_those_of_the_standalone_operator_whatever_the_tasks_and_the_cut(window, seed):
    steps = rising(cut(f"{seed} {window}", random_messages(f"{seed} {window}", 90), watermarks=True))
    alone = WindowOperator(plan_of(window))
    for name, piece in steps:
        getattr(alone, name)(table(piece) if name == "add_message" else piece)
    rejected = alone.get_rejected().num_rows
    wanted = Counter(shown(row) for row in alone.flush().to_pylist())
    for tasks, cuts in ((2, steps), (1, joined(steps))):
        many = Buckets(staged(window), 3, tasks=tasks, seed=seed)
        panes, back = many.run(cuts)
        assert Counter(panes) == wanted
        assert len(back) == rejected
    assert len(wanted) > 10


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_what_is_held_is_told_from_the_blobs_without_the_plan(window, seed):
    plan, store = plan_of(window), MemoryStore()
    operator = WindowOperator(plan, store)
    for name, piece in cut(f"{seed} {window}", random_messages(f"{seed} {window}", 80), watermarks=False):
        getattr(operator, name)(table(piece))
        operator.flush()
    told_of_plan, facts = json.loads(json.dumps(StagedStore(plan=plan).told())), json.loads(store.get(NOTE))
    index = {name: blob for name, blob in store.blobs.items() if name.startswith(held.INDEX)}
    found = held.windows(told_of_plan, [(facts, index)])
    wanted = operator.get_windows(-(10**6), 10**6)
    columns = ("start", "end", "topic", "partition", "first_offset", "last_offset", "messages", "bytes", "is_complete")
    assert sorted(tuple(getattr(one, name) for name in columns) for one in found) == sorted(
        tuple(row[name] for name in columns) for row in wanted.to_pylist()
    )
    blobs = [held.messages(name, blob) for name, blob in store.blobs.items() if name.startswith(held.MESSAGES)]
    rows = [row for blob in blobs for row in held_keys.messages(told_of_plan, facts, index, blob).to_pylist()]
    kept = operator.get_messages(-(10**6), 10**6).to_pylist()
    assert sorted(rows, key=str) == sorted(kept, key=str)
    summary = held.summary(told_of_plan, store.sizes, facts)
    assert (summary.frames, summary.rows, summary.oldest_ms) == (wanted.num_rows, len(kept), None)


REFUSED = {
    "early panes": (lambda: plan_of(KeyRowWindow(2, 2), early=Early(rows=1)), "windows of a key's messages speak once"),
    "late panes": (lambda: plan_of(KeyRowWindow(2, 2), late_rows=3), "windows of a key's messages speak once"),
    "a number of windows": (
        lambda: plan_of(KeyRowWindow(2, 2), retention=Retention(max_windows=3)), "give max_messages or max_bytes, not"),
    "a time": (lambda: plan_of(KeyRowWindow(2, 2), retention=Retention(time_ms=3)), "kept by number, not by time"),
    "no rows": (lambda: tumbling_key_rows(0), "the size of a window of rows is 0, it must be from 1 to"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_plan_that_cannot_run_is_refused_where_it_is_written(build, sentence):
    with pytest.raises(OptionError, match=sentence):
        build()


def test_the_state_of_windows_of_offsets_is_not_that_of_windows_of_a_keys_messages():
    store = MemoryStore()
    operator = WindowOperator(plan_of(tumbling_key_rows(3), aggregates=(("n", median("n")),)), store)
    operator.add_message(table(given((1, "a", 1))))
    operator.flush()
    with pytest.raises(FormatError, match="windows, by columns"):
        WindowOperator(plan_of(tumbling_rows(3), aggregates=(("n", median("n")),)), store)
