"""Every kind of window in every setting, as parameters of a test, and the seeds that each is played with."""

from __future__ import annotations

import pytest

from keyedwm.operators.messages.windows import CompletedBy
from tests.operators.laws.kinds import CASES, Kind, case_id

every_case = pytest.mark.parametrize(("kind", "window", "full"), CASES, ids=case_id)


def seeds(kind: Kind, window: object, full: CompletedBy, count: int) -> range:
    """Seeds of one case; the cases of a kind have others each, so that together they have all its settings."""
    place = CASES.index((kind, window, full))
    first = place * count + place // 2  # odd and even seeds for each `full`, which take turns
    return range(first, first + count)
