"""Planning asks each broker once, however many partitions there are, and writes little about each."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from keyedwm.kafka.client.connection import Connection
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.requests.produce import send
from tests.tools import Stream, cluster_at

MANY = 300


@pytest.fixture
def sent_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests sent from now on, by kind."""
    request_counts: Counter[str] = Counter()
    submit = Connection.submit

    def counting(self: Connection, node_id: int | None, request: Any) -> Any:
        request_counts[type(request).__name__] += 1
        return submit(self, node_id, request)

    monkeypatch.setattr(Connection, "submit", counting)
    return request_counts


def test_a_batch_costs_one_request_of_each_kind_whatever_the_number_of_partitions(
    kafka, topic_of: Callable[..., str], open_stream: Callable[..., Stream], sent_requests: Counter[str]
) -> None:
    for partitions in (1, MANY):
        topic = topic_of(partitions)
        stream = open_stream(topic, columns="partition,offset,event_time,watermark,control")
        stream.reader.initialOffset()  # until the leaders of a topic made just now are all in place
        for batch in range(3):
            send(cluster_at(kafka.bootstrap), topic, dict.fromkeys(range(partitions), pa.table({"value": ["x"]})))
            sent_requests.clear()
            assert stream.plan()
            assert sent_requests["ListOffsetsRequest"] == 1
            assert sent_requests["OffsetFetchRequest"] == min(batch, 1)
            # The list of partitions is looked at once a second, the group's coordinator once.
            assert sent_requests.total() <= 4, sent_requests
            stream.read()


def test_a_planning_is_not_walked_for_garbage(
    kafka, topic_of: Callable[..., str], open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(MANY)
    stream = open_stream(topic)
    passes: list[str] = []
    for _ in range(2):  # the first one settles the process
        send(cluster_at(kafka.bootstrap), topic, dict.fromkeys(range(MANY), pa.table({"value": ["x"]})))
        gc.collect()
        gc.callbacks.append(noted := lambda phase, _info: passes.append(phase))
        try:
            passes.clear()
            assert stream.plan()
        finally:
            gc.callbacks.remove(noted)
        stream.read()
    assert not passes


def test_more_states_than_a_coordinator_takes_at_once_are_all_committed(
    kafka, topic_of: Callable[..., str], sent_requests: Counter[str]
) -> None:
    topic, cluster = topic_of(MANY), cluster_at(kafka.bootstrap)
    states = {(topic, partition): (0, "x" * 4_000) for partition in range(MANY)}
    assert set(cluster.commit_offsets(f"of-{topic}", states).values()) == {Code.NONE}
    assert sent_requests["OffsetCommitRequest"] == 3
    assert {c.metadata for c in cluster.fetch_offsets(f"of-{topic}", states).values()} == {"x" * 4_000}


def test_the_offset_log_takes_less_than_100_bytes_a_partition(
    kafka, topic_of: Callable[..., str], open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(MANY)
    stream = open_stream(topic, idleTimeout="none")
    for number in range(3):
        rows = pa.table({"value": ["x"] * 400, "timestamp": pa.array([1_700_000_000_000 - number] * 400)})
        send(cluster_at(kafka.bootstrap), topic, dict.fromkeys(range(MANY), rows))
        stream.drain()
    assert stream.reader.reportLatestOffset()["late_events"][topic]["0"] > 0
    size = len(json.dumps(stream.offset, separators=(",", ":")))
    assert size < 100 * MANY
