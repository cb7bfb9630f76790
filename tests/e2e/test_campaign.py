"""A short campaign over both targets: kinds of fault by the seed, and a reader sees each record once, in order."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.starts, pytest.mark.timeout(2_400)]  # minutes on a machine of its own

KILLS = {"delta": 8, "kafka": 9}
LONG = {"large"}  # for make campaign


@pytest.mark.parametrize("target", KILLS)
def test_nothing_is_lost_doubled_or_reordered_whatever_breaks(target, seed, capsys):
    from tests.e2e.campaign import run
    from tests.e2e.faults import FAULTS

    with capsys.disabled():
        print(f"\nseed {seed}")
        (outcome,) = run([target], KILLS[target], seed, [kind for kind in FAULTS if kind not in LONG])
        print(outcome.told())
    assert outcome.failure == ""
    assert outcome.findings.other == []
    assert outcome.findings.told() == "lost 0, doubled 0, reordered 0"
    assert outcome.kinds.total() == KILLS[target]
