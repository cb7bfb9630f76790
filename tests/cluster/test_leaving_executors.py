"""Executors that leave while a query runs, as decommissioning and dynamic allocation make them; outputs are exact."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Feed
from tests.cluster.outputs import copied, counted, events_of

pytestmark = [pytest.mark.starts, pytest.mark.cluster]


def reasons(directory) -> str:
    return " ".join(event["Removed Reason"] for event in events_of(directory, "ExecutorRemoved"))


def executors_that_left(directory) -> set[str]:
    """Those with tasks before the driver struck, and none that was launched a second after it or later."""
    struck_ms = (directory / "killed").stat().st_mtime * 1_000
    tasks = [event["Task Info"] for event in events_of(directory, "TaskEnd")]
    at_work = {one["Executor ID"] for one in tasks if one["Launch Time"] < struck_ms}
    return at_work - {one["Executor ID"] for one in tasks if one["Launch Time"] >= struck_ms + 1_000}


@pytest.mark.parametrize("target", ["delta", "kafka"])
def test_an_executor_that_is_decommissioned_costs_no_row(run, kafka, feed: Feed, target):
    directory = run(target=target, kill="leaving", bite=100)
    assert len(executors_that_left(directory)) == 1
    if target == "delta":
        assert counted(directory) == feed.seconds
    else:
        feed.check_copy(copied(kafka.bootstrap, f"{feed.topic}-out"))


def test_executors_that_come_and_go_by_dynamic_allocation_cost_no_row(run, feed: Feed):
    directory = run(target="delta", kill="idle")
    assert "killed by driver" in reasons(directory)
    assert len(events_of(directory, "ExecutorAdded")) > 2
    assert counted(directory) == feed.seconds
