"""Executors of a cluster are killed wherever a batch can be; the output is exact, in Delta and in Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import EVENTS, Feed
from tests.cluster.outputs import copied, counted, events_of

pytestmark = [pytest.mark.starts, pytest.mark.cluster]

IN_EVERY_RUN = pytest.param("windows", marks=pytest.mark.every_run)


def check_killed(directory: Path, kill: str) -> None:
    """The kill has fallen, Spark has lost an executor by it, and every executor was on another host than the driver."""
    assert (directory / "struck").exists()
    assert (directory / "killed").exists() == (kill == "sink, after")
    assert events_of(directory, "ExecutorRemoved")
    hosts = {event["Executor Info"]["Host"] for event in events_of(directory, "ExecutorAdded")}
    assert hosts == {"127.0.0.2", "127.0.0.3"}


@pytest.mark.parametrize("kill", ["stage one", IN_EVERY_RUN, "sink, before", "sink, after"])
def test_windows_in_delta_are_exact_when_an_executor_is_killed(run, feed: Feed, kill):
    directory = run(target="delta", kill=kill)
    assert counted(directory) == feed.seconds
    assert sum(feed.seconds.values()) == EVENTS
    check_killed(directory, kill)


@pytest.mark.parametrize("kill", ["sink, before", pytest.param("sink, after", marks=pytest.mark.every_run)])
def test_records_in_kafka_are_there_once_when_an_executor_is_killed(run, kafka, feed: Feed, kill):
    directory = run(target="kafka", kill=kill)
    feed.check_copy(copied(kafka.bootstrap, f"{feed.topic}-out"))
    check_killed(directory, kill)
