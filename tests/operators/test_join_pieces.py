"""A hot key of a join of windows: its pairs leave piece by piece, so that they never lie in memory together."""

from __future__ import annotations

import random

import pytest

from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, tumbling
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.plan import Keep
from keyedwm.operators.messages.join.window_join import join_operator
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import tumbling_rows
from keyedwm.operators.state.store import LIMITS, MemoryStore, StateLimits
from tests.operators.laws.kinds import SESSIONS as WINDOWS
from tests.operators.session_joins import SIDES, differential, join_plan
from tests.operators.stored import Message, table

PIECE = 7
HOT = {
    "tumbling": (tumbling(100), Retention(time_ms=1_000)),
    "sliding": (SlidingWindow(100, 25), Retention(time_ms=1_000)),
    "rows": (tumbling_rows(30), Retention(max_messages=1_000)),
    "sessions": (SessionWindow(50), Retention(time_ms=1_000)),
}


def pair_outputs(window, retention, how: How, limits: StateLimits = LIMITS) -> list:
    """Return the outputs of 20 by 15 messages of one key, and two of others, that come in two calls."""
    keep = Keep.ALL
    operator = join_operator(join_plan(window, keep, how, retention), MemoryStore(limits=limits))
    chance, outputs = random.Random(5), []
    for half in (0, 1):
        for number, side in enumerate(SIDES):
            size = (20, 15)[number] // 2
            rows = [Message("hot", 0, chance.randrange(100), side, 0, half * 30 + at) for at in range(size)]
            rows.append(Message(f"{side} alone", 0, 50, side, 0, half * 30 + size))
            outputs += operator.on_rows(number, table(rows), None)
    for number in range(len(SIDES)):
        outputs += operator.on_watermark(number, 0, 10_000)
    return outputs


CASES = [(window, how) for window in HOT for how in (How.INNER, How.FULL) if (window, how) != ("rows", How.FULL)]


@pytest.mark.parametrize(("window", "how"), CASES, ids=str)
def test_more_pairs_than_a_piece_holds_leave_in_several(window, how):
    whole = pair_outputs(*HOT[window], how)
    assert max(one.rows.num_rows for one in whole) > 2 * PIECE
    pieces = pair_outputs(*HOT[window], how, StateLimits(piece_rows=PIECE))
    most = 16 if window == "sessions" else PIECE  # at least the pairs of one left message
    unpaired_rows = 4
    assert max(one.rows.num_rows for one in pieces) <= most + unpaired_rows
    pair_texts, expected_texts = (
        [str(row) for one in outputs for row in one.rows.to_pylist()] for outputs in (pieces, whole)
    )
    assert sorted(pair_texts) == sorted(expected_texts)
    assert len(set(pair_texts)) == len(pair_texts)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_joins_of_sessions_in_small_pieces_are_those_of_the_model(window):
    assert (
        sum(
            differential(seed, window, 20, limits=StateLimits(piece_rows=2))
            for seed in range(WINDOWS.index(window), 24, 9)
        )
        > 5
    )
