"""Pairs of messages of sessions, and which of the pairs are new.

Rule: each pair comes once. Two messages were paired before if both were in one session when it was shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.operators.grouping import ranges
from keyedwm.operators.messages.join.pairs import NONE
from keyedwm.operators.messages.join.plan import LEFT, RIGHT, Keep


@dataclass(frozen=True, slots=True)
class Members:
    """Messages of one side, in order within a session.

    sessions: the session of each, ascending. spans: the session in which each was shown before, NONE for a new message.
    known: flags of messages with a key; others have no match.
    """

    sessions: Ints
    spans: Ints
    known: Flags


def turns(at: Ints, record: Sequence[pa.ChunkedArray]) -> Ints:
    """Return for each message of a call its place in order of event time and record; a record has one place."""
    ranks = [ints(contiguous(pc.rank(one, tiebreaker="dense")).cast(pa.int64())) for one in record]
    _, places = np.unique(np.stack([at, *ranks]), axis=1, return_inverse=True)
    return np.asarray(places, np.int64).reshape(-1)


def in_turn(keys: Ints, arrivals: Ints) -> Iterator[Ints]:
    """Yield the places of messages, one of each key: the first messages of all keys, then the second, and so on."""
    order = np.lexsort((arrivals, keys))
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    turn = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    borders = np.cumsum(np.bincount(turn))[:-1]
    yield from np.split(order[np.argsort(turn, kind="stable")], borders)


def new_pairs(left: Members, right: Members, most: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the places of the messages of each side that are in one session, and were not shown in one before.

    At least one piece comes. A piece holds left messages with about `most` pairs together, or one message with more.
    """
    counts = np.diff(np.searchsorted(right.sessions, [left.sessions, left.sessions + 1]), axis=0)[0]
    behind = np.cumsum(counts)
    edges = np.searchsorted(behind, np.arange(most, behind[-1] if len(behind) else 0, most))
    for places in np.split(np.arange(len(counts)), sorted_distinct(edges)):
        part = Members(left.sessions[places], left.spans[places], left.known[places])
        at_left, at_right = _new_pairs(part, right)
        yield places[at_left], at_right


def _new_pairs(left: Members, right: Members) -> tuple[Ints, Ints]:
    sides = (left, right)
    new = [np.flatnonzero(side.known & (side.spans == NONE)) for side in sides]
    old = [np.flatnonzero(side.known & (side.spans != NONE)) for side in sides]
    every = [np.flatnonzero(side.known) for side in sides]
    joined = _joining(sides, old)
    products = [
        _products(sides, new[LEFT], every[RIGHT]),
        _products(sides, old[LEFT], new[RIGHT]),
        _products(sides, *joined),
    ]
    at_left, at_right = (np.concatenate(places) for places in zip(*products, strict=True))
    differs = (left.spans[at_left] != right.spans[at_right]) | (left.spans[at_left] == NONE)
    return at_left[differs], at_right[differs]


def chosen_pairs(left: Members, right: Members, keep: Keep) -> tuple[Ints, Ints]:
    """Return for each session with both sides the first message of each side, or the last ones, if the pair is new."""
    heads = []
    for side in (left, right):
        places = np.flatnonzero(side.known)
        heads.append(places[_one_each(side.sessions[places], keep)])
    _, at_left, at_right = np.intersect1d(left.sessions[heads[LEFT]], right.sessions[heads[RIGHT]], return_indices=True)
    at_left, at_right = heads[LEFT][at_left], heads[RIGHT][at_right]
    differs = (left.spans[at_left] != right.spans[at_right]) | (left.spans[at_left] == NONE)
    return at_left[differs], at_right[differs]


def unmatched_places(members: Members, other: Members, keep: Keep) -> Ints:
    """Return the places of new messages whose session lacks the other side; with `keep`, one of each session."""
    is_matched = np.isin(members.sessions, other.sessions[other.known]) & members.known
    places = np.flatnonzero(~is_matched)
    if keep is not Keep.ALL:
        some = places[members.known[places]]
        some = some[_one_each(members.sessions[some], keep)]
        places = np.sort(np.concatenate([some, places[~members.known[places]]]))
    return places[members.spans[places] == NONE]


def _one_each(sessions: Ints, keep: Keep) -> Ints:
    """Return the place of the first message of each session, or of the last one. sessions: ascending."""
    return np.flatnonzero(np.diff(sessions, prepend=-1) if keep is Keep.FIRST else np.diff(sessions, append=-1))


def _joining(sides: tuple[Members, Members], old: list[Ints]) -> list[Ints]:
    """Return the old messages whose session joins several shown sessions: only these can form new pairs."""
    sessions = np.concatenate([side.sessions[places] for side, places in zip(sides, old, strict=True)])
    spans = np.concatenate([side.spans[places] for side, places in zip(sides, old, strict=True)])
    distinct = np.unique(np.stack([sessions, spans]), axis=1)[0]
    several, counts = np.unique(distinct, return_counts=True)
    return [
        places[np.isin(side.sessions[places], several[counts > 1])] for side, places in zip(sides, old, strict=True)
    ]


def _products(sides: tuple[Members, Members], at_left: Ints, at_right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of these messages within one session."""
    left_sessions, others = sides[LEFT].sessions[at_left], sides[RIGHT].sessions[at_right]
    first, behind = np.searchsorted(others, left_sessions), np.searchsorted(others, left_sessions, side="right")
    counts = behind - first
    rows = np.repeat(np.arange(len(left_sessions)), counts)
    return at_left[rows], at_right[ranges(first, counts)]
