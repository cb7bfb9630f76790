"""What a join of windows holds of each side, read from its blobs without the plan, is what the running join holds."""

from __future__ import annotations

import json
import re

import pytest

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages import held, held_by_key, held_sessions
from keyedwm.operators.messages.join import held as held_join
from keyedwm.operators.messages.join.staged import StagedWindowJoin
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.timeline import LOWEST
from keyedwm.operators.messages.windows import Full, HoppingWindow, RowWindow
from keyedwm.operators.state import store as logs
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin
from tests.operators.session_joins import SIDES, join_plan, steps_of
from tests.operators.stored import SCHEMA, Message, table
from tests.operators.window_joins import NAMES, as_table, plan_of, steps

KEPT = Retention(time_ms=30)
PLANS = {
    "tumbling": plan_of(HoppingWindow(10, 10), retention=KEPT),
    "hopping": plan_of(HoppingWindow(10, 3), retention=KEPT),
    "gaps": plan_of(HoppingWindow(4, 10, 1), retention=KEPT),
    "few": plan_of(HoppingWindow(10, 3), retention=Retention(max_messages=15)),
    "rows": plan_of(RowWindow(4, 3), retention=Retention(max_windows=3)),
    "rows, by the message past the end": plan_of(
        RowWindow(4, 3), retention=Retention(max_windows=3), full=Full.MESSAGE
    ),
    "unbounded": plan_of(HoppingWindow(10, 3), unbounded="right", retention=KEPT),
}


def told_of(plan, name):
    told = json.loads(json.dumps(StagedWindowJoin(plan=plan).told()))
    return held_join.told_of(told, name, "here")


def blobs_of(told, store: MemoryStore) -> dict[str, bytes]:
    """Those of a side."""
    found = {name: re.match(held_join.AXIS, name) for name in store.blobs}
    return {name: store.blobs[name] for name, axis in found.items() if axis and int(axis[1]) % 2 == told["number"]}


def index_of(blobs):
    return {name: blob for name, blob in blobs.items() if name.startswith(held.INDEX)}


def messages_in(blobs) -> list[Message]:
    return [
        Message(*row.values())
        for name, blob in blobs.items()
        if name.startswith(held.MESSAGES)
        for row in held.messages(name, blob).to_pylist()
    ]


def holding(plan, side, first: dict, one: Message) -> list[tuple[int, int]]:
    """The windows that hold a message, by trying every one that could."""
    at = one.offset if plan.is_rows else one.time
    grid = plan.grid_of_side(NAMES.index(side), first.get((one.topic, one.partition), 0))
    return [
        (start, start + grid.size)
        for start in range(at - grid.size + 1, at + 1)
        if (start - grid.origin) % grid.step == 0 and (not plan.is_rows or start >= grid.origin)
    ]


@pytest.mark.parametrize("kind", PLANS)
def test_the_windows_and_messages_of_a_side_are_those_that_the_join_holds(kind, seed, monkeypatch):
    monkeypatch.setattr(logs, "FAN_OUT", 3)
    plan, store = PLANS[kind], MemoryStore()
    join, listed, whole = WindowJoin(plan, store), 0, 0
    given: dict[tuple, int] = {}  # side, topic and partition → the highest offset
    for name, side, what in steps(seed, 50):
        getattr(join, name)(side, as_table(name, what))
        for one in what if name == "add_message" else ():
            given[side, one.topic, one.partition] = max(given.get((side, one.topic, one.partition), 0), one.offset)
        join.flush()
        join = WindowJoin(plan, store)
        for number, called in enumerate(NAMES):
            told = told_of(plan, called)
            facts = held_join.facts_of(told, json.loads(store.get(NOTE)))
            blobs = blobs_of(told, store)
            kept = messages_in(blobs)
            counts = join.counts(called)
            assert len(kept) == counts.taken - counts.expired - counts.dropped_messages
            first = {(topic, partition): at for topic, partition, at, _ in facts["channels"]}
            axes = join._operator.sides[number].axes
            places = {key: at if plan.is_rows else 0 for at, key in enumerate(first)}
            dead = LOWEST  # the end of the last window that no side takes messages for
            if plan.both_windowed and not plan.is_rows:
                dead = min(one.axes[0].floor if one.axes else LOWEST for one in join._operator.sides)
            expected: dict[tuple, list[int]] = {}
            for one in kept:
                channel = one.topic, one.partition
                for start, end in holding(plan, called, first, one):
                    if start >= axes[places[channel]].gone and end > dead:
                        expected.setdefault((start, end, *channel), []).append(one.offset)
            found = {
                (one.start, one.end, one.topic, one.partition): (
                    one.first_offset, one.last_offset, one.messages, one.is_complete
                )
                for one in held.windows(told, [(facts, index_of(blobs))])
            }  # fmt: skip
            past = int(plan.full is Full.WATERMARK)
            reached = {channel: given[(called, *channel)] + past for channel in first}
            if not plan.is_rows:
                reached = dict.fromkeys(first, axes[0].horizon if axes else LOWEST)
            wanted = {
                place: (min(mine), max(mine), len(mine), place[1] <= reached[place[2:]])
                for place, mine in expected.items()
            }
            assert found == wanted
            listed += len(found)
            whole += sum(is_complete for *_, is_complete in found.values())
            by_key = [
                held_by_key.parts(told, facts, name, blob)
                for name, blob in blobs.items()
                if name.startswith(held.MESSAGES)
            ]
            assert sum(sum(one["messages"].to_pylist()) for one in by_key) == sum(map(len, expected.values()))
    assert listed > 20
    assert 0 < whole < listed


def test_the_sessions_and_messages_of_a_side_are_those_that_the_join_holds(seed, monkeypatch):
    monkeypatch.setattr(logs, "FAN_OUT", 3)
    plan, store = join_plan(SessionWindow(4), retention=Retention(time_ms=40)), MemoryStore()
    join, listed = WindowJoin(plan, store), 0
    for name, number, what in steps_of(seed, 30):
        getattr(join, name)(SIDES[number], table(what) if name == "add_message" else what)
        join.flush()
        join = WindowJoin(plan, store)
        for side in SIDES:
            told, facts = told_of(plan, side), json.loads(store.get(NOTE))
            assert held_join.is_half(told)
            log = {name: blob for name, blob in store.blobs.items() if name.startswith(held_sessions.INDEX)}
            kept = [
                Message(*row.values())
                for name, blob in store.blobs.items()
                if name.startswith(held.MESSAGES)
                for row in held_join.messages_of(
                    told, held_sessions.messages(told, log, held.messages(name, blob))
                ).to_pylist()
            ]
            counts = join.counts(side)
            assert len(kept) == counts.taken - counts.expired - counts.dropped_messages
            found = held_sessions.windows(told, [(held_join.facts_of(told, facts), log)])
            rows = [] if found is None else held_join.sessions_of(told, found).to_pylist()
            assert sum(row["messages"] for row in rows) == len(kept)
            for row in rows:
                mine = [
                    one.offset
                    for one in kept
                    if (one.k, one.topic, one.partition) == (row["__key0"], row["topic"], row["partition"])
                    and row["start"] <= one.time < row["end"]
                ]
                if row["__key0"] is not None:  # one without a key is a session of its own
                    assert (min(mine), max(mine), len(mine)) == (
                        row["first_offset"], row["last_offset"], row["messages"]
                    )  # fmt: skip
            listed += len(rows)
    assert listed > 20


def test_the_messages_of_a_session_join_have_the_columns_in_which_they_came():
    plan, store = join_plan(SessionWindow(4)), MemoryStore()
    join = WindowJoin(plan, store)
    join.add_message("left", table([Message("a", 1, 5, "t", 0, 7)]))
    join.flush()
    (blob,) = (blob for name, blob in store.blobs.items() if name.startswith(held.MESSAGES))
    both = [held_join.messages_of(told_of(plan, side), held.messages("messages-4", blob)) for side in SIDES]
    assert [one.schema.names for one in both] == [SCHEMA.names, SCHEMA.names]
    assert [one.schema.types for one in both] == [SCHEMA.types, SCHEMA.types]
    assert [[list(row.values()) for row in one.to_pylist()] for one in both] == [[["a", 1, 5, "t", 0, 7]], []]


def test_a_side_that_there_is_not_and_state_that_tells_of_none_are_refused():
    told = StagedWindowJoin(plan=PLANS["tumbling"]).told()
    for wrong in (None, "orders"):
        with pytest.raises(OptionError, match=f"here: side={wrong!r}: it is a window_join: .* 'left' or 'right'"):
            held_join.told_of(told, wrong, "here")
    with pytest.raises(
        FormatError, match=r"here: its state does not tell of its sides, .* let its query run one batch"
    ):
        held_join.told_of({"window_join": []}, "left", "here")


def test_a_join_that_holds_nothing_lists_nothing():
    told = told_of(PLANS["tumbling"], "left")
    assert held.windows(told, [(held_join.facts_of(told, {}), {})]) == []
