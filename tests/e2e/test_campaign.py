"""A short campaign over both targets: every kind of fault, and a reader sees each record once, in order."""

from __future__ import annotations

import pytest

KILLS = {"delta": 8, "kafka": 9}


@pytest.mark.parametrize("target", KILLS)
def test_nothing_is_lost_doubled_or_reordered_whatever_breaks(target, seed, capsys):
    from tests.e2e.campaign import run

    with capsys.disabled():
        print(f"\nseed {seed}")
        (outcome,) = run([target], KILLS[target], seed)
        print(outcome.told())
    assert outcome.failure == ""
    assert outcome.findings.other == []
    assert outcome.findings.told() == "lost 0, doubled 0, reordered 0"
    assert outcome.kinds.total() == KILLS[target]
