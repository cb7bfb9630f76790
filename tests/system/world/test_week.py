"""Weeks of the simulated world: the invariant holds through deployments and upgrades, and nothing grows day by day."""

from __future__ import annotations

import pytest

from tests.system.world.planted import Bug, planted
from tests.system.world.planted_week import WEEKLY
from tests.system.world.simulate import quiet, run
from tests.system.world.sizes import Table
from tests.system.world.week import DAYS, Week

# A bug -> a seed that shows it and has no violation without it, and words of the violation.
SOON = {
    "a watermark is lost when a setting changes": (22, "the watermark of channel"),
    "the planner keeps every offset": (3, "grows"),
    "the ledger keeps every entry": (2, "grows"),
}


@pytest.mark.starts  # no process, but seconds of time
@pytest.mark.parametrize("target", ["kafka", "delta"])
def test_a_week_is_exact_and_nothing_grows_from_day_to_day(seed: int, target: str) -> None:
    with quiet():
        outcome = run(seed, target=target, kind=Week)
    assert outcome.violation is None, outcome.report()


@pytest.mark.starts  # no process, but seconds of time
@pytest.mark.parametrize("bug", WEEKLY, ids=lambda bug: bug.name)
def test_a_bug_that_only_a_week_shows_falls(bug: Bug) -> None:
    seed, words = SOON[bug.name]
    with quiet(), planted(bug):
        outcome = run(seed, target=bug.target, kind=Week)
    assert words in str(outcome.violation)


def sizes(*entries: tuple[int, int]) -> Table:
    """Days with an entry of so many bytes for so many partitions."""
    of_day = dict.fromkeys(("states", "state bytes", "records", "objects"), 0)
    return Table([{"partitions": partitions, "entry": entry, **of_day} for entry, partitions in entries])


def test_what_grows_with_the_partitions_only_does_not_count() -> None:
    assert sizes(*[(900, 3)] * 4, *[(1_800, 6)] * 3).growth() == []


def test_an_entry_that_grows_each_day_is_named_with_its_sizes() -> None:
    (sentence,) = sizes(*[(900 + 200 * day, 3) for day in range(DAYS)]).growth()
    assert sentence == "entry grows: [900, 1100, 1300, 1500, 1700, 1900, 2100] over the days"
