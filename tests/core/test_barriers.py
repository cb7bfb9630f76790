"""The rules of barriers that the product runs (rule 12)."""

from __future__ import annotations

import pytest

from keyedwm.core.barriers import (
    align,
    collect_cuts,
    first_behind_barrier,
    first_incomplete,
    following_snapshot,
    preceding_snapshot,
    undelivered,
)
from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind


def barrier(channel: str, snapshot: int, channels: int, source: str | None = None) -> ControlRow:
    return ControlRow(
        kind=ControlKind.BARRIER, channel=channel, offset=0, snapshot=snapshot, channels=channels, source=source
    )


def test_barriers_of_one_snapshot_are_one_cut_in_whatever_order_they_come():
    rows = [barrier("t-1", 4, 2), barrier("t-0", 4, 2), barrier("t-0", 4, 2)]
    idle = ControlRow(kind=ControlKind.IDLE, channel="t-0", offset=0)
    for order in (rows, rows[::-1], [idle, *rows]):
        (snapshot_cut,) = collect_cuts(order)
        assert (snapshot_cut.snapshot, snapshot_cut.expected, snapshot_cut.arrived, snapshot_cut.is_whole) == (
            4,
            2,
            ("t-0", "t-1"),
            True,
        )


def test_a_cut_that_lacks_a_channel_is_not_whole_and_names_who_is_missing():
    cuts = collect_cuts([barrier("t-0", 4, 2), barrier("u-0", 9, 1)])
    snapshot_cut = first_incomplete(cuts)
    assert snapshot_cut is cuts[0]
    assert (snapshot_cut.delivered, snapshot_cut.expected, undelivered(cuts, ["t-0", "t-1", "u-0"])) == (1, 2, ("t-1",))


def test_named_sources_are_checked_each_on_its_own_and_unnamed_ones_only_together():
    rows = [barrier("t-0", 4, 2), barrier("u-0", 4, 2)]  # each source lacks a channel, together they have two
    assert first_incomplete(collect_cuts(rows)) is None
    cuts = collect_cuts([barrier("t-0", 4, 2, "t"), barrier("u-0", 4, 2, "u")])
    assert [(snapshot_cut.source, snapshot_cut.is_whole) for snapshot_cut in cuts] == [("t", False), ("u", False)]


def test_ids_go_up_by_one_and_a_channel_that_was_away_rejoins():
    (snapshot_cut,) = collect_cuts([barrier("t-0", 4, 2), barrier("t-1", 4, 2)])
    assert preceding_snapshot(snapshot_cut, {"t-0": 3, "t-1": 1, "u-0": 9}, {}) == 3
    assert preceding_snapshot(snapshot_cut, {"t-0": None}, {}) is None
    assert (following_snapshot([]), following_snapshot([None, 3, 1])) == (0, 4)


def test_the_last_snapshot_of_a_source_counts_also_when_all_of_its_channels_were_away():
    (snapshot_cut,) = collect_cuts([barrier("t-0", 9, 1, "t")])
    assert preceding_snapshot(snapshot_cut, {"t-0": 3}, {"t": 8, "u": 20}) == 8
    assert preceding_snapshot(snapshot_cut, {"t-0": 3}, {"u": 20}) == 3


def test_the_barrier_of_no_channel_is_the_whole_snapshot_of_its_source():
    none = ControlRow(kind=ControlKind.BARRIER, snapshot=5, channels=0, source="t")
    empty, other = collect_cuts([barrier("u-0", 4, 2, "u"), none])
    assert (empty.source, empty.expected, empty.arrived, empty.is_whole) == ("t", 0, (), True)
    assert first_incomplete([empty, other]) is other


@pytest.mark.parametrize(("top", "first"), [(4, None), (5, "t-0"), (6, "t-0")])
def test_an_event_at_or_behind_its_barrier_is_found(top, first):
    assert first_behind_barrier({"t-0": 5, "t-1": None}, {"t-0": top, "t-1": 7, "u-0": 1}) == first


def test_the_slowest_channel_decides_and_the_channels_ahead_wait():
    assert align({"t-0": 5, "t-1": 3, "t-2": 3}) == (3, frozenset({"t-0"}))
    assert align({"t-0": 5}) == (5, frozenset())
    assert align({}) == (None, frozenset())
