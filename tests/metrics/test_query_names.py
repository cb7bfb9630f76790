"""Queries that take, leave or change a name: each event counts for the query that it is about."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from keyedwm.spark.failures.checkpoint_errors import Failures
from keyedwm.spark.metrics import catalogue as of
from keyedwm.spark.metrics.exporter import MetricsListener
from tests.metrics.told import QUERY, RUN, Told, value, values
from tests.source.plans import Simulation

ORDERS = ("orders",)
AFTER, AFTER_RUN = "33333333-3333-3333-3333-333333333333", "44444444-4444-4444-4444-444444444444"


def test_the_last_events_of_an_ended_query_leave_the_running_query_of_its_name(figures, clock):
    """Spark reports a start at once, but progress and ends through a queue."""
    old = Told(Simulation({0: [1_000]}))
    figures.started(old.id, old.run, "orders")
    figures.started(AFTER, AFTER_RUN, "orders")
    figures.progressed(old.progress())
    figures.terminated(old.id, old.run, failed=False)
    clock.now_s += 60
    figures.idle(AFTER, AFTER_RUN)
    assert values(figures, of.QUERY_ACTIVE) == {ORDERS: 1}
    assert values(figures, of.LAST_EVENT) == {ORDERS: 1_060}
    assert values(figures, of.BATCHES) == {}


def test_a_failure_counts_also_behind_the_last_events_of_another_query_of_the_name(figures):
    old = Told(Simulation({0: [1_000]}))
    figures.started(old.id, old.run, "orders")
    figures.started(AFTER, AFTER_RUN, "orders")
    figures.progressed(old.progress())
    figures.terminated(old.id, old.run, failed=False)
    figures.terminated(AFTER, AFTER_RUN, failed=True)
    assert values(figures, of.QUERY_FAILURES) == {ORDERS: 1}
    assert values(figures, of.QUERY_ACTIVE) == {ORDERS: 0}


def test_the_failure_of_an_ended_query_counts_for_its_name_although_a_later_query_has_it(figures):
    figures.started(QUERY, RUN, "orders")
    figures.started(AFTER, AFTER_RUN, "orders")
    figures.terminated(QUERY, RUN, failed=True)
    assert values(figures, of.QUERY_FAILURES) == {ORDERS: 1}
    assert values(figures, of.QUERY_ACTIVE) == {ORDERS: 1}


def test_an_end_that_is_reported_twice_counts_once(figures):
    figures.started(QUERY, RUN, "orders")
    for _ in range(2):
        figures.terminated(QUERY, RUN, failed=True)
    assert values(figures, of.QUERY_FAILURES) == {ORDERS: 1}


@dataclass
class Running:
    """A query of a session, as `spark.streams.active` lists it."""

    isActive: bool  # noqa: N815 (Spark's own name)
    id: str = QUERY
    runId: str = RUN  # noqa: N815
    name: str = "orders"

    def exception(self) -> Exception | None:
        return None if self.isActive else ValueError()


@pytest.mark.parametrize("ends_before", [False, True])
def test_a_query_that_ran_before_the_listener_and_fails_before_its_next_batch_is_counted(figures, ends_before):
    session = SimpleNamespace(streams=SimpleNamespace(active=[], get=lambda _id: None))
    listener = MetricsListener(figures, SimpleNamespace(changed=lambda: None), Failures(session))
    listener.add_running([Running(isActive=not ends_before)])
    listener.onQueryTerminated(SimpleNamespace(id=QUERY, runId=RUN, exception="ValueError"))
    assert values(figures, of.QUERY_FAILURES) == {ORDERS: 1}
    assert values(figures, of.QUERY_ACTIVE) == {ORDERS: 0}


def test_a_session_that_exports_again_keeps_the_names_of_its_queries(figures):
    """A second call of `metrics` has a listener with another number, which reports the same queries."""
    told = Told(Simulation({0: [1_000]}))
    figures.started(told.id, told.run, "orders", session=1)
    figures.progressed(told.progress(), session=2)
    figures.started(AFTER, AFTER_RUN, "orders", session=2)
    figures.terminated(told.id, told.run, failed=False)
    assert values(figures, of.QUERY_ACTIVE) == {ORDERS: 1}


def test_a_query_that_fails_after_a_long_idle_time_is_not_forgotten(figures):
    figures.started(QUERY, RUN, "orders")
    for number in range(20):
        figures.started(str(number), "run", None)
        figures.terminated(str(number), "run", failed=False)
    figures.idle(QUERY, RUN)
    figures.terminated(QUERY, RUN, failed=True)
    assert value(figures, of.QUERY_FAILURES, *ORDERS) == 1
    assert value(figures, of.QUERY_ACTIVE, *ORDERS) == 0
    assert len(values(figures, of.QUERY_ACTIVE)) == 20


def test_queries_are_forgotten_in_the_order_of_their_ends(figures):
    numbers = [str(number) for number in range(25)]
    for number in numbers:
        figures.started(number, "run", None)
    for number in reversed(numbers):
        figures.terminated(number, "run", failed=False)
    assert {labels[0] for labels in values(figures, of.QUERY_ACTIVE)} == set(numbers[:20])


def test_a_query_that_starts_under_another_name_has_its_figures_there(figures):
    told = Told(Simulation({0: [1_000]}), name="a")
    figures.started(told.id, told.run, "a")
    figures.progressed(told.progress())
    figures.started(told.id, "the next run", "b")
    told.simulation.logs[0].append(2_000)
    figures.progressed(told.progress())  # the last batch of the run before, which had the other name
    assert values(figures, of.QUERY_ACTIVE) == {("b",): 1}
    assert values(figures, of.BATCHES) == {("b",): 2}


def test_the_name_that_a_restart_left_is_free_for_another_query(figures):
    figures.started(QUERY, "first", "a")
    figures.terminated(QUERY, "first", failed=False)
    figures.started(QUERY, "second", "b")
    figures.started(AFTER, AFTER_RUN, "a")
    assert values(figures, of.QUERY_ACTIVE) == {("b",): 1, ("a",): 1}
    figures.terminated(QUERY, "second", failed=True)
    assert values(figures, of.QUERY_FAILURES) == {("b",): 1, ("a",): 0}


def test_a_restart_takes_no_name_from_a_running_query_of_another_session(figures):
    figures.started(AFTER, AFTER_RUN, "b", session=2)
    figures.started(QUERY, "first", "a", session=1)
    figures.started(QUERY, "second", "b", session=1)
    assert values(figures, of.QUERY_ACTIVE) == {("b",): 1, (f"b {QUERY}",): 1}
    figures.started(QUERY, "third", "b", session=1)
    assert values(figures, of.QUERY_ACTIVE) == {("b",): 1, (f"b {QUERY}",): 1}
