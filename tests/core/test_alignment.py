"""Rule 12: barriers become snapshots; inputs read in order; rules 1 and 13 after a restore."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.models.alignment import Aborted, Alignment, Completed
from conformance.models.inbound import Barrier, End, Event, Inbound, Terminal
from conformance.models.snapshots import SnapshotLedger
from keyedwm.core.errors import InputError, KeyedwmError, OutOfTurnError
from keyedwm.core.watermark import Guarantee, IdleMarker, Watermark
from tests.seeds import times

AT_LEAST_ONCE = Guarantee.AT_LEAST_ONCE
EXACTLY_ONCE = Guarantee.EXACTLY_ONCE


def test_exactly_once_holds_a_channel_from_its_barrier_until_all_delivered():
    it = Alignment("abc")
    assert it.barrier("a", 5) == []
    assert it.barrier("c", 5) == []
    assert it.blocked_channels() == {"a", "c"}
    assert it.barrier("b", 5) == [Completed(5)]
    assert it.blocked_channels() == frozenset()


def test_at_least_once_holds_nobody_and_completing_forgets_older_open_snapshots():
    it = Alignment("ab", guarantee=AT_LEAST_ONCE)
    it.barrier("a", 1)
    it.barrier("a", 2)
    assert it.blocked_channels() == frozenset()
    assert it.barrier("b", 2) == [Completed(2)]
    assert it.barrier("b", 1) == []


def test_a_finished_channel_is_not_waited_for_even_if_it_had_delivered():
    it = Alignment("abc")
    it.barrier("a", 0)
    assert it.done("a") == []
    it.barrier("b", 0)
    assert it.done("c") == [Completed(0)]
    assert it.barrier("b", 1) == [Completed(1)]


def test_a_newer_barrier_aborts_the_open_snapshot_and_older_ones_are_ignored():
    it = Alignment("ab")
    it.barrier("a", 1)
    assert it.barrier("b", 2) == [Aborted(1)]
    assert it.blocked_channels() == {"b"}
    assert it.barrier("a", 1) == []
    assert it.barrier("a", 2) == [Completed(2)]


def test_a_newer_barrier_is_refused_where_nothing_may_be_skipped():
    it = Alignment("ab", subsume=False)
    it.barrier("a", 1)
    with pytest.raises(OutOfTurnError, match="channel b delivered the barrier of snapshot 2 while snapshot 1 was open"):
        it.barrier("b", 2)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_cancelled_snapshot_is_aborted_with_older_open_ones_and_its_barriers_are_ignored(guarantee):
    it = Alignment("ab", guarantee=guarantee)
    it.barrier("a", 1)
    assert it.cancel(3) == [Aborted(1), Aborted(3)]
    assert it.cancel(3) == []
    assert it.blocked_channels() == frozenset()
    assert it.barrier("b", 3) == []
    it.barrier("a", 4)
    assert it.barrier("b", 4) == [Completed(4)]


def test_at_least_once_a_cancelled_snapshot_leaves_newer_ones_open():
    it = Alignment("ab", guarantee=AT_LEAST_ONCE)
    it.barrier("a", 2)
    assert it.cancel(1) == [Aborted(1)]
    assert it.barrier("b", 2) == [Completed(2)]


def test_at_least_once_at_most_fifty_snapshots_stay_open_the_oldest_is_forgotten():
    it = Alignment("ab", guarantee=AT_LEAST_ONCE)
    for snapshot_id in range(51):
        it.barrier("a", snapshot_id)
    assert it.barrier("b", 0) == []
    assert it.barrier("b", 1) == [Completed(1)]


def test_a_barrier_comes_once_from_channels_that_are_live():
    it = Alignment("ab")
    it.barrier("a", 1)
    with pytest.raises(OutOfTurnError, match="twice"):
        it.barrier("a", 1)
    it.done("b")
    for refused in (lambda: it.barrier("b", 2), lambda: it.done("b"), lambda: it.barrier("x", 2)):
        with pytest.raises(OutOfTurnError, match="is done or was never added"):
            refused()
    with pytest.raises(OutOfTurnError, match="added twice"):
        it.add("a")
    it.add("c")
    assert it.barrier("a", 2) == []
    assert it.barrier("c", 2) == [Completed(2)]


def test_a_terminal_barrier_makes_at_least_once_hold_for_good():
    it = Alignment("ab", guarantee=AT_LEAST_ONCE)
    it.barrier("a", 1, terminal=True)
    assert it.blocked_channels() == {"a"}


def test_snapshot_ids_go_up_by_one_and_one_is_open_at_a_time():
    ledger = SnapshotLedger().begin(0)
    with pytest.raises(OutOfTurnError, match="snapshot 1 was begun while snapshot 0 is open"):
        ledger.begin(1)
    with pytest.raises(OutOfTurnError, match="snapshot 1 was sealed, but snapshot 0 is open"):
        ledger.seal(1)
    ledger = ledger.seal(0)
    assert ledger.sealed_id == 0
    for wrong in (0, 2):
        with pytest.raises(OutOfTurnError, match="the next id is 1"):
            ledger.begin(wrong)
    ledger = ledger.begin(1).abort(1)
    assert (ledger.sealed_id, ledger.next_id) == (0, 2)
    with pytest.raises(OutOfTurnError, match="none is open"):
        ledger.abort(1)
    assert ledger.begin(2).restored() == SnapshotLedger(next_id=3, sealed_id=0)


def test_a_snapshot_id_is_not_negative():
    with pytest.raises(InputError):
        Barrier(-1)


def put(inbound, channel, *items):
    for item in items:
        inbound.append_item(channel, item)


def test_exactly_once_nothing_behind_a_barrier_comes_out_before_it():
    it = Inbound("ab")
    put(it, "a", Event(1), Barrier(0), Event("behind"), Watermark(0, 9))
    put(it, "b", Event(2), Watermark(0, 5))
    assert it.drain() == [Event(1), Event(2)]
    put(it, "b", Barrier(0))
    assert it.drain() == [Barrier(0), Event("behind"), Watermark(0, 5)]


def test_at_least_once_reads_on_behind_a_barrier():
    it = Inbound("ab", guarantee=AT_LEAST_ONCE)
    put(it, "a", Barrier(0), Event("behind"))
    assert it.drain() == [Event("behind")]
    put(it, "b", Barrier(0))
    assert it.drain() == [Barrier(0)]


def test_an_idle_marker_behind_an_event_leaves_the_channel_idle():
    it = Inbound("ab")
    put(it, "a", Event(1), IdleMarker())
    put(it, "b", Watermark(0, 2))
    assert it.drain() == [Event(1), Watermark(0, 2)]


def test_the_end_comes_out_once_when_every_channel_has_ended():
    it = Inbound("ab")
    put(it, "a", Watermark(0, 9), End.END)
    assert it.drain() == []
    put(it, "b", End.END)
    assert it.drain() == [Watermark(0, 9), End.END]
    assert it.drain() == []


def test_an_end_behind_a_terminal_barrier_does_not_move_the_watermark_before_it():
    it = Inbound("ab", guarantee=AT_LEAST_ONCE)
    put(it, "a", Watermark(0, 3), Terminal(Barrier(1)), End.END)
    put(it, "b", Watermark(0, 2))
    assert it.drain() == [Watermark(0, 2)]
    put(it, "b", Terminal(Barrier(1)), End.END)
    assert it.drain() == [Terminal(Barrier(1)), Watermark(0, 3), End.END]


def test_what_is_no_item_and_who_is_no_channel_is_refused():
    it = Inbound("a")
    with pytest.raises(OutOfTurnError, match="channel x is not known"):
        it.append_item("x", Event(1))
    it.append_item("a", "text")
    with pytest.raises(OutOfTurnError, match="no item of a channel"):
        it.drain()


items = st.one_of(
    st.builds(Event, st.integers(0, 9)),
    st.builds(Watermark, st.integers(0, 1), st.integers(0, 30)),
    st.just(IdleMarker()),
    st.just(Barrier(0)),
)


def feed(run, guarantee, restore):
    it = Inbound("abc", guarantee=guarantee)
    following = dict.fromkeys("abc", 0)
    answers = []
    for channel, item in run:
        barrier = isinstance(item, Barrier)
        it.append_item(channel, Barrier(following[channel]) if barrier else item)
        following[channel] += barrier
        if restore:
            it = Inbound.restore(it.snapshot(), guarantee=guarantee)
        try:
            answers.append(it.drain())
        except KeyedwmError as error:
            answers.append(type(error))
            break
    return answers, it.snapshot()


inputs = st.lists(st.tuples(st.sampled_from("abc"), items), max_size=40)


@given(inputs, st.sampled_from(Guarantee))
@settings(max_examples=times(50))
def test_a_restored_input_goes_on_as_if_nothing_happened(run, guarantee):
    assert feed(run, guarantee, restore=True) == feed(run, guarantee, restore=False)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40))
def test_a_snapshot_cuts_every_channel_at_its_barrier(run):
    it = Inbound("abc")
    sent, following, cut = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0), {}
    out = []
    for channel, barrier in run:
        if barrier:
            cut[following[channel], channel] = sent[channel]
            it.append_item(channel, Barrier(following[channel]))
            following[channel] += 1
        else:
            it.append_item(channel, Event((channel, sent[channel])))
            sent[channel] += 1
        out += it.drain()
    seen = dict.fromkeys("abc", 0)
    for item in out:
        if isinstance(item, Barrier):
            assert seen == {channel: cut[item.snapshot_id, channel] for channel in "abc"}
        else:
            channel, number = item.payload
            assert number == seen[channel]
            seen[channel] += 1
