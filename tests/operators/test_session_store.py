"""Sessions that keep their messages: late messages that join, limits, and panes by the clock; see `laws`, too."""

from __future__ import annotations

from functools import partial

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.read_only_store import MESSAGES
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.sessions import INDEX
from keyedwm.operators.messages.windows import CompletedBy
from keyedwm.operators.panes import Early
from keyedwm.operators.state.blobs import read_stored
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from tests.operators import stored
from tests.operators.laws.small import SMALL
from tests.operators.stored import messages_of, panes_of, plan_of, table

TEN = SessionWindow(10)
LONG = Retention(time_ms=1_000)

new_messages = partial(messages_of, "offset k time")  # whose value is the time, too
new_panes = partial(panes_of, "k start end n timing index last")
operator_of = partial(stored.operator_of, TEN, retention=LONG)


def test_a_late_message_joins_two_sessions_whose_panes_are_counted_on():
    operator = operator_of(aggregate=median("n"))
    operator.add_message(table(new_messages((0, "a", 0), (1, "a", 5), (2, "a", 20), (3, "b", 6))))
    operator.watermark(31)
    assert new_panes(operator) == [
        ("a", 0, 15, 2.5, "on_time", 0, False), ("b", 6, 16, 6.0, "on_time", 0, False),
        ("a", 20, 30, 20.0, "on_time", 0, False),
    ]  # fmt: skip
    operator.add_message(table(new_messages((4, "a", 6))))
    assert new_panes(operator) == [("a", 0, 16, 5.0, "late", 1, False)]
    operator.add_message(table(new_messages((5, "a", 12))))
    assert new_panes(operator) == [("a", 0, 30, 6.0, "late", 2, False)]


def test_a_session_that_was_shown_and_grows_past_the_watermark_speaks_again_when_it_is_complete():
    operator = operator_of()
    operator.add_message(table(new_messages((0, "a", 0))))
    operator.watermark(11)
    assert new_panes(operator) == [("a", 0, 10, [0], "on_time", 0, False)]
    operator.add_message(table(new_messages((1, "a", 9))))
    assert new_panes(operator) == []
    operator.watermark(20)
    assert new_panes(operator) == [("a", 0, 19, [0, 9], "on_time", 1, False)]


@pytest.mark.parametrize(("touching", "complete_at"), [(Touching.MERGE, 11), (Touching.SEPARATE, 10)])
def test_a_session_is_complete_when_no_message_can_join_it_any_more(touching, complete_at):
    operator = stored.operator_of(SessionWindow(10, touching), retention=LONG)
    operator.add_message(table(new_messages((0, "a", 0))))
    operator.watermark(complete_at - 1)
    assert new_panes(operator) == []
    operator.watermark(complete_at)
    assert [row[:3] for row in new_panes(operator)] == [("a", 0, 10)]
    operator.add_message(table(new_messages((1, "a", 10))))
    assert operator.get_windows(0, 100)["start"].to_pylist() == ([0] if touching is Touching.MERGE else [0, 10])


def test_a_message_outside_the_retention_comes_back_and_one_inside_begins_a_session_where_one_is_gone():
    operator = operator_of(retention=Retention(time_ms=20))
    operator.add_message(table(new_messages((0, "a", 0), (1, "a", 8))))
    operator.watermark(39)  # the session ends at 18
    assert new_panes(operator) == [("a", 0, 18, [0, 8], "on_time", 0, False)]
    operator.add_message(table(new_messages((2, "a", 8), (3, "a", 9))))
    rejected = operator.get_rejected()
    assert (rejected["offset"].to_pylist(), rejected["reason"].to_pylist()) == ([2], ["outside the retention"])
    assert new_panes(operator) == [("a", 9, 19, [9], "late", 0, False)]


def test_a_session_that_never_ends_keeps_its_messages_and_not_those_of_others():
    store = MemoryStore(limits=SMALL)
    operator = operator_of(store=store, retention=Retention(time_ms=20))
    for at in range(0, 1_600, 8):
        operator.add_message(table(new_messages((2 * at, "long", at), (2 * at + 1, f"{at}", at))))
        operator.watermark(at)
        operator.flush()
    held_messages = operator.get_messages(0, 10_000)
    assert held_messages["k"].to_pylist().count("long") == 200
    assert held_messages.num_rows < 220
    stored_rows = sum(
        read_stored(name, blob).num_rows for name, blob in store.blobs.items() if name.startswith(MESSAGES)
    )
    assert stored_rows < 260  # a slice is looked at again only when it is twice as old
    operator.watermark(1_700)
    assert new_panes(operator)[-2][:3] == ("long", 0, 1_602)  # of equal ends the earlier start first
    assert set(store.blobs) <= {MANIFEST, INDEX, *(n for n in store.blobs if n.startswith("messages-"))}
    operator.add_message(table(new_messages((20_000, "z", 9_000))))
    operator.watermark(9_000)
    operator.flush()
    assert [name for name in store.blobs if name.startswith(MESSAGES)] == [f"{MESSAGES}9000"]


def test_a_late_message_reads_the_slices_of_its_session_and_no_others():
    store = MemoryStore(limits=SMALL)
    operator = operator_of(store=store)
    for at in range(0, 600, 20):
        operator.add_message(table(new_messages((at, f"{at}", at))))
        operator.flush()
    operator.watermark(600)
    operator.flush()
    read: list[str] = []

    class RecordingStore(MemoryStore):
        def get(self, name: str) -> bytes:
            read.append(name)
            return super().get(name)

    operator = operator_of(store=RecordingStore(dict(store.blobs), SMALL))
    operator.add_message(table(new_messages((600, "300", 305))))
    assert [row[:4] for row in new_panes(operator)] == [("300", 300, 315, [300, 305])]
    slices = [name for name in read if name.startswith(MESSAGES)]
    assert 1 <= len(slices) <= 2, slices


def test_beyond_a_limit_the_sessions_that_end_first_go_and_say_so():
    operator = operator_of(retention=Retention(max_windows=2))
    operator.add_message(table(new_messages((0, "a", 0), (1, "b", 3), (2, "c", 3), (3, "d", 50))))
    assert new_panes(operator) == [
        ("a", 0, 10, [0], "early", 0, True), ("b", 3, 13, [3], "early", 0, True), ("c", 3, 13, [3], "early", 0, True),
    ]  # fmt: skip
    counts = operator.counts
    assert (counts.dropped_windows, counts.dropped_messages, counts.taken, counts.given) == (3, 3, 4, 4)
    operator.add_message(table(new_messages((4, "a", 3), (5, "a", 4))))
    assert operator.get_rejected()["offset"].to_pylist() == [4]
    assert operator.oldest_offsets() == {("t", 0): 3}


def test_early_and_late_panes_by_the_clock_come_together():
    operator = operator_of(early=Early(every_ms=100), late_every_ms=50)
    operator.add_message(table(new_messages((0, "a", 0), (1, "b", 40))), now_ms=1_000)
    assert operator.next_timeout_ms == 1_100
    operator.timeout(1_099)
    assert new_panes(operator) == []
    operator.timeout(1_100)
    assert [row[:5] for row in new_panes(operator)] == [("a", 0, 10, [0], "early"), ("b", 40, 50, [40], "early")]
    assert operator.next_timeout_ms is None
    operator.watermark(20)
    operator.add_message(table(new_messages((2, "a", 4), (3, "a", 5))), now_ms=1_200)
    assert [row[3:6] for row in new_panes(operator)] == [([0], "on_time", 1)]
    operator.timeout(operator.next_timeout_ms)
    assert [row[3:6] for row in new_panes(operator)] == [([0, 4, 5], "late", 2)]


def test_messages_of_a_session_are_found_by_time_by_key_and_by_offset_within_a_time():
    operator = operator_of()
    operator.add_message(table(new_messages((0, "a", 5), (1, "b", 5), (2, "a", 7), (3, "a", 40))))
    assert operator.get_messages(5, 7, key={"k": "a"})["offset"].to_pylist() == [0, 2]
    assert operator.get_messages((5, 1), (7, 2))["offset"].to_pylist() == [1, 2]
    assert operator.get_messages(0, 100, join_keys={"n": 40})["offset"].to_pylist() == [3]
    windows = operator.get_windows(0, 20, by_key=True).to_pylist()
    assert [(one["k"], one["start"], one["end"], one["messages"]) for one in windows] == [
        ("b", 5, 15, 1),
        ("a", 5, 17, 2),
    ]


def test_what_sessions_cannot_do_is_one_sentence():
    for change, sentence in {
        ("full", CompletedBy.MESSAGE): "full='message' has no meaning for sessions",
        ("accumulating", False): "new messages since its last pane have no meaning of their own",
        ("retention", Retention(time_ms=9)): "the retention of 9 ms is shorter than the gap of 10 ms",
    }.items():
        with pytest.raises(OptionError, match=sentence):
            plan_of(TEN, **dict([change]))
