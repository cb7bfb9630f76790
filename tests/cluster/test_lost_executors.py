"""Executors of a cluster are killed wherever a batch can be; the output is exact, in Delta and in Kafka."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cluster.conftest import EVENTS, Feed

pytestmark = [pytest.mark.starts, pytest.mark.cluster]


def counted(directory: Path) -> Counter:
    """What the table says: name and second → events, each row as often as it is there."""
    rows = DeltaTable(directory / "table").to_pyarrow_table(columns=["name", "second", "events"]).to_pylist()
    told = [(row["name"], round(row["second"].timestamp() * 1_000), row["events"]) for row in rows]
    assert len({place[:2] for place in told}) == len(told)
    return Counter({(name, ms): events for name, ms, events in told})


def copied(bootstrap: str, topic: str) -> Counter:
    """The values that a reader of committed records finds, each as often as it is there."""
    from keyedwm.core.inline import HEADER
    from keyedwm.kafka.fetch import OffsetRange, read_ranges
    from keyedwm.kafka.records import Wanted
    from keyedwm.kafka.values import Isolation, TopicPartition
    from tests.tools import cluster_at, settle

    settle(bootstrap, topic)
    cluster = cluster_at(bootstrap)
    places = [TopicPartition(topic, partition) for partition in cluster.partitions([topic])[topic]]
    ends = cluster.latest(places, Isolation.READ_COMMITTED)
    ranges = [OffsetRange(topic, place.partition, 0, ends[place]) for place in places if ends[place]]
    parts = read_ranges(cluster, ranges, Wanted(control_header=HEADER), Isolation.READ_COMMITTED)
    return Counter(value for part in parts for value in part.records.value.to_pylist())


def events_of(directory: Path, kind: str) -> list[dict]:
    """What Spark logged of one kind, over all drivers."""
    lines = [line for log in sorted((directory / "events").iterdir()) for line in log.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["Event"] == f"SparkListener{kind}"]


def check_killed(directory: Path, kill: str) -> None:
    """The kill has fallen, Spark has lost an executor by it, and every executor was on another host than the driver."""
    assert (directory / "struck").exists()
    assert (directory / "killed").exists() == (kill == "sink, after")
    assert events_of(directory, "ExecutorRemoved")
    hosts = {event["Executor Info"]["Host"] for event in events_of(directory, "ExecutorAdded")}
    assert hosts == {"127.0.0.2", "127.0.0.3"}


@pytest.mark.parametrize("kill", ["stage one", "windows", "sink, before", "sink, after"])
def test_windows_in_delta_are_exact_when_an_executor_is_killed(run, feed: Feed, kill):
    directory = run(target="delta", kill=kill)
    assert counted(directory) == feed.seconds
    assert sum(feed.seconds.values()) == EVENTS
    check_killed(directory, kill)


@pytest.mark.parametrize("kill", ["sink, before", "sink, after"])
def test_records_in_kafka_are_there_once_when_an_executor_is_killed(run, kafka, feed: Feed, kill):
    directory = run(target="kafka", kill=kill)
    assert copied(kafka.bootstrap, f"{feed.topic}-out") == feed.values
    check_killed(directory, kill)
