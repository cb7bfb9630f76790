"""Weeks of the simulated world: the invariant holds through deployments and upgrades, and nothing grows day by day."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.system.world.feed import LAG_MS, TOPIC
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


class _Deployed(Week):
    """Three batches, then one deployment; nothing happens by chance."""

    option, value = "", ""

    def trouble(self) -> None:
        for _ in range(3):
            self._turn(self.queries[0])
        self.faults.of = self._chosen
        self.deploy()

    def deploy(self) -> None:
        self._deploy()

    def _chosen(self, _fault: str, choices: Sequence[str]) -> str:
        return self.option if self.option in choices else self.value


class _Replaced(_Deployed):
    """The driver dies before its last batch is in the commit log, or seems to; its successor has other watermarks."""

    option, value = "watermarkLag", f"{2 * LAG_MS} milliseconds"

    def deploy(self) -> None:
        (query,) = self.queries
        query.checkpoint.committed -= 1
        super().deploy()
        for _ in range(3):
            self._turn(query)
        self.faults.trace.clear()
        for _ in range(8):
            self._beside(query.zombie.again, "the zombie")
        assert set(re.findall(r"batch (\d): \d tasks", "\n".join(self.faults.trace))) == {"1", "2"}


class _Restored(_Deployed):
    """Another query continues from a savepoint, and somebody restores the table whenever that can be noticed."""

    option = "savepoint"

    def deploy(self) -> None:
        super().deploy()
        strikes = self.faults.strikes
        self.faults.strikes = lambda name, where="": name == "table older" or strikes(name, where)
        self._turn(self.queries[0])
        self.faults.strikes = strikes
        assert self.moved


class _Accepted(Week):
    """Records of a published batch are deleted before its replay, and somebody accepts the loss."""

    def trouble(self) -> None:
        (query,) = self.queries
        for _ in range(3):
            self._turn(query)
        query.checkpoint.committed -= 1
        query.end(is_dead=True)
        for partition in self.feeder.records:
            self.feeder.delete_before(partition, self.brokers.logs[TOPIC, partition].end)
        self.faults.struck["retention ahead"] += 1
        query.source |= {"failOnDataLoss": "false"}
        self._turn(query)


@pytest.mark.parametrize("target", ["kafka", "delta"])
def test_a_query_may_stop_at_a_published_batch_whose_records_are_gone_by_permission(target: str) -> None:
    with quiet():
        outcome = run(1, only=frozenset(), target=target, kind=_Accepted)
    assert outcome.violation is None, outcome.report()
    assert "gives other rows when it runs again" in str(outcome.stopped)


@pytest.mark.parametrize("target", ["kafka", "delta"])
def test_a_driver_that_was_taken_for_dead_runs_its_own_batches_only_and_reads_them_by_its_own_lag(target: str) -> None:
    with quiet():
        outcome = run(1, only=frozenset(), target=target, kind=_Replaced)
    assert outcome.violation is None, outcome.report()


@pytest.mark.parametrize("target", ["iceberg", "delta"])
def test_no_table_is_restored_before_the_first_batch_after_a_savepoint(target: str) -> None:
    with quiet():
        outcome = run(1, only=frozenset(), target=target, kind=_Restored)
    assert outcome.violation is None, outcome.report()


def sizes(*entries: tuple[int, int]) -> Table:
    """Days with an entry of so many bytes for so many partitions."""
    of_day = dict.fromkeys(("states", "state bytes", "records", "objects"), 0)
    return Table([{"partitions": partitions, "entry": entry, **of_day} for entry, partitions in entries])


def test_what_grows_with_the_partitions_only_does_not_count() -> None:
    assert sizes(*[(900, 3)] * 4, *[(1_800, 6)] * 3).growth() == []


def test_an_entry_that_grows_each_day_is_named_with_its_sizes() -> None:
    (sentence,) = sizes(*[(900 + 200 * day, 3) for day in range(DAYS)]).growth()
    assert sentence == "entry grows: [900, 1100, 1300, 1500, 1700, 1900, 2100] over the days"
