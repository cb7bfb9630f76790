"""O08 and O09: transactional topics under both isolation levels."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.produce import Sender
from tests.tools import cluster_at, events, wait_until

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def begin(kafka) -> Callable[..., Callable[[str], None]]:
    """Write values to partition 0 in a new transaction; gives what ends it and waits for its marker."""
    cluster = cluster_at(kafka.bootstrap)

    def write(topic: str, numbers: range) -> Callable[[bool], None]:
        begun = txn.begin(cluster, f"{topic}-{uuid.uuid4().hex}", 900_000)
        place = TopicPartition(topic, 0)
        txn.add_partitions(cluster, begun, [place])
        sender = Sender(cluster, begun.producer, transactional_id=begun.transactional_id)
        (after,) = sender.send(topic, {0: pa.table({"value": [b"%d" % n for n in numbers]})}).values()

        def finish(how: str) -> None:
            txn.end(cluster, [begun], commit=how == "commit")
            stable = Isolation.READ_COMMITTED
            wait_until(lambda: cluster.latest([place], stable)[place] == after + 1, "the transaction's marker")

        return finish

    return write


def values(batch: pa.Table | None) -> list[int]:
    return [] if batch is None else [int(row["value"]) for row in events(batch)]


def test_read_uncommitted_shows_open_and_aborted_data_and_no_markers(topic_of, begin, open_stream):
    """O08: markers lie at offsets 5, 11 and 17; they count against the cap and are never rows."""
    topic = topic_of()
    stream = open_stream(topic, maxOffsetsPerTrigger="3")
    end = begin(topic, range(5))
    assert [values(stream.batch()) for _ in range(2)] == [[0, 1, 2], [3, 4]]
    end("commit")
    stream.drain()
    end = begin(topic, range(6, 11))
    assert [values(stream.batch()) for _ in range(2)] == [[6, 7, 8], [9, 10]]
    end("abort")
    stream.drain()
    begin(topic, range(12, 17))("commit")
    assert [values(stream.batch()) for _ in range(2)] == [[12, 13, 14], [15, 16]]
    assert [values(batch) for batch in stream.drain() if values(batch)] == []


def test_read_committed_shows_nothing_before_the_commit_and_nothing_aborted(topic_of, begin, open_stream):
    """O08's script as read_committed sees it."""
    topic = topic_of()
    stream = open_stream(topic, COMMITTED, maxOffsetsPerTrigger="3")
    end = begin(topic, range(5))
    assert [values(batch) for batch in stream.drain() if values(batch)] == []
    end("commit")
    assert [values(stream.batch()) for _ in range(2)] == [[0, 1, 2], [3, 4]]
    begin(topic, range(6, 11))("abort")
    assert [values(batch) for batch in stream.drain() if values(batch)] == []
    begin(topic, range(12, 17))("commit")
    assert [values(batch) for batch in stream.drain() if values(batch)] == [[12, 13, 14], [15, 16]]


def test_what_is_committed_while_a_batch_is_read_belongs_to_the_next_one(topic_of, begin, open_stream):
    """O09."""
    topic = topic_of()
    begin(topic, range(4))("commit")
    stream = open_stream(topic, COMMITTED)
    assert stream.plan()
    begin(topic, range(4, 8))("commit")
    assert values(stream.read()) == [0, 1, 2, 3]
    assert values(stream.batch()) == [4, 5, 6, 7]
