"""Seeds of the simulated world: the invariant holds, a seed replays exactly, and chance is all that differs."""

from __future__ import annotations

import pytest

from tests.system.world.faults import Strike
from tests.system.world.simulate import quiet, run

SEEDS, CHUNK = 75, 25  # more by `make simulate`


@pytest.fixture(autouse=True)
def silent():
    with quiet():
        yield


def claim(first: int) -> None:
    failed = [outcome for outcome in map(run, range(first, first + CHUNK)) if outcome.violation is not None]
    assert not failed, "\n".join(outcome.report() for outcome in failed)


@pytest.mark.starts  # no process, but it takes long
def test_a_committed_reader_sees_the_exact_rows_once_in_order_or_a_sentence_names_the_fact(seed: int) -> None:
    claim(seed)


@pytest.mark.starts  # no process, but minutes of time
@pytest.mark.parametrize("chunk", range(1, SEEDS // CHUNK))
def test_more_seeds_of_the_same(seed: int, chunk: int) -> None:
    claim(seed + chunk * CHUNK)


@pytest.mark.parametrize(("number", "target"), [(3, "delta"), (4, "kafka"), (2, "iceberg")])
def test_a_seed_replays_exactly(seed: int, number: int, target: str) -> None:
    first, second = run(seed + number, target=target), run(seed + number, target=target)
    assert first.trace == second.trace
    assert first == second


def test_a_query_may_stop_on_watermarks_that_its_copy_has_published_to_a_restored_table() -> None:
    strikes = ("copied checkpoint:3", "append late:4", "table older:2")
    outcome = run(9632, only=frozenset(map(Strike.parse, strikes)), target="delta")
    assert outcome.violation is None
