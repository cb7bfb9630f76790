"""What a join of windows holds of each side, read from its blobs without the plan, is what the running join holds."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.grid import LOWEST
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.join_description import describe
from keyedwm.operators.messages.join.join_description import plan_of as plan_from
from keyedwm.operators.messages.read_only_store import CHANNEL, EDGES, Listed
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow, RowWindow
from keyedwm.operators.state.store import MemoryStore
from keyedwm.savepoint_files import OperatorState
from keyedwm.spark.inspect.saved_store import SavedStore, side_of
from keyedwm.windows import WindowJoin
from tests.operators.laws.small import SMALL
from tests.operators.session_joins import SIDES, join_plan, steps_of
from tests.operators.stored import SCHEMA, Message, table
from tests.operators.window_joins import NAMES, as_table, plan_of, steps

RETENTION = Retention(time_ms=30)
PLANS = {
    "tumbling": plan_of(HoppingWindow(10, 10), retention=RETENTION),
    "hopping": plan_of(HoppingWindow(10, 3), retention=RETENTION),
    "gaps": plan_of(HoppingWindow(4, 10, 1), retention=RETENTION),
    "few": plan_of(HoppingWindow(10, 3), retention=Retention(max_messages=15)),
    "rows": plan_of(RowWindow(4, 3), retention=Retention(max_windows=3)),
    "rows, by the message past the end": plan_of(
        RowWindow(4, 3), retention=Retention(max_windows=3), full=CompletedBy.MESSAGE
    ),
    "unbounded": plan_of(HoppingWindow(10, 3), unbounded="right", retention=RETENTION),
}


def listed_of(plan, number: int, store: MemoryStore) -> Listed:
    """A side as somebody opens it who has the description of the join and the blobs."""
    return side_of(json.loads(json.dumps(BucketWindowJoin(plan=plan).description())), number, store)


def messages_in(store_listing: Listed) -> list[Message]:
    return [Message(*row.values()) for row in store_listing.messages().to_pylist()]


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
def test_the_windows_and_messages_of_a_side_are_those_that_the_join_holds(kind, seed):
    plan, store = PLANS[kind], MemoryStore(limits=SMALL)
    join, window_count, whole = WindowJoin(plan, store), 0, 0
    highest_offsets: dict[tuple, int] = {}  # side, topic and partition → the highest offset
    for name, side, argument in steps(seed, 50):
        getattr(join, name)(side, as_table(name, argument))
        for one in argument if name == "add_message" else ():
            highest_offsets[side, one.topic, one.partition] = max(
                highest_offsets.get((side, one.topic, one.partition), 0), one.offset
            )
        join.flush()
        join = WindowJoin(plan, store)
        for number, side_name in enumerate(NAMES):
            side_listing = listed_of(plan, number, store)
            messages = messages_in(side_listing)
            counts = join.counts(side_name)
            assert len(messages) == counts.taken - counts.expired - counts.dropped_messages
            channels, axes = join._operator.inputs[number].channels, join._operator.content.sides[number].axes
            first = dict(zip(channels.known, channels.first, strict=True))
            places = {key: at if plan.is_rows else 0 for at, key in enumerate(first)}
            dead = LOWEST  # the end of the last window that no side takes messages for
            if plan.both_windowed and not plan.is_rows:
                dead = min(one.axes[0].floor if one.axes else LOWEST for one in join._operator.content.sides)
            expected: dict[tuple, list[int]] = {}
            for one in messages:
                channel = one.topic, one.partition
                for start, end in holding(plan, side_name, first, one):
                    if start >= axes[places[channel]].expired_before and end > dead:
                        expected.setdefault((start, end, *channel), []).append(one.offset)
            actual_windows = {
                tuple(one[name] for name in (*EDGES, *CHANNEL)): (
                    one["first_offset"], one["last_offset"], one["messages"], one["is_complete"]
                )
                for one in side_listing.windows(by_key=False).to_pylist()
            }  # fmt: skip
            past = int(plan.full is CompletedBy.WATERMARK)
            complete_until = {channel: highest_offsets[(side_name, *channel)] + past for channel in first}
            if not plan.is_rows:
                complete_until = dict.fromkeys(first, axes[0].horizon if axes else LOWEST)
            expected_windows = {
                place: (min(offsets), max(offsets), len(offsets), place[1] <= complete_until[place[2:]])
                for place, offsets in expected.items()
            }
            assert actual_windows == expected_windows
            window_count += len(actual_windows)
            whole += sum(is_complete for *_, is_complete in actual_windows.values())
            by_key = side_listing.windows(by_key=True)
            assert sum(by_key["messages"].to_pylist()) == sum(map(len, expected.values()))
            oldest: dict[tuple, int] = {}
            for one in messages:
                channel = one.topic, one.partition
                oldest[channel] = min(one.offset, oldest.get(channel, one.offset))
            assert side_listing.oldest_offsets() == (first if plan.is_rows else oldest)
    assert window_count > 20
    assert 0 < whole < window_count


def test_the_sessions_and_messages_of_a_side_are_those_that_the_join_holds(seed):
    plan, store = join_plan(SessionWindow(4), retention=Retention(time_ms=40)), MemoryStore(limits=SMALL)
    join, window_count = WindowJoin(plan, store), 0
    for name, of, argument in steps_of(seed, 30):
        getattr(join, name)(SIDES[of], table(argument) if name == "add_message" else argument)
        join.flush()
        join = WindowJoin(plan, store)
        for number, side_name in enumerate(SIDES):
            side = listed_of(plan, number, store)
            messages = messages_in(side)
            counts = join.counts(side_name)
            assert len(messages) == counts.taken - counts.expired - counts.dropped_messages
            rows = side.windows(by_key=False).to_pylist()
            assert sum(row["messages"] for row in rows) == len(messages)
            for row in rows:
                session_offsets = [
                    one.offset
                    for one in messages
                    if (one.k, one.topic, one.partition) == (row["k"], row["topic"], row["partition"])
                    and row["start"] <= one.time < row["end"]
                ]
                if row["k"] is not None:  # one without a key is a session of its own
                    assert (min(session_offsets), max(session_offsets), len(session_offsets)) == (
                        row["first_offset"], row["last_offset"], row["messages"]
                    )  # fmt: skip
            window_count += len(rows)
    assert window_count > 20


def test_the_messages_of_a_session_join_have_the_columns_in_which_they_came():
    plan, store = join_plan(SessionWindow(4)), MemoryStore()
    join = WindowJoin(plan, store)
    join.add_message("left", table([Message("a", 1, 5, "t", 0, 7)]))
    join.flush()
    both = [listed_of(plan, number, store).messages() for number in range(2)]
    assert [one.schema.names for one in both] == [SCHEMA.names, SCHEMA.names]
    assert [one.schema.types for one in both] == [SCHEMA.types, SCHEMA.types]
    assert [[list(row.values()) for row in one.to_pylist()] for one in both] == [[["a", 1, 5, "t", 0, 7]], []]


def test_a_side_that_there_is_not_is_refused():
    description = BucketWindowJoin(plan=PLANS["tumbling"]).description()
    state = OperatorState(name="here", axis=0, digest="d", description=description, manifests=[{}], states=[{}])
    store = SavedStore("here", state, None)
    for wrong in (None, "orders"):
        with pytest.raises(OptionError, match=f"here: side={wrong!r}: it is a window_join: .* 'left' or 'right'"):
            store.of(wrong)


@pytest.mark.parametrize("kind", PLANS)
def test_a_join_that_holds_nothing_lists_nothing(kind):
    for number in range(2):
        empty_listing = listed_of(PLANS[kind], number, MemoryStore())
        assert (
            empty_listing.windows(by_key=False).num_rows,
            empty_listing.messages().num_rows,
            empty_listing.oldest_offsets(),
        ) == (
            0,
            0,
            {},
        )


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_made_from_its_description_has_the_same_description(kind):
    assert describe(plan_from(describe(PLANS[kind]))) == describe(PLANS[kind])
