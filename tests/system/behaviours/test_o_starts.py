"""O03, and explicit starts that the log does not hold."""

from __future__ import annotations

import json

import pytest
from kafka.protocol.admin import DeleteRecordsRequest

from keyedwm.core.errors import DataLossError
from keyedwm.kafka.client.connection import Retry
from keyedwm.kafka.client.values import TopicPartition
from tests.tools import Stream, cluster_at, events

LARGEST = str(2**63 - 1)


def values(stream: Stream) -> list[int]:
    return [int(row["value"]) for batch in stream.drain() for row in events(batch)]


@pytest.fixture
def five(topic_of, send) -> str:
    topic = topic_of()
    send(topic, 0, range(5))
    return topic


def test_the_largest_cap_does_not_overflow(five, send, open_stream):
    """O03."""
    stream = open_stream(five, startingOffsets=json.dumps({five: {"0": 5}}), maxOffsetsPerTrigger=LARGEST)
    assert values(stream) == []
    send(five, 0, range(30, 35))
    assert values(stream) == [30, 31, 32, 33, 34]


@pytest.mark.parametrize("cap", [{}, {"maxOffsetsPerTrigger": "3"}], ids=["all", "capped"])
def test_a_start_beyond_the_end_fails_or_goes_on_from_the_end(five, send, open_stream, cap):
    beyond = json.dumps({five: {"0": 10}})
    with pytest.raises(
        DataLossError, match=rf"{five}-0 is to start at offset 10, and its log holds the offsets 0 to 4"
    ):
        open_stream(five, cap, startingOffsets=beyond).batch()
    stream = open_stream(five, cap, startingOffsets=beyond, failOnDataLoss="false")
    assert values(stream) == []
    send(five, 0, [5, 6])
    assert values(stream) == [5, 6]


def test_a_start_before_the_first_record_kept_fails_or_goes_on_from_that_record(kafka, five, open_stream):
    forget(kafka.bootstrap, five, before=3)
    early = json.dumps({five: {"0": 1}})
    with pytest.raises(DataLossError, match=rf"{five}-0"):
        open_stream(five, startingOffsets=early).batch()
    assert values(open_stream(five, startingOffsets=early, failOnDataLoss="false")) == [3, 4]


def forget(bootstrap: str, topic: str, *, before: int) -> None:
    """Move the beginning of partition 0, as retention does."""
    cluster = cluster_at(bootstrap)
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    parts = [kind.DeleteRecordsPartition(partition_index=0, offset=before)]
    request = DeleteRecordsRequest(topics=[kind(name=topic, partitions=parts)], timeout_ms=30_000, max_version=1)
    (node,) = cluster.leaders([TopicPartition(topic, 0)], Retry(cluster.config, f"forgetting records of {topic}"))
    answer = cluster.connection.call(node, request)
    assert answer.topics[0].partitions[0].error_code == 0
