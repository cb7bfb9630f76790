"""Every kind of window in every setting, as parameters of a test, and a seed for each."""

from __future__ import annotations

import pytest

from keyedwm.operators.messages.windows import CompletedBy
from tests.operators.laws.kinds import CASES, KINDS, Kind, case_id

every_case = pytest.mark.parametrize(("kind", "window", "full"), CASES, ids=case_id)
# Every window of every kind once, its ways to be complete in turn: the command plays all of them.
_FULLS_IN_TURN = [
    (kind, window, kind.fulls[number % len(kind.fulls)]) for kind in KINDS for number, window in enumerate(kind.windows)
]
every_window = pytest.mark.parametrize(("kind", "window", "full"), _FULLS_IN_TURN, ids=case_id)


def seed_of(kind: Kind, window: object, full: CompletedBy) -> int:
    """The seed of one case; the cases of a kind have others each, so that together they have all its settings."""
    place = CASES.index((kind, window, full))
    return place + place // 2  # odd and even seeds for each `full`, which take turns
