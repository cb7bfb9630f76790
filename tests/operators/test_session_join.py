"""Joins of sessions: any cut, any restart, late messages that join sessions, and each pair once."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.operators.frames.plan import SessionWindow, tumbling
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.plan import Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, session_rows
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin
from tests.operators.laws.kinds import SESSIONS as WINDOWS
from tests.operators.laws.small import SMALL
from tests.operators.session_joins import SIDES, differential, join_plan, pair_of
from tests.operators.stored import SCHEMA, Message, table
from tests.seeds import times

TEN = SessionWindow(10)
STAMP = datetime(1970, 1, 1, 0, 0, 0, 5_999, timezone.utc)  # in the fifth millisecond


def message_table(*rows: tuple) -> pa.Table:
    """(offset, key, event time), whose value is the time, too."""
    return table([Message(key, time, time, "t", 0, offset) for offset, key, time in rows])


def join_of(store=None, **settings) -> WindowJoin:
    return WindowJoin(join_plan(TEN, **{"retention": Retention(time_ms=1_000)} | settings), store)


def new_pairs(join: WindowJoin) -> list[tuple]:
    """Window, event times of both, timing."""
    rows = [pair_of(row) for row in join.flush().to_pylist()]
    return [(start, end, left and left.time, right and right.time, timing) for start, end, left, right, timing in rows]


def both_at(join: WindowJoin, time_ms: int) -> None:
    for side in SIDES:
        join.watermark(side, time_ms)


def some_seeds(window) -> range:
    """Of 48 combinations of limits, kinds of join and kept messages: three or four for a window, 24 for all windows.

    `python -m tests.operators.session_joins 10000` plays as many as are asked for.
    """
    return range(WINDOWS.index(window), times(48), 14)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_rows_and_rejected_messages_are_those_of_the_model_with_a_restart_after_each_step(window):
    assert sum(differential(seed, window, 20) for seed in some_seeds(window)) > 20


@pytest.mark.parametrize("emit", [Emit.PAIRED, Emit.RUNNING], ids=lambda emit: emit.value)
@pytest.mark.parametrize("window", WINDOWS[1::3], ids=str)
def test_rows_with_each_message_are_those_of_the_model_with_a_restart_after_each_step(window, emit):
    assert sum(differential(seed, window, 20, emit) for seed in some_seeds(window)) > 5


def test_a_session_is_joined_as_soon_as_it_has_both_sides_and_what_was_joined_is_used_up():
    for keep, expected_pairs in (
        (Keep.FIRST, [(0, 12, 0, 2), (0, 14, 3, 4)]),
        (Keep.LAST, [(0, 12, 1, 2), (0, 14, 3, 4)]),
        (Keep.ALL, [(0, 12, 0, 2), (0, 12, 1, 2), (0, 14, 3, 4)]),
    ):
        store, pairs = MemoryStore(limits=SMALL), []
        for side, time in (("left", 0), ("left", 1), ("right", 2), ("left", 3), ("right", 4), ("left", 5)):
            join = join_of(store, keep=keep, emit=Emit.PAIRED)
            join.add_message(side, message_table((time, "a", time)))
            pairs += new_pairs(join)
        both_at(join, 40)
        assert pairs == [(*one, "early") for one in expected_pairs]
        assert new_pairs(join) == []  # the last one met nobody
        join.add_message("right", message_table((9, "a", 6)))
        assert new_pairs(join) == [(0, 16, 5, 6, "late")]


def test_a_session_as_it_stands_comes_with_each_of_its_messages_those_of_a_call_in_order_of_event_time():
    join = join_of(keep=Keep.FIRST, how=How.FULL, emit=Emit.RUNNING)
    join.add_message("left", message_table((0, "a", 0), (1, "b", 3)))
    assert new_pairs(join) == [(0, 10, 0, None, "early"), (3, 13, 3, None, "early")]
    join.add_message("right", message_table((0, "a", 7), (1, "a", 5), (1, "a", 5)))
    assert new_pairs(join) == [(0, 15, 0, 5, "early"), (0, 17, 0, 5, "early")]
    both_at(join, 40)
    assert new_pairs(join) == []
    join.add_message("left", message_table((2, "a", 1)))
    assert new_pairs(join) == [(0, 17, 0, 5, "late")]


def test_a_state_whose_sessions_spoke_when_complete_is_refused_where_they_speak_with_each_message():
    store = MemoryStore(limits=SMALL)
    join_of(store).flush()
    with pytest.raises(FormatError, match="belongs to plan"):
        join_of(store, emit=Emit.RUNNING)


def test_messages_of_both_sides_make_a_session_together_and_meet_when_both_watermarks_have_passed_it():
    join = join_of()
    join.add_message("left", message_table((0, "a", 0), (1, "a", 16)))
    join.add_message("right", message_table((0, "a", 8), (1, "b", 9)))  # 0 and 16 are too far apart without 8
    join.watermark("left", 100)
    assert new_pairs(join) == []
    join.watermark("right", 27)
    assert new_pairs(join) == [(0, 26, 0, 8, "on_time"), (0, 26, 16, 8, "on_time")]
    assert join.counts("left").taken == join.counts("right").taken == 2


def test_a_late_message_meets_its_session_and_what_it_joins_meets_once():
    join = join_of()
    join.add_message("left", message_table((0, "a", 0)))
    join.add_message("right", message_table((0, "a", 5), (1, "a", 20)))
    both_at(join, 40)
    assert new_pairs(join) == [(0, 15, 0, 5, "on_time")]
    join.add_message("left", message_table((1, "a", 13)))
    assert new_pairs(join) == [(0, 30, 0, 20, "late"), (0, 30, 13, 5, "late"), (0, 30, 13, 20, "late")]
    join.add_message("left", message_table((1, "a", 13)))
    assert new_pairs(join) == []
    assert join.counts("left").replayed == 1


def test_a_message_alone_comes_alone_and_later_with_the_one_that_it_meets():
    join = join_of(how=How.FULL)
    join.add_message("left", message_table((0, "a", 0), (1, None, 0)))
    join.add_message("right", message_table((0, "b", 5), (1, None, 0)))
    both_at(join, 40)
    assert sorted(new_pairs(join), key=str) == [
        (0, 10, 0, None, "on_time"), (0, 10, 0, None, "on_time"), (0, 10, None, 0, "on_time"),
        (5, 15, None, 5, "on_time"),
    ]  # fmt: skip
    join.add_message("right", message_table((2, "a", 3)))
    assert new_pairs(join) == [(0, 13, 0, 3, "late")]


def test_messages_without_a_key_make_no_session_that_never_ends():
    join = join_of(how=How.FULL, retention=Retention(time_ms=20))
    for at in range(40):
        for side in SIDES:
            rows = message_table((at, None, 5 * at))
            join.add_message(side, pa.concat_tables([rows, rows]))  # a record that comes twice is one message
            join.watermark(side, 5 * at)
        pairs = new_pairs(join)
        begins = 5 * at - 15  # by the watermark of 5 * at, with touching it is complete behind its end
        expected_pairs = [
            (begins, begins + 10, begins, None, "on_time"),
            (begins, begins + 10, None, begins, "on_time"),
        ]
        assert pairs == (expected_pairs if begins >= 0 else [])
        held_counts = [join.counts(side).taken - join.counts(side).expired for side in SIDES]
        assert max(held_counts) <= 7


def test_one_row_for_each_session_changes_when_a_late_message_is_its_last():
    join = join_of(keep=Keep.LAST)
    join.add_message("left", message_table((0, "a", 0), (1, "a", 4)))
    join.add_message("right", message_table((0, "a", 1), (1, "a", 2)))
    both_at(join, 40)
    assert new_pairs(join) == [(0, 14, 4, 2, "on_time")]
    join.add_message("right", message_table((2, "a", 1)))
    assert new_pairs(join) == []
    join.add_message("right", message_table((3, "a", 6)))
    assert new_pairs(join) == [(0, 16, 4, 6, "late")]


def test_a_side_may_name_its_columns_otherwise_and_messages_come_back_as_they_came():
    stamped = pa.schema([
        ("who", pa.string()), pa.field("when", pa.timestamp("us", "UTC"), nullable=False), ("t", pa.string()),
        ("p", pa.int64()), ("o", pa.int64()), ("tags", pa.list_(pa.string())),
    ])  # fmt: skip
    plan = WindowJoinPlan(
        left=WindowJoinSide(name="left", schema=SCHEMA, on=("k",)),
        right=WindowJoinSide(
            name="right", schema=stamped, on=("who",), time="when", topic="t", partition="p", offset="o"
        ),
        window=TEN, retention=Retention(time_ms=20), how=How.LEFT,
    )  # fmt: skip
    store = MemoryStore(limits=SMALL)
    join = WindowJoin(plan, store)
    join.add_message("left", message_table((0, "a", 0), (1, "z", 3)))
    join.add_message(
        "right",
        pa.Table.from_pylist([dict(zip(stamped.names, ["a", STAMP, "t", 3, 7, ["x", None]], strict=True))], stamped),
    )
    both_at(join, 40)
    result_rows = join.flush().to_pylist()
    assert [(row["k"], row["who"], row["tags"]) for row in result_rows] == [("z", None, None), ("a", "a", ["x", None])]
    assert join.next_offsets("right") == {("t", 3): 8}
    join.add_message(
        "right", pa.Table.from_pylist([dict(zip(stamped.names, ["b", STAMP, "t", 3, 9, []], strict=True))], stamped)
    )
    (back,) = join.get_rejected("right").to_pylist()
    assert (back["who"], back["o"], back["tags"], back["reason"]) == ("b", 9, [], "outside the retention")
    with pytest.raises(InputError, match="the messages have no column 'who'"):
        join.add_message("right", message_table((0, "a", 0)))
    join.flush()
    with pytest.raises(FormatError, match="belongs to plan"):
        WindowJoin(join_plan(TEN), store)


@pytest.mark.parametrize("limit", [Retention(max_messages=3), Retention(max_bytes=3 * 38)], ids=str)
def test_a_limit_in_bytes_counts_messages_as_they_came_and_not_what_is_held_beside_them(limit):
    join = join_of(retention=limit)
    join.add_message("left", message_table((0, "a", 0), (1, "b", 100), (2, "c", 200)))
    join.add_message("right", message_table((0, "c", 201)))
    join.flush()
    counts = join.counts("left")
    assert (counts.dropped_windows, counts.dropped_messages, counts.dropped_bytes) == (1, 1, 38)
    assert join.counts("right").dropped_messages == 0


def test_nothing_is_left_when_all_sessions_are_gone():
    store = MemoryStore(limits=SMALL)
    join = join_of(store, retention=Retention(time_ms=20))
    for at in range(0, 400, 5):
        for side in SIDES:
            join.add_message(side, message_table((at, f"{at // 100}", at)))
        both_at(join, at)
        join.flush()
        assert sum(store.sizes.values()) < 120_000
    both_at(join, 10_000)
    join.flush()
    assert all(join.counts(side).expired == 80 for side in SIDES)
    join.add_message("left", message_table((5_000, "z", 20_000)))
    both_at(join, 20_000)
    join.flush()
    assert sorted(store.blobs) == ["messages-20000", "note", "sessions"]


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int32(), pa.string()), pa.run_end_encoded(pa.int32(), pa.string())], ids=str
)
def test_an_encoded_column_is_refused_in_one_sentence(kind):
    schema = SCHEMA.append(pa.field("v", kind))
    sides = [WindowJoinSide(name=name, schema=schema, on=("k",)) for name in SIDES]
    with pytest.raises(OptionError, match=r"left: the column 'v' is of type .* of plain columns: cast it to string"):
        WindowJoinPlan(left=sides[0], right=sides[1], window=TEN, retention=Retention(time_ms=20))


def test_what_joins_of_sessions_cannot_do_is_one_sentence():
    for change, sentence in {
        ("full", CompletedBy.MESSAGE): "leave full='message', unbounded sides and intervals out",
        ("late_every_ms", 5): "leave full='message', unbounded sides and intervals out",
        ("retention", Retention(time_ms=9)): "the retention of 9 ms is shorter than the gap of 10 ms",
        ("window", session_rows(3)): "sessions by rows are not joined",
        ("window", tumbling(10)): "emit='paired' is for sessions",
        ("how", How.LEFT): "emit='paired' gives rows of both sides alone: how='left' goes with 'final' or 'running'",
    }.items():
        with pytest.raises(OptionError, match=sentence):
            join_plan(**{"window": TEN, "emit": Emit.PAIRED} | dict([change]))
