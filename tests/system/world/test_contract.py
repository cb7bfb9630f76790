"""One contract: the simulated brokers and a second implementation of Kafka answer the client as a real broker does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from kafka import TopicPartition as TheirPartition
from kafka.admin import KafkaAdminClient

from keyedwm.core.errors import FencedError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import Retry
from keyedwm.kafka.client.errors import Code, OffsetOutOfRangeError, TopicRecreatedError, UnknownTopicError
from keyedwm.kafka.client.values import Committed, Isolation, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.fetch_requests import RangeReader, fetch_request
from keyedwm.kafka.requests.produce import Sender, send
from keyedwm.kafka.requests.transactional_offsets import commit_as
from keyedwm.kafka.requests.transactions import (
    Fate,
    IdHolder,
    Transaction,
    add_partitions,
    begin,
    end,
    holder,
    lingering,
    statuses,
)
from keyedwm.testing.admin import create_topic
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.log import Clock
from tests.support import kafka_versions
from tests.support.kfake_server import kfake
from tests.system.world.wire import SimulatedConnection
from tests.tools import remake, wait_until

TIMEOUT_MS = 60_000
DeleteBefore = Callable[[int], None]
exactly_once = kafka_versions.since("3.0", "DescribeTransactions and ListTransactions")


@pytest.fixture(scope="module")
def kfake_address() -> Iterator[str]:
    with kfake() as address:
        yield address


@pytest.fixture(params=["simulated", *(pytest.param(name, marks=pytest.mark.starts) for name in ("real", "kfake"))])
def place(request: pytest.FixtureRequest, topic: str) -> Iterator[tuple[Cluster, Callable[[], None], DeleteBefore]]:
    """A client, what deletes the topic and creates it anew, and what deletes records of its first partition."""
    if request.param == "simulated":
        brokers = Brokers(Clock())
        brokers.create(topic, 2)
        config = ClientConfig.from_options({"bootstrap.servers": "world:1", "default.api.timeout.ms": "2000"})
        simulated = Cluster(SimulatedConnection(brokers, config, lambda _node, _request, answer, _limit_ms: answer()))
        yield simulated, lambda: brokers.recreate(topic, 2), brokers.logs[topic, 0].retain
        return
    if request.param == "kfake":
        bootstrap = request.getfixturevalue("kfake_address")
    else:
        bootstrap = request.getfixturevalue("kafka").bootstrap
    connected = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
    create_topic(connected, topic, 2)

    def delete_before(offset: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.delete_records({TheirPartition(topic, 0): offset})
        admin.close()

    yield connected, lambda: remake(bootstrap, topic, 2), delete_before
    connected.close()


@pytest.fixture
def cluster(place: tuple[Cluster, Callable[[], None], DeleteBefore]) -> Cluster:
    return place[0]


@pytest.fixture
def topic() -> str:
    return f"contract-{uuid.uuid4().hex[:8]}"


def begun(cluster: Cluster, topic: str, *values: str, name: str | None = None) -> Transaction:
    transaction = begin(cluster, name or f"id-{uuid.uuid4().hex}", TIMEOUT_MS)
    add_partitions(cluster, transaction, [TopicPartition(topic, 0)])
    written(cluster, topic, transaction, *values)
    return transaction


def written(cluster: Cluster, topic: str, transaction: Transaction, *values: str) -> None:
    sender = Sender(cluster, transaction.producer, transactional_id=transaction.transactional_id)
    sender.send(topic, {0: pa.table({"value": list(values)})})


def read(cluster: Cluster, topic: str, last: int, isolation: Isolation) -> list[str]:
    values: list[str] = []
    for fetched in read_ranges(cluster, [OffsetRange(topic, 0, 0, last)], isolation=isolation):
        values += pa.array(fetched.records.value).cast(pa.string()).to_pylist()
    return values


def ends(cluster: Cluster, topic: str) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    place = TopicPartition(topic, 0)
    return tuple(cluster.latest([place], isolation)[place] for isolation in reversed(Isolation))


def marked(cluster: Cluster, topic: str, end_offset: int) -> None:
    """Wait for the marker: a real coordinator answers when the end is decided, and writes markers behind it."""
    wait_until(lambda: ends(cluster, topic) == (end_offset, end_offset), f"the marker before offset {end_offset}")


def test_topics_partitions_and_ids(cluster: Cluster, topic: str) -> None:
    assert cluster.partitions([topic]) == {topic: (0, 1)}
    assert topic in cluster.topics()
    assert cluster.topic_ids([topic])[topic].int != 0
    with pytest.raises(UnknownTopicError):
        cluster.partitions(["no-such-topic"])


def test_offsets_after_a_write(cluster: Cluster, topic: str) -> None:
    assert send(cluster, topic, {0: pa.table({"value": ["a", "b"]})}) == {(topic, 0): 2}
    assert cluster.earliest([(topic, 0)]) == {(topic, 0): 0}
    assert ends(cluster, topic) == (2, 2)
    assert read(cluster, topic, 2, Isolation.READ_UNCOMMITTED) == ["a", "b"]


def test_the_end_of_a_log_tells_its_leader_epoch_and_that_epoch_ends_there(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, {0: pa.table({"value": ["a", "b"]})})
    place = TopicPartition(topic, 0)
    end = cluster.log_ends([place])[place]
    assert end.offset == 2
    assert end.leader_epoch == cluster.metadata.leader_epoch(place)
    assert cluster.epoch_ends({place: end.leader_epoch}) == {place: 2}
    lost = [cluster.lost_records({place: read}) for read in ((2, end.leader_epoch), (2, end.leader_epoch - 1), (3, 9))]
    assert lost == [set(), {place}, {place}]


def test_a_range_behind_the_log_is_refused(cluster: Cluster, topic: str) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        list(read_ranges(cluster, [OffsetRange(topic, 0, 5, 6)]))


@exactly_once
def test_an_open_transaction_holds_the_last_stable_offset_and_its_commit_releases_it(
    cluster: Cluster, topic: str
) -> None:
    transaction = begun(cluster, topic, "x")
    send(cluster, topic, {0: pa.table({"value": ["y"]})})
    assert ends(cluster, topic) == (0, 2)
    assert statuses(cluster, [transaction])[transaction].fate is Fate.OPEN
    assert end(cluster, [transaction], commit=True) == {transaction: Fate.COMMITTED}
    marked(cluster, topic, 3)
    assert read(cluster, topic, 3, Isolation.READ_COMMITTED) == ["x", "y"]


@exactly_once
@pytest.mark.parametrize(("start", "stable"), [(1, 0), (2, 2)])
def test_a_last_stable_offset_passes_deleted_batches_of_an_open_transaction_and_no_part_of_a_batch(
    place: tuple[Cluster, Callable[[], None], DeleteBefore], topic: str, request: pytest.FixtureRequest,
    start: int, stable: int,
) -> None:  # fmt: skip
    cluster, _, delete_before = place
    transaction = begun(cluster, topic, "x", "y")
    send(cluster, topic, {0: pa.table({"value": ["z"]})})
    delete_before(start)
    assert cluster.earliest([(topic, 0)]) == {(topic, 0): start}
    is_kfake = request.node.callspec.params["place"] == "kfake"  # its last stable offset stays where it was
    assert ends(cluster, topic) == (0 if is_kfake else stable, 3)
    assert end(cluster, [transaction], commit=False) == {transaction: Fate.ABORTED}
    marked(cluster, topic, 4)


def test_an_aborted_transaction_is_seen_by_nobody_who_asks_for_committed(cluster: Cluster, topic: str) -> None:
    transaction = begun(cluster, topic, "gone")
    assert end(cluster, [transaction], commit=False) == {transaction: Fate.ABORTED}
    marked(cluster, topic, 2)
    send(cluster, topic, {0: pa.table({"value": ["kept"]})})
    assert read(cluster, topic, 3, Isolation.READ_COMMITTED) == ["kept"]
    assert read(cluster, topic, 3, Isolation.READ_UNCOMMITTED) == ["gone", "kept"]


@exactly_once
def test_an_end_may_be_repeated_and_a_contrary_one_tells_what_became_of_it(
    cluster: Cluster, topic: str, request: pytest.FixtureRequest
) -> None:
    transaction = begun(cluster, topic, "x")
    end(cluster, [transaction], commit=True)
    assert end(cluster, [transaction], commit=True) == {transaction: Fate.COMMITTED}
    forgets = "kfake" in request.node.name  # how a transaction ended
    assert end(cluster, [transaction], commit=False) == {transaction: Fate.UNKNOWN if forgets else Fate.COMMITTED}


@exactly_once
def test_a_new_begin_aborts_what_is_open_under_the_id(cluster: Cluster, topic: str) -> None:
    name = f"id-{uuid.uuid4().hex}"
    first = begun(cluster, topic, "x", name=name)
    second = begin(cluster, name, TIMEOUT_MS)
    assert (second.producer_id, second.epoch) != (first.producer_id, first.epoch)
    assert end(cluster, [first], commit=True)[first] is not Fate.COMMITTED
    assert holder(cluster, first) is IdHolder.ANOTHER
    assert holder(cluster, second) is IdHolder.THIS_PRODUCER
    assert read(cluster, topic, ends(cluster, topic)[0], Isolation.READ_COMMITTED) == []


@exactly_once
def test_open_transactions_are_listed_by_prefix(cluster: Cluster, topic: str) -> None:
    prefix = f"id-{uuid.uuid4().hex}-"
    transaction = begun(cluster, topic, "x", name=f"{prefix}1")
    assert lingering(cluster, prefix) == [transaction]
    end(cluster, [transaction], commit=False)
    assert lingering(cluster, prefix) == []


def test_a_repeated_batch_is_written_once(cluster: Cluster, topic: str) -> None:
    transaction = begun(cluster, topic, "x")
    written(cluster, topic, transaction, "x")  # a new sender begins with the same sequence
    end(cluster, [transaction], commit=True)
    assert read(cluster, topic, 2, Isolation.READ_COMMITTED) == ["x"]


def test_committed_offsets_carry_their_metadata(cluster: Cluster, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    assert cluster.fetch_offsets(group, [(topic, 0)]) == {}
    cluster.commit_offsets(group, {(topic, 0): (7, "state")})
    assert cluster.fetch_offsets(group, [(topic, 0), (topic, 1)]) == {(topic, 0): Committed(7, "state")}
    assert cluster.fetch_offsets(group, None) == {(topic, 0): Committed(7, "state")}


def test_an_offset_is_committed_in_a_transaction_again_and_again_until_its_producer_is_fenced(
    cluster: Cluster, topic: str
) -> None:
    name, group, where = f"id-{uuid.uuid4().hex}", f"g-{uuid.uuid4().hex[:8]}", TopicPartition(topic, 0)
    first = begin(cluster, name, TIMEOUT_MS)
    for number in range(3):
        commit_as(cluster, first, group, where, Committed(number, f"of the first, {number}"), timeout_ms=TIMEOUT_MS)
    assert cluster.fetch_offsets(group, [where]) == {where: Committed(2, "of the first, 2")}
    second = begin(cluster, name, TIMEOUT_MS)
    with pytest.raises(FencedError):
        commit_as(cluster, first, group, where, Committed(9, "of the first"), timeout_ms=TIMEOUT_MS)
    assert cluster.fetch_offsets(group, [where]) == {where: Committed(2, "of the first, 2")}
    commit_as(cluster, second, group, where, Committed(3, "of the second"), timeout_ms=TIMEOUT_MS)
    assert cluster.fetch_offsets(group, None) == {where: Committed(3, "of the second")}


def test_a_recreated_topic_has_another_id_no_committed_offsets_and_refuses_who_asks_for_the_old_one(
    place: tuple[Cluster, Callable[[], None], DeleteBefore], topic: str
) -> None:
    cluster, recreate, _ = place
    group, where = f"g-{uuid.uuid4().hex[:8]}", TopicPartition(topic, 0)
    send(cluster, topic, {0: pa.table({"value": ["old"]})})
    cluster.commit_offsets(group, {where: (1, "state")})
    before = cluster.topic_ids([topic])[topic]
    recreate()
    assert cluster.topic_ids([topic])[topic] != before
    assert ends(cluster, topic) == (0, 0)
    send(cluster, topic, {0: pa.table({"value": ["new"]})})
    with pytest.raises(TopicRecreatedError):
        list(read_ranges(cluster, [OffsetRange(topic, 0, 0, 1, before)]))
    assert cluster.fetch_offsets(group, [where]) == {}


@kafka_versions.since("3.1", "a fetch by topic id")
def test_a_fetch_by_an_id_that_no_topic_has_is_refused_by_its_code(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, {0: pa.table({"value": ["a"]})})
    reader = RangeReader(0, TopicPartition(topic, 0), 0, 1, uuid.uuid4())
    (node,) = cluster.leaders([reader.tp], Retry(cluster.config, "looking for the leader"))
    request = fetch_request([reader], Isolation.READ_UNCOMMITTED, cluster.config, cluster.metadata, rack="", wait=False)
    answer = cluster.connection.call(node, request)
    assert Code.of(answer.responses[0].partitions[0].error_code) is Code.UNKNOWN_TOPIC_ID
