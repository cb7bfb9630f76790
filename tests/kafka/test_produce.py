from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from kafka.protocol.producer import ProduceRequest

from keyedwm.core.errors import FencedError, InputError, UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import UnknownTopicError
from keyedwm.kafka.client.values import Codec, Isolation, TopicPartition, WireLimits
from keyedwm.kafka.records.encode import Producer
from keyedwm.kafka.records.read import HEADERS_TYPE
from keyedwm.kafka.requests import produce
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.metadata import Leader
from keyedwm.kafka.requests.produce import Sender, new_producer, send
from keyedwm.testing.admin import create_topic, delete_topic

MakeTopic = Callable[..., str]


def read(cluster: Cluster, topic: str, end: int) -> list[bytes]:
    return [
        value
        for part in read_ranges(cluster, [OffsetRange(topic, 0, 0, end)])
        for value in part.records.value.to_pylist()  # type: ignore[union-attr]
    ]


def test_several_tables_by_one_sender_follow_each_other(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    sender = Sender(cluster, new_producer(cluster), codec=Codec.LZ4)
    for first in (0, 3, 6):
        table = pa.table({"value": [b"%d" % i for i in range(first, first + 3)]})
        assert sender.send(topic, {0: table, 1: table.slice(0, 0)}) == {(topic, 0): first + 3}
    assert read(cluster, topic, 9) == [b"%d" % i for i in range(9)]


def test_a_topic_takes_many_batches_in_the_moment_it_is_created(cluster: Cluster, new_topic: Callable[[], str]) -> None:
    table = pa.table({"value": [b"x" * 100_000] * 40})  # five batches
    for _ in range(20):
        topic = new_topic()
        create_topic(cluster, topic, 3)
        ends = send(cluster, topic, dict.fromkeys(range(3), table))
        delete_topic(cluster, topic)
        assert list(ends.values()) == [40] * 3


def test_a_repeated_batch_is_written_once(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    producer = new_producer(cluster)
    table = pa.table({"value": ["a", "b"]})
    for _ in range(2):
        Sender(cluster, producer).send(topic, {0: table})
    assert cluster.latest([(topic, 0)]) == {(topic, 0): 2}


def test_moved_leaders_are_looked_up_and_order_is_kept(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    cluster.partitions([topic])
    cluster.metadata._topics[topic].leaders[0] = Leader(4711, -1)  # type: ignore[index]
    send(cluster, topic, {0: pa.table({"value": [b"%06d" % i + b"x" * 400 for i in range(20_000)]})})
    assert [value[:6] for value in read(cluster, topic, 20_000)] == [b"%06d" % i for i in range(20_000)]


def test_a_record_that_the_topic_does_not_take_is_an_input_error(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1, max_message_bytes="1000")
    with pytest.raises(InputError, match=rf"{topic}-0 rejected a batch of .* max\.message\.bytes"):
        send(cluster, topic, {0: pa.table({"value": [b"x" * 2_000]})})


def test_a_gap_in_the_sequence_is_an_error(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    sender = Sender(cluster, new_producer(cluster))
    sender.send(topic, {0: pa.table({"value": ["a"]})})
    sender.sequences[topic, 0] = 7  # type: ignore[index]
    with pytest.raises(UnavailableError, match=f"{topic}-0 no longer remembers which batches"):
        sender.send(topic, {0: pa.table({"value": ["b"]})})


def test_a_producer_of_an_older_epoch_is_fenced(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    number = new_producer(cluster).producer_id
    Sender(cluster, Producer(number, 3)).send(topic, {0: pa.table({"value": ["a"]})})
    with pytest.raises(FencedError, match=f"{topic}-0"):
        Sender(cluster, Producer(number, 2)).send(topic, {0: pa.table({"value": ["b"]})})


def test_a_missing_partition_is_named_before_anything_is_written(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with pytest.raises(UnknownTopicError, match=f"topic '{topic}' has no partition 3"):
        send(cluster, topic, {3: pa.table({"value": ["a"]})})


@pytest.mark.parametrize(
    ("table", "column_name"),
    [
        (pa.table({"vaule": ["a"]}), "column vaule"),
        (pa.table({"value": ["a"], "timestamp": pa.array([None], pa.int64())}), "column timestamp has nulls"),
    ],
)
def test_a_column_that_cannot_be_written_is_named(
    cluster: Cluster, make_topic: MakeTopic, table: pa.Table, column_name: str
) -> None:
    with pytest.raises(InputError, match=column_name):
        send(cluster, make_topic(1), {0: table})


def many(count: int) -> pa.Table:
    """Records of 400 bytes that do not compress to much less, numbered."""
    chance = random.Random(count)
    headers = [[("n", b"%d" % i)] if i % 3 else None for i in range(count)]
    return pa.table({
        "value": [b"%06d" % i + chance.randbytes(394) for i in range(count)],
        "headers": pa.array(headers, HEADERS_TYPE),
    })  # fmt: skip


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_are_no_larger_than_the_topic_takes(cluster: Cluster, make_topic: MakeTopic, codec: Codec) -> None:
    topic = make_topic(1, max_message_bytes="5000")
    assert send(cluster, topic, {0: many(2_000)}, codec) == {(topic, 0): 2_000}
    assert [value[:6] for value in read(cluster, topic, 2_000)] == [b"%06d" % i for i in range(2_000)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_that_is_too_large_is_cut_in_order_and_written_once(
    cluster: Cluster, make_topic: MakeTopic, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2, max_message_bytes="30000")
    # As for who may not read the topic's configuration, or reads it before it is lowered.
    monkeypatch.setattr(Cluster, "largest_batch_bytes", lambda *_: None)
    monkeypatch.setattr(cluster, "config", replace(cluster.config, limits=WireLimits(batch_bytes=400_000)))
    sender = Sender(cluster, new_producer(cluster), codec=codec)
    assert sender.send(topic, {0: many(3_000), 1: many(10)}) == {(topic, 0): 3_000, (topic, 1): 10}
    assert sender.send(topic, {0: many(3_000)}) == {(topic, 0): 6_000}
    twice = [b"%06d" % i for i in range(3_000)] * 2
    assert [value[:6] for value in read(cluster, topic, 6_000)] == twice


def test_a_batch_that_is_too_large_is_cut_within_its_transaction(
    cluster: Cluster, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1, max_message_bytes="30000")
    monkeypatch.setattr(Cluster, "largest_batch_bytes", lambda *_: None)
    transaction = txn.begin(cluster, topic, 60_000)
    txn.add_partitions(cluster, transaction, [TopicPartition(topic, 0)])
    Sender(cluster, transaction.producer, transactional_id=topic).send(topic, {0: many(2_000)})
    assert txn.end(cluster, [transaction], commit=True) == {transaction: txn.Fate.COMMITTED}
    values = [
        value
        for part in read_ranges(cluster, [OffsetRange(topic, 0, 0, 2_000)], isolation=Isolation.READ_COMMITTED)
        for value in part.records.value.to_pylist()  # type: ignore[union-attr]
    ]
    assert [value[:6] for value in values] == [b"%06d" % i for i in range(2_000)]


def test_the_batch_size_that_the_user_gives_is_kept(config: ClientConfig, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    client_config = ClientConfig.from_options({"bootstrap.servers": config.addresses, "batch.size": "10000"})
    with closing(Cluster.connect(client_config)) as cluster:
        sizes: list[int] = []
        submit = cluster.connection.submit

        def submit_counted(node: int | None, request: Any) -> Any:
            if isinstance(request, ProduceRequest):
                sizes.append(len(request.topic_data[0].partition_data[0].records))
            return submit(node, request)

        cluster.connection.submit = submit_counted  # type: ignore[method-assign]
        assert send(cluster, topic, {0: many(500)}) == {(topic, 0): 500}
    assert len(sizes) >= 20
    assert max(sizes) <= 10_000 + 61


def test_a_host_whose_clock_is_wrong_is_named_with_what_its_clock_reads(
    cluster: Cluster, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, two_hours_on = make_topic(1), time.time_ns() + 7_200 * 1_000_000_000
    monkeypatch.setattr(produce.time, "time_ns", lambda: two_hours_on)
    sentence = (
        rf"{topic}-0 rejected records for their time, .* the clock of {socket.gethostname()} reads 20.* set it right"
    )
    with pytest.raises(UnavailableError, match=sentence):
        send(cluster, topic, {0: pa.table({"value": [b"a"]})})
