"""How large the cases of the join benchmark are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.join import CASES, Case
from benchmarks.targets import FULL_BATCHES
from benchmarks.turns import Bench


def asked(case: Case, records: int | None, batches: int | None) -> Case:
    nowhere = SimpleNamespace()
    return case.sized_for(Bench(nowhere, nowhere, (), records, pairs=1, batches=batches))


@pytest.mark.parametrize("name", CASES)
def test_full_batches_are_of_the_cases_size_unless_fewer_records_are_asked_for(name):
    case = CASES[name]
    assert asked(case, None, None) == case
    long = asked(case, None, FULL_BATCHES)
    assert (long.left, long.batch, long.keys) == (FULL_BATCHES * case.batch, case.batch, case.keys)
    short = asked(case, case.left, FULL_BATCHES)
    assert (short.left, short.batch) == (case.left, case.left // FULL_BATCHES)
    assert long.fan_out == short.fan_out == case.fan_out


def test_fewer_records_than_a_batch_are_one_batch():
    assert asked(CASES["latest"], 1_000, None) == Case(1_000, 1_000, 1_000, latest=True)
