from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from kafka import KafkaProducer
from kafka import TopicPartition as TheirPartition
from kafka.admin import KafkaAdminClient

from keyedwm.core.errors import DataLossError, UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import OffsetOutOfRangeError, TopicRecreatedError, UnknownTopicError
from keyedwm.kafka.client.values import Codec, Isolation, TopicPartition
from keyedwm.kafka.records.encode import Producer
from keyedwm.kafka.records.read import HEADERS_TYPE, ColumnSelection
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import Fetched, OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import Sender, send
from keyedwm.testing import admin
from tests.tools import PATIENCE_S, wait_until

MakeTopic = Callable[..., str]
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


@pytest.fixture
def small(config: ClientConfig) -> Iterator[Cluster]:
    """A cluster whose fetches are so small that most batches are larger."""
    options = {"bootstrap.servers": config.addresses, "max.partition.fetch.bytes": "3000", "fetch.max.bytes": "7000"}
    connected = Cluster.connect(ClientConfig.from_options(options))
    yield connected
    connected.close()


def checked(fetched: Iterator[Fetched], ranges: list[OffsetRange]) -> list[list[Fetched]]:
    """The answers by range, after a look at what must hold for every one of them."""
    by_range: list[list[Fetched]] = [[] for _ in ranges]
    for part in fetched:
        by_range[part.index].append(part)
    for wanted_range, parts in zip(ranges, by_range, strict=True):
        assert Counter(part.done for part in parts)[True] == 1
        assert parts[-1].done
        assert parts[-1].next_offset == max(wanted_range.start, wanted_range.end)
        offsets = np.concatenate([part.records.offset for part in parts])
        assert (np.diff(offsets) > 0).all()
        assert ((offsets >= wanted_range.start) & (offsets < wanted_range.end)).all()
        positions = [part.next_offset for part in parts]
        assert positions == sorted(positions)
        for part in parts:
            assert part.tp == (wanted_range.topic, wanted_range.partition)
            assert not part.records.count or part.records.offset[-1] < part.next_offset
    return by_range


def values(cluster: Cluster, *ranges: OffsetRange, isolation: Isolation | None = None) -> list[list[bytes]]:
    """The values of each range."""
    parts_of_ranges = checked(read_ranges(cluster, ranges, ColumnSelection(), isolation), list(ranges))
    return [[value for part in parts for value in part.records.value.to_pylist()] for parts in parts_of_ranges]


def numbered(first: int, count: int, size: int = 0) -> pa.Table:
    return pa.table({"value": [b"%d" % i + b"." * size for i in range(first, first + count)]})


def test_every_record_of_many_partitions_comes_once_in_order(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(6)
    for first in (0, 700):
        send(cluster, topic, {p: numbered(first, 700) for p in range(6)}, Codec(first % 5))
    ranges = [OffsetRange(topic, p, 10 * p, 1_400 - p) for p in range(6)]
    assert values(cluster, *ranges) == [[b"%d" % i for i in range(10 * p, 1_400 - p)] for p in range(6)]


def test_batches_larger_than_the_fetch_arrive_whole_and_nobody_starves(small: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    for first in range(0, 90, 30):
        send(small, topic, {p: numbered(first, 30, size=500 * p) for p in range(3)})
    values_of_ranges = values(small, *(OffsetRange(topic, p, 5, 88) for p in range(3)))
    assert values_of_ranges == [[b"%d" % i + b"." * 500 * p for i in range(5, 88)] for p in range(3)]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_goes_through_a_real_broker(cluster: Cluster, make_topic: MakeTopic, codec: Codec) -> None:
    topic = make_topic(1)
    table = pa.table({
        "key": pa.array([None, b"", b"k"]),
        "value": pa.array([b"v" * 5_000, None, b""]),
        "headers": pa.array([[("a", b"1"), ("a", None)], None, [("ü", b"")]], HEADERS_TYPE),
        "timestamp": pa.array([5, 3, 2**40], pa.timestamp("ms", "UTC")),
    })  # fmt: skip
    assert send(cluster, topic, {0: table}, codec) == {(topic, 0): 3}
    ((part,),) = checked(
        read_ranges(cluster, [OffsetRange(topic, 0, 0, 3)], ColumnSelection(headers=True)),
        [OffsetRange(topic, 0, 0, 3)],
    )
    assert part.records.key.equals(table["key"].combine_chunks())
    assert part.records.value.equals(table["value"].combine_chunks())
    assert part.records.headers.to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [{"key": "ü", "value": b""}],
    ]
    assert part.records.timestamp_ms.tolist() == [5, 3, 2**40]
    assert part.records.timestamp_type.tolist() == [0, 0, 0]


def test_log_append_time_is_told_from_create_time(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1, message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    send(cluster, topic, {0: pa.table({"value": ["a", "b"], "timestamp": [1, 2]})})
    (part,) = read_ranges(cluster, [OffsetRange(topic, 0, 0, 2)])
    assert part.records.timestamp_type.tolist() == [1, 1]
    assert part.records.timestamp_ms[0] == part.records.timestamp_ms[1] >= before_ms


def test_an_empty_range_is_done_at_once(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    assert values(cluster, OffsetRange(topic, 0, 0, 0)) == [[]]


def test_two_ranges_of_one_partition_are_both_read(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    send(cluster, topic, {0: numbered(0, 10)})
    values_of_ranges = values(cluster, OffsetRange(topic, 0, 6, 9), OffsetRange(topic, 0, 0, 4))
    assert values_of_ranges == [[b"6", b"7", b"8"], [b"0", b"1", b"2", b"3"]]


@pytest.fixture
def transactional(config: ClientConfig, topic: str) -> Iterator[KafkaProducer]:
    """kafka-python's own transactional producer: an independent writer."""
    producer = KafkaProducer(bootstrap_servers=config.addresses, transactional_id=topic)
    producer.init_transactions()
    yield producer
    producer.close()


def _stable(cluster: Cluster, topic: str, offset: int) -> None:
    """Wait until the markers are written: a commit is answered before."""
    wait_until(lambda: cluster.latest([(topic, 0)], COMMITTED) == {(topic, 0): offset}, "the marker")


def _write(producer: KafkaProducer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush()


def test_transactions_are_seen_by_isolation(
    cluster: Cluster, make_topic: MakeTopic, transactional: KafkaProducer
) -> None:
    name = make_topic(1)
    transactional.begin_transaction()
    _write(transactional, name, b"a", b"b")
    transactional.commit_transaction()
    transactional.begin_transaction()
    _write(transactional, name, b"lost")
    transactional.abort_transaction()
    _stable(cluster, name, 5)
    send(cluster, name, {0: pa.table({"value": ["plain"]})})
    transactional.begin_transaction()
    _write(transactional, name, b"open")
    # a b MARKER lost MARKER plain open
    stable, end = cluster.latest([(name, 0)], COMMITTED)[name, 0], cluster.latest([(name, 0)], UNCOMMITTED)[name, 0]
    assert (stable, end) == (6, 7)
    assert values(cluster, OffsetRange(name, 0, 0, stable), isolation=COMMITTED) == [[b"a", b"b", b"plain"]]
    assert values(cluster, OffsetRange(name, 0, 0, end), isolation=UNCOMMITTED) == [
        [b"a", b"b", b"lost", b"plain", b"open"]
    ]
    # A range that holds nothing but a marker, or nothing but aborted records, ends as any other.
    assert values(cluster, OffsetRange(name, 0, 2, 3), OffsetRange(name, 0, 3, 5), isolation=COMMITTED) == [[], []]
    transactional.commit_transaction()
    assert values(cluster, OffsetRange(name, 0, 5, 8), isolation=COMMITTED) == [[b"plain", b"open"]]


def test_a_range_that_ends_in_a_marker_is_done(
    cluster: Cluster, make_topic: MakeTopic, transactional: KafkaProducer
) -> None:
    name = make_topic(1)
    transactional.begin_transaction()
    _write(transactional, name, b"a")
    transactional.commit_transaction()
    _stable(cluster, name, 2)
    for isolation in Isolation:
        assert values(cluster, OffsetRange(name, 0, 0, 2), isolation=isolation) == [[b"a"]]
        assert values(cluster, OffsetRange(name, 0, 1, 2), isolation=isolation) == [[]]


def test_what_a_transactional_sender_wrote_is_seen_once_it_commits(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    producer = KafkaProducer(bootstrap_servers=cluster.config.addresses, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    _write(producer, topic, b"theirs")
    who = producer._transaction_manager.producer_id_and_epoch
    sender = Sender(cluster, Producer(who.producer_id, who.epoch, transactional=True), transactional_id=topic)
    sender.sequences[topic, 0] = 1  # type: ignore[index]
    sender.send(topic, {0: numbered(0, 3)})
    sender.send(topic, {0: numbered(3, 2)})
    assert cluster.latest([(topic, 0)], COMMITTED) == {(topic, 0): 0}
    producer.commit_transaction()
    producer.close()
    _stable(cluster, topic, 7)
    assert values(cluster, OffsetRange(topic, 0, 0, 7), isolation=COMMITTED) == [
        [b"theirs", *(b"%d" % i for i in range(5))]
    ]


def test_holes_left_by_compaction_are_no_loss(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(
        1, cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.001", max_compaction_lag_ms="50"
    )
    record_count = 0
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        send(
            cluster, topic, {0: pa.table({"key": ["same", "same", f"other {record_count}"], "value": ["x", "y", "z"]})}
        )
        record_count += 3
        present = at_their_offsets(cluster, OffsetRange(topic, 0, 0, record_count))
        if len(present) < record_count - 9:
            break
        assert time.monotonic() < deadline_s, "the broker's cleaner never ran"
        time.sleep(0.5)
    missing = sorted(set(range(record_count)) - present)
    inside = OffsetRange(topic, 0, missing[0], missing[0] + 1)
    assert values(cluster, inside) == [[]], "a range that is one hole has no rows and is done"
    to_a_hole = at_their_offsets(cluster, OffsetRange(topic, 0, 0, missing[1] + 1))
    # The cleaner may have run again; what no later record replaces stays.
    kept_offsets = set(range(2, missing[1] + 1, 3))
    assert kept_offsets <= to_a_hole <= {offset for offset in present if offset <= missing[1]}


def at_their_offsets(cluster: Cluster, wanted_range: OffsetRange) -> set[int]:
    """The offsets of a range that have a record; each must be the one that was written there."""
    (parts,) = checked(read_ranges(cluster, [wanted_range]), [wanted_range])
    offsets_and_values = [
        (int(offset), value)
        for part in parts
        for offset, value in zip(part.records.offset, part.records.value.to_pylist(), strict=True)
    ]
    assert [value for _, value in offsets_and_values] == [b"xyz"[offset % 3 :][:1] for offset, _ in offsets_and_values]
    return {offset for offset, _ in offsets_and_values}


def test_records_that_were_deleted_are_a_data_loss_with_the_range_left(
    cluster: Cluster, config: ClientConfig, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    send(cluster, topic, {0: numbered(0, 10)})
    admin = KafkaAdminClient(bootstrap_servers=config.addresses)
    admin.delete_records({TheirPartition(topic, 0): 4})
    admin.close()
    with pytest.raises(DataLossError, match=rf"offset 2 of {topic}-0 .* holds the offsets 4 to 9") as caught:
        list(read_ranges(cluster, [OffsetRange(topic, 0, 2, 10)]))
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 (our own bytes)
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.topic, error.partition, error.offset, error.earliest, error.latest) == (topic, 0, 2, 4, 10)
    with pytest.raises(OffsetOutOfRangeError, match="offset 11"):
        list(read_ranges(cluster, [OffsetRange(topic, 0, 11, 12)]))


def test_a_log_that_ends_before_the_range_is_a_data_loss(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    send(cluster, topic, {0: numbered(0, 3)})
    reading = read_ranges(cluster, [OffsetRange(topic, 0, 0, 5)], stall_ms=300)
    assert next(reading).records.count == 3
    with pytest.raises(OffsetOutOfRangeError, match=rf"offset 3 of {topic}-0 .* holds the offsets 0 to 2"):
        list(reading)


def test_offsets_that_stay_unstable_end_in_an_error_not_in_a_hang(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    transaction = txn.begin(cluster, topic, 60_000)
    txn.add_partitions(cluster, transaction, [TopicPartition(topic, 0)])
    Sender(cluster, transaction.producer, transactional_id=topic).send(topic, {0: numbered(0, 3)})
    with pytest.raises(UnavailableError, match=rf"nothing after offset 0 of {topic}-0"):
        list(read_ranges(cluster, [OffsetRange(topic, 0, 0, 3)], isolation=Isolation.READ_COMMITTED, stall_ms=300))
    txn.end(cluster, [transaction], commit=False)


def test_records_that_come_late_are_waited_for(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    send(cluster, topic, {0: numbered(0, 1)})
    reading = read_ranges(cluster, [OffsetRange(topic, 0, 0, 2)])
    assert not next(reading).done
    send(cluster, topic, {0: numbered(1, 1)})
    assert next(reading).done
    assert next(reading, None) is None


def test_a_topic_deleted_while_it_is_read_is_named(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    send(cluster, topic, {0: numbered(0, 3)})
    reading = read_ranges(cluster, [OffsetRange(topic, 0, 0, 10)])
    next(reading)
    admin.delete_topic(cluster, topic)
    with pytest.raises(UnknownTopicError, match=topic):
        list(reading)


def test_only_wanted_columns_come(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    send(cluster, topic, {0: numbered(0, 3)})
    (part,) = read_ranges(cluster, [OffsetRange(topic, 0, 0, 3)], ColumnSelection(key=False, value=False))
    assert (part.records.key, part.records.value, part.records.headers) == (None, None, None)
    assert part.records.offset.tolist() == [0, 1, 2]


def test_a_topic_recreated_while_it_is_read_is_a_data_loss_however_many_records_it_has(
    cluster: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    send(cluster, topic, {0: numbered(0, 3)})
    planned = cluster.topic_ids([topic])[topic]
    reading = read_ranges(cluster, [OffsetRange(topic, 0, 0, 10)])
    assert next(reading).records.count == 3
    admin.delete_topic(cluster, topic)
    admin.create_topic(cluster, topic)
    send(cluster, topic, {0: numbered(0, 50)})
    with pytest.raises(TopicRecreatedError, match=f"{topic!r} was deleted and recreated: its topic id was {planned}"):
        list(reading)
    with pytest.raises(TopicRecreatedError):
        list(read_ranges(cluster, [OffsetRange(topic, 0, 0, 10, planned)]))
    assert values(cluster, OffsetRange(topic, 0, 0, 10, cluster.topic_ids([topic])[topic])) == [
        [b"%d" % i for i in range(10)]
    ]
