"""A short campaign over both targets: kinds of fault by the seed, and a reader sees each record once, in order."""

from __future__ import annotations

import random

import pytest

from tests.e2e.faults import FAULTS, LOCAL

pytestmark = [pytest.mark.starts, pytest.mark.timeout(2_400)]  # minutes on a machine of its own

TARGETS = ("delta", "kafka")
# For make campaign. Two queries on one checkpoint meet in tests/sink/test_two_drivers.py and test_delta_tables.py, too.
LEFT_OUT = {"large", "duplicate"}


def kinds_of(target: str, seed: int) -> list[str]:
    """Every kind strikes one of the two by the seed, the driver's death both; of Kafka's own kinds one is drawn."""
    chance = random.Random(f"{seed} kinds")
    here = {kind: fault for kind, fault in FAULTS.items() if LOCAL in fault.where and kind not in LEFT_OUT}
    shared = [kind for kind, fault in here.items() if set(TARGETS) <= set(fault.targets) and kind != "driver"]
    chance.shuffle(shared)
    only_kafka = chance.choice([kind for kind, fault in here.items() if fault.targets == ("kafka",)])
    half = len(shared) // 2
    return ["driver", *{"delta": shared[:half], "kafka": [*shared[half:], only_kafka]}[target]]


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_lost_doubled_or_reordered_whatever_breaks(target, seed, capsys):
    from tests.e2e.campaign import run

    kinds = kinds_of(target, seed)
    with capsys.disabled():
        print(f"\nseed {seed}")
        (outcome,) = run([target], len(kinds), seed, kinds)
        print(outcome.told())
    assert outcome.failure == ""
    assert outcome.findings.other == []
    assert outcome.findings.told() == "lost 0, doubled 0, reordered 0"
    assert sorted(outcome.kinds.elements()) == sorted(kinds)
