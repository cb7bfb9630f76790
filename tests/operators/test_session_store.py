"""Sessions that keep their messages: any cut, any restart, late messages that join, limits, and what is held."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.core.touching import Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages import held, held_sessions, session_store_operator
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.plan import Full
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.staged import StagedStore
from keyedwm.operators.panes import Early
from keyedwm.operators.state import key_dictionary
from keyedwm.operators.state import store as logs
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.session_stores import WINDOWS, differential
from tests.operators.stored import Message, Restarted, cut, plan_of, random_messages, table

TEN = SessionWindow(10)
LONG = Retention(time_ms=1_000)


def given(*rows: tuple, partition: int = 0) -> list[Message]:
    """(offset, key, event time), whose value is the time, too."""
    return [Message(key, time, time, "t", partition, offset) for offset, key, time in rows]


def operator_of(window=TEN, aggregate=None, store=None, **settings) -> WindowOperator:
    plan = plan_of(window, aggregates=(("n", aggregate or agg.collect("n")),), **{"retention": LONG} | settings)
    return WindowOperator(plan, store)


def told(operator: WindowOperator) -> list[tuple]:
    return [
        (row["k"], *(round(edge.timestamp() * 1_000) for edge in row["window"].values()), row["n"],
         *row["pane"].values()) for row in operator.flush().to_pylist()
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def compaction_at_every_turn(monkeypatch):
    monkeypatch.setattr(logs, "FAN_OUT", 3)
    monkeypatch.setattr(session_store_operator, "_FEW", 4)
    monkeypatch.setattr(session_store_operator, "_MOST_ROWS", 7)
    monkeypatch.setattr(key_dictionary, "_FEW", 1)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_panes_messages_and_counts_are_those_of_the_model_with_a_restart_after_each_step(window):
    panes = [differential(seed, window, 25) for seed in range(36)]
    assert sum(panes) > 150


def test_neither_the_cut_nor_a_restart_changes_which_sessions_there_are_and_what_comes_back():
    messages, made = random_messages("session cuts", 120), []
    for seed in range(4):
        played = Restarted(plan_of(TEN, retention=Retention(time_ms=30)), always=seed % 2 == 0)
        before = 0
        for border in range(30, 121, 30):  # watermarks at the same places, messages cut between them in any way
            for _, piece in cut(seed, messages[before:border], watermarks=False):
                played.step("add_message", table(piece))
            played.step("watermark", border - 25)
            before = border
        played.step("finish")
        newest = {pane[:3]: pane[3] for pane in played.made}
        made.append((newest, sorted(played.rejected, key=str)))
    assert made == made[:1] * 4
    assert len(made[0][0]) > 5
    assert made[0][1]


def test_a_late_message_joins_two_sessions_whose_panes_are_counted_on():
    operator = operator_of(aggregate=median("n"))
    operator.add_message(table(given((0, "a", 0), (1, "a", 5), (2, "a", 20), (3, "b", 6))))
    operator.watermark(31)
    assert told(operator) == [
        ("a", 0, 15, 2.5, "on_time", 0, False), ("b", 6, 16, 6.0, "on_time", 0, False),
        ("a", 20, 30, 20.0, "on_time", 0, False),
    ]  # fmt: skip
    operator.add_message(table(given((4, "a", 6))))
    assert told(operator) == [("a", 0, 16, 5.0, "late", 1, False)]
    operator.add_message(table(given((5, "a", 12))))
    assert told(operator) == [("a", 0, 30, 6.0, "late", 2, False)]


def test_a_session_that_was_shown_and_grows_past_the_watermark_speaks_again_when_it_is_complete():
    operator = operator_of()
    operator.add_message(table(given((0, "a", 0))))
    operator.watermark(11)
    assert told(operator) == [("a", 0, 10, [0], "on_time", 0, False)]
    operator.add_message(table(given((1, "a", 9))))
    assert told(operator) == []
    operator.watermark(20)
    assert told(operator) == [("a", 0, 19, [0, 9], "on_time", 1, False)]


@pytest.mark.parametrize(("touching", "complete_at"), [(Touching.MERGE, 11), (Touching.SEPARATE, 10)])
def test_a_session_is_complete_when_no_message_can_join_it_any_more(touching, complete_at):
    operator = operator_of(SessionWindow(10, touching))
    operator.add_message(table(given((0, "a", 0))))
    operator.watermark(complete_at - 1)
    assert told(operator) == []
    operator.watermark(complete_at)
    assert [row[:3] for row in told(operator)] == [("a", 0, 10)]
    operator.add_message(table(given((1, "a", 10))))
    assert operator.get_windows(0, 100)["start"].to_pylist() == ([0] if touching is Touching.MERGE else [0, 10])


def test_a_message_outside_the_retention_comes_back_and_one_inside_begins_a_session_where_one_is_gone():
    operator = operator_of(retention=Retention(time_ms=20))
    operator.add_message(table(given((0, "a", 0), (1, "a", 8))))
    operator.watermark(39)  # the session ends at 18
    assert told(operator) == [("a", 0, 18, [0, 8], "on_time", 0, False)]
    operator.add_message(table(given((2, "a", 8), (3, "a", 9))))
    rejected = operator.get_rejected()
    assert (rejected["offset"].to_pylist(), rejected["reason"].to_pylist()) == ([2], ["outside the retention"])
    assert told(operator) == [("a", 9, 19, [9], "late", 0, False)]


def test_a_session_that_never_ends_keeps_its_messages_and_not_those_of_others():
    store = MemoryStore()
    operator = operator_of(store=store, retention=Retention(time_ms=20))
    for at in range(0, 4_000, 8):
        operator.add_message(table(given((2 * at, "long", at), (2 * at + 1, f"{at}", at))))
        operator.watermark(at)
        operator.flush()
    kept = operator.get_messages(0, 10_000)
    assert kept["k"].to_pylist().count("long") == 500
    assert kept.num_rows < 520
    stored = sum(
        held.messages(name, blob).num_rows for name, blob in store.blobs.items() if name.startswith(held.MESSAGES)
    )
    assert stored < 800  # a slice is looked at again only when it is twice as old
    operator.watermark(4_100)
    assert told(operator)[-2][:3] == ("long", 0, 4_002)  # of equal ends the earlier start first
    assert set(store.blobs) <= {NOTE, held_sessions.INDEX, *(n for n in store.blobs if n.startswith("messages-"))}
    operator.add_message(table(given((20_000, "z", 9_000))))
    operator.watermark(9_000)
    operator.flush()
    assert [name for name in store.blobs if name.startswith(held.MESSAGES)] == [f"{held.MESSAGES}9000"]


def test_a_late_message_reads_the_slices_of_its_session_and_no_others():
    store = MemoryStore()
    operator = operator_of(store=store)
    for at in range(0, 600, 20):
        operator.add_message(table(given((at, f"{at}", at))))
        operator.flush()
    operator.watermark(600)
    operator.flush()
    read: list[str] = []

    class Watched(MemoryStore):
        def get(self, name: str) -> bytes:
            read.append(name)
            return super().get(name)

    operator = operator_of(store=Watched(dict(store.blobs)))
    operator.add_message(table(given((600, "300", 305))))
    assert [row[:4] for row in told(operator)] == [("300", 300, 315, [300, 305])]
    slices = [name for name in read if name.startswith(held.MESSAGES)]
    assert 1 <= len(slices) <= 2, slices


def test_beyond_a_limit_the_sessions_that_end_first_go_and_say_so():
    operator = operator_of(retention=Retention(max_windows=2))
    operator.add_message(table(given((0, "a", 0), (1, "b", 3), (2, "c", 3), (3, "d", 50))))
    assert told(operator) == [
        ("a", 0, 10, [0], "early", 0, True), ("b", 3, 13, [3], "early", 0, True), ("c", 3, 13, [3], "early", 0, True),
    ]  # fmt: skip
    counts = operator.counts
    assert (counts.dropped_windows, counts.dropped_messages, counts.taken, counts.given) == (3, 3, 4, 4)
    operator.add_message(table(given((4, "a", 3), (5, "a", 4))))
    assert operator.get_rejected()["offset"].to_pylist() == [4]
    assert operator.oldest_offsets() == {("t", 0): 3}


def test_early_and_late_panes_by_the_clock_come_together():
    operator = operator_of(early=Early(every_ms=100), late_every_ms=50)
    operator.add_message(table(given((0, "a", 0), (1, "b", 40))), now_ms=1_000)
    assert operator.next_timeout_ms == 1_100
    operator.timeout(1_099)
    assert told(operator) == []
    operator.timeout(1_100)
    assert [row[:5] for row in told(operator)] == [("a", 0, 10, [0], "early"), ("b", 40, 50, [40], "early")]
    assert operator.next_timeout_ms is None
    operator.watermark(20)
    operator.add_message(table(given((2, "a", 4), (3, "a", 5))), now_ms=1_200)
    assert [row[3:6] for row in told(operator)] == [([0], "on_time", 1)]
    operator.timeout(operator.next_timeout_ms)
    assert [row[3:6] for row in told(operator)] == [([0, 4, 5], "late", 2)]


def test_what_is_held_is_told_from_the_blobs_alone(seed):
    plan = plan_of(TEN, retention=Retention(time_ms=40))
    stores = []
    operators = []
    steps = cut(seed, random_messages(f"held {seed}", 80), watermarks=True)
    for mine in ("x", "all"):
        store = MemoryStore()
        operator = WindowOperator(plan, store)
        for name, asked in steps:
            taken = table([one for one in asked if mine in ("all", one.k)]) if name == "add_message" else asked
            getattr(operator, name)(taken)
            operator.flush()
        stores.append(store)
        operators.append(operator)
    for store, operator in zip(stores, operators, strict=True):
        facts = json.loads(store.get(NOTE))
        logged = {name: blob for name, blob in store.blobs.items() if name.startswith(held.INDEX)}
        told_of = json.loads(json.dumps(StagedStore(plan=plan).told()))
        found = held_sessions.windows(told_of, [(facts, logged)])
        found = found.rename_columns(["k", *found.column_names[1:]])
        assert found.to_pylist() == operator.get_windows(-(10**6), 10**6, by_key=True).to_pylist()
        kept = [
            one for name, blob in store.blobs.items() if name.startswith(held.MESSAGES)
            for one in held_sessions.messages(told_of, logged, held.messages(name, blob)).to_pylist()
        ]  # fmt: skip
        assert sorted(kept, key=str) == sorted(operator.get_messages(-(10**6), 10**6).to_pylist(), key=str)
        summary = held.summary(told_of, store.sizes, facts)
        sessions = {tuple(one[name] for name in ("k", "start")) for one in found.to_pylist()}
        assert (summary.frames, summary.rows) == (len(sessions), len(kept))
        assert summary.oldest_ms == min(found["start"].to_pylist())


def test_messages_of_a_session_are_found_by_time_by_key_and_by_offset_within_a_time():
    operator = operator_of()
    operator.add_message(table(given((0, "a", 5), (1, "b", 5), (2, "a", 7), (3, "a", 40))))
    assert operator.get_messages(5, 7, key={"k": "a"})["offset"].to_pylist() == [0, 2]
    assert operator.get_messages((5, 1), (7, 2))["offset"].to_pylist() == [1, 2]
    assert operator.get_messages(0, 100, join_keys={"n": 40})["offset"].to_pylist() == [3]
    windows = operator.get_windows(0, 20, by_key=True).to_pylist()
    assert [(one["k"], one["start"], one["end"], one["messages"]) for one in windows] == [
        ("b", 5, 15, 1),
        ("a", 5, 17, 2),
    ]


def test_what_sessions_cannot_do_is_one_sentence():
    for change, said in {
        ("full", Full.MESSAGE): "full='message' has no meaning for sessions",
        ("accumulating", False): "what is new in one since its last pane has no meaning of its own",
        ("retention", Retention(time_ms=9)): "the retention of 9 ms is shorter than the gap of 10 ms",
    }.items():
        with pytest.raises(OptionError, match=said):
            plan_of(TEN, **dict([change]))
