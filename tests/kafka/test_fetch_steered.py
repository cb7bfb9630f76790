"""What one real broker cannot be made to do: moved leaders, quotas, tight budgets, a log that ends in nothing."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import TransientError
from keyedwm.kafka.client.errors import (
    Code,
    CorruptRecordError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from keyedwm.kafka.client.values import Isolation, WireLimits
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from tests.kafka.reference import Record, write

TOPIC_ID, OTHER_ID = UUID(int=1), UUID(int=2)


@dataclass(eq=False)
class Log:
    """One partition of topic t: its batches, its leader, its start and end, and what is answered instead, once each."""

    batches: Sequence[tuple[int, bytes]]
    leader: int = 1
    end: int = 10
    instead: list[Any] = field(default_factory=list)
    start: int = 0
    epoch: int = 0
    replica: int | None = None  # named to clients of a rack


class Steered:
    """Stands where a Connection stands; answers metadata and fetches from logs, one batch a request."""

    def __init__(self, *logs: Log) -> None:
        self.config = ClientConfig.from_options(
            {"bootstrap.servers": "h:1", "retry.backoff.ms": "1", "retry.backoff.max.ms": "1", "client.rack": "r"}
        )
        self.logs = logs
        self.fetches: list[tuple[int, list[tuple[int, int]]]] = []
        self.parts: list[Any] = []
        self.waits_ms: list[int] = []
        self.metadata_requests = 0
        self.topic_ids: list[UUID | None] = [TOPIC_ID]  # what metadata answers give, the last one for ever

    def submit(self, node: int, request: Any) -> concurrent.futures.Future[Any]:
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        parts = [part for topic in request.topics for part in topic.partitions]
        if isinstance(request, ListOffsetsRequest):
            answer.set_result(self._listing(parts))
            return answer
        assert isinstance(request, FetchRequest)
        self.parts += parts
        self.waits_ms.append(request.max_wait_ms)
        self.fetches.append((node, [(part.partition, part.fetch_offset) for part in parts]))
        answer.set_result(self._fetched(node, parts, request.rack_id))
        return answer

    def result(self, answer: concurrent.futures.Future[Any]) -> Any:
        if answer.result() == "lost":
            raise TransientError("the connection was lost")
        return answer.result()

    def call(self, _node: int | None, request: Any) -> Any:
        assert isinstance(request, MetadataRequest)
        self.metadata_requests += 1
        parts = [
            SimpleNamespace(partition_index=p, leader_id=log.leader, leader_epoch=log.epoch)
            for p, log in enumerate(self.logs)
        ]
        topic_id = self.topic_ids.pop(0) if len(self.topic_ids) > 1 else self.topic_ids[0]
        topics = [SimpleNamespace(name="t", topic_id=topic_id, error_code=0, partitions=parts)]
        return SimpleNamespace(cluster_id="one", topics=topics, API_VERSION=12)

    def wait_any(self, _answers: Sequence[concurrent.futures.Future[Any]]) -> None:
        """All answers are there at once."""

    def _listing(self, parts: list[Any]) -> Any:
        offset = {-1: lambda log: log.end, -2: lambda log: log.start}
        answers = [
            SimpleNamespace(
                partition_index=part.partition_index,
                error_code=0,
                offset=offset[part.timestamp](self.logs[part.partition_index]),
                leader_epoch=self.logs[part.partition_index].epoch,
            )
            for part in parts
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=answers)])

    def _fetched(self, node: int, parts: list[Any], rack: str) -> Any:
        answers, room, throttled_ms = [], True, 0
        for part in parts:
            log = self.logs[part.partition]
            code, records = 0, b""
            instead = log.instead.pop(0) if log.instead else None
            if instead == "lost":
                return "lost"
            preferred_node = log.replica if rack and log.replica is not None and node == log.leader else -1
            room = room and preferred_node == -1
            diverging = SimpleNamespace(epoch=-1, end_offset=-1)
            if instead in {"throttled", "absent"}:
                throttled_ms = int(instead == "throttled")
                continue
            if instead == "empty":
                pass
            elif instead == "diverging":
                diverging = SimpleNamespace(epoch=0, end_offset=2)
            elif isinstance(instead, bytes):
                records = instead
            elif isinstance(instead, Code) or node not in {log.leader, log.replica}:
                code = instead or Code.NOT_LEADER_OR_FOLLOWER
            elif room:
                records = next((batch_bytes for last, batch_bytes in log.batches if last >= part.fetch_offset), b"")
                room = not records
            answers.append(
                SimpleNamespace(
                    partition_index=part.partition, error_code=int(code), records=records, high_watermark=log.end,
                    last_stable_offset=log.end, aborted_transactions=[], diverging_epoch=diverging,
                    preferred_read_replica=preferred_node,
                )
            )  # fmt: skip
        topic = SimpleNamespace(topic="t", topic_id=TOPIC_ID, partitions=answers)
        return SimpleNamespace(API_VERSION=13, error_code=0, throttle_time_ms=throttled_ms, responses=[topic])


def batches(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, write([Record(offset, 0, None, b"%d" % offset)])) for offset in offsets]


def read(connection: Steered, *ranges: OffsetRange, stall_ms: int = 20_000) -> list[list[bytes]]:
    """The values by range; each range must be done exactly once, at its end."""
    values_of_ranges: list[list[bytes]] = [[] for _ in ranges]
    done = []
    for part in read_ranges(Cluster(connection), ranges, isolation=Isolation.READ_COMMITTED, stall_ms=stall_ms):  # type: ignore[arg-type]
        values_of_ranges[part.index] += part.records.value.to_pylist()  # type: ignore[union-attr]
        if part.done:
            assert part.next_offset == ranges[part.index].end
            done.append(part.index)
    assert sorted(done) == list(range(len(ranges)))
    return values_of_ranges


def test_a_batch_that_begins_behind_a_range_ends_it() -> None:
    connection = Steered(Log(batches(0, 3, 12), end=13))
    assert read(connection, OffsetRange("t", 0, 0, 10)) == [[b"0", b"3"]]
    assert connection.waits_ms == [0, 0, 0]


@pytest.mark.parametrize("instead", ["empty", "absent", "throttled"])
@pytest.mark.parametrize("times", [1, 2, 20])
def test_an_empty_answer_ends_no_range(instead: str, times: int) -> None:
    connection = Steered(Log(batches(0, 3, 6), instead=[None, *[instead] * times]))
    assert read(connection, OffsetRange("t", 0, 0, 7)) == [[b"0", b"3", b"6"]]
    assert connection.metadata_requests == 1
    # The broker is asked to wait, too, as soon as it has answered with nothing.
    assert [wait > 0 for wait in connection.waits_ms] == [False, False, *[True] * times, False]


@pytest.mark.parametrize(
    ("instead", "sentence"),
    [
        ("empty", "nothing after offset 1 of t-0, although it can be read up to offset 10 and the range ends at 7: .*"),
        ("absent", "t-0: the answer leaves this partition out "),
        ("throttled", "t-0: the broker throttles this client by 1 ms "),
        (Code.OFFSET_OUT_OF_RANGE, r"t-0: OffsetOutOfRange \(1\) at offset 1, which the log holds "),
    ],
)
def test_records_that_never_come_end_in_a_sentence_to_retry(instead: Any, sentence: str) -> None:
    log = Log(batches(0), instead=[None, *[instead] * 100_000])
    with pytest.raises(UnavailableError, match=sentence + ".*retry"):
        read(Steered(log), OffsetRange("t", 0, 0, 7), stall_ms=50)


@pytest.mark.parametrize("log", [Log(batches(0), start=2), Log(batches(0), end=6)], ids=["start", "end"])
@pytest.mark.parametrize("instead", ["empty", Code.OFFSET_OUT_OF_RANGE])
def test_a_range_that_the_log_no_longer_holds_is_a_data_loss(log: Log, instead: Any) -> None:
    log = replace(log, instead=[None, *[instead] * 100_000])
    with pytest.raises(OffsetOutOfRangeError, match="offset 1 of t-0 is out of range") as caught:
        read(Steered(log), OffsetRange("t", 0, 0, 7), stall_ms=50)
    assert (caught.value.earliest, caught.value.latest) == (log.start, log.end)


def test_a_topic_that_was_recreated_while_it_is_read_is_a_data_loss() -> None:
    connection = Steered(Log(batches(*range(10)), instead=[None, Code.UNKNOWN_TOPIC_ID]))
    connection.topic_ids = [TOPIC_ID, OTHER_ID]
    with pytest.raises(TopicRecreatedError, match=f"'t' was deleted and recreated: its topic id was {TOPIC_ID}"):
        read(connection, OffsetRange("t", 0, 0, 10))


def test_a_topic_that_was_recreated_since_the_range_was_planned_is_a_data_loss() -> None:
    with pytest.raises(TopicRecreatedError):
        read(Steered(Log(batches(*range(10)))), OffsetRange("t", 0, 0, 10, topic_id=OTHER_ID))


def test_one_stale_topic_id_is_no_recreated_topic() -> None:
    connection = Steered(*(Log(batches(*range(10))) for _ in range(4)))
    connection.topic_ids = [OTHER_ID, TOPIC_ID]
    ranges = [OffsetRange("t", p, 0, 10, topic_id=TOPIC_ID) for p in range(4)]
    assert read(connection, *ranges) == [[b"%d" % i for i in range(10)]] * 4


def test_a_log_that_was_truncated_behind_the_reader_is_a_data_loss() -> None:
    (_, overwritten), *_ = batches(2)
    later = overwritten[:12] + (1).to_bytes(4, "big") + overwritten[16:]  # the leader epoch
    log = Log(batches(*range(10)), instead=[None, None, None, "diverging", later])
    with pytest.raises(LogTruncatedError, match=r"t-0 was truncated to the end offset 2, .* to read is 3"):
        read(Steered(log), OffsetRange("t", 0, 0, 10))


def test_a_leader_that_says_so_falsely_loses_no_record_and_is_asked_about_no_epoch_again() -> None:
    connection = Steered(Log(batches(*range(10)), instead=[None, None, None, "diverging"]))
    assert read(connection, OffsetRange("t", 0, 0, 10)) == [[b"%d" % i for i in range(10)]]
    assert {part.last_fetched_epoch for part in connection.parts[4:]} == {-1}


def test_a_request_carries_the_leader_epoch_and_the_epoch_read_last() -> None:
    connection = Steered(Log(batches(*range(3)), epoch=7))
    read(connection, OffsetRange("t", 0, 0, 3, leader_epoch=5))
    epochs = [(part.current_leader_epoch, part.last_fetched_epoch) for part in connection.parts]
    assert epochs == [(7, 5), (7, 0), (7, 0)]


def nodes_asked(connection: Steered) -> list[int]:
    return [node for node, _ in connection.fetches]


def test_a_replica_in_our_rack_is_read_where_the_leader_names_one() -> None:
    connection = Steered(Log(batches(*range(10)), replica=5))
    assert read(connection, OffsetRange("t", 0, 0, 10)) == [[b"%d" % i for i in range(10)]]
    assert nodes_asked(connection) == [1, *[5] * 10]


@pytest.mark.parametrize("failure", ["lost", Code.OFFSET_OUT_OF_RANGE, Code.NOT_LEADER_OR_FOLLOWER])
def test_a_replica_that_fails_costs_no_record_and_the_leader_is_read(failure: Any) -> None:
    connection = Steered(Log(batches(*range(10)), replica=5, instead=[None, None, None, failure]))
    assert read(connection, OffsetRange("t", 0, 0, 10)) == [[b"%d" % i for i in range(10)]]
    assert nodes_asked(connection) == [1, 5, 5, 5, *[1] * 8]


def test_a_replica_that_never_has_the_records_is_left_for_the_leader() -> None:
    connection = Steered(Log(batches(0, 3, 6), replica=5, instead=[None, None, "empty"]))
    connection.config = replace(connection.config, limits=WireLimits(silent_range_ms=0))
    assert read(connection, OffsetRange("t", 0, 0, 7)) == [[b"0", b"3", b"6"]]
    assert nodes_asked(connection) == [1, 5, 5, 1, 1]


def test_replicas_that_name_one_another_are_left_for_the_leader() -> None:
    class Circle(Steered):
        def _fetched(self, node: int, parts: list[Any], rack: str) -> Any:
            if not rack:
                return super()._fetched(1, parts, rack)
            answer = super()._fetched(1, parts, "")
            for part in answer.responses[0].partitions:
                part.records, part.preferred_read_replica = b"", node + 1
            return answer

    connection = Circle(Log(batches(*range(10))))
    assert read(connection, OffsetRange("t", 0, 0, 10)) == [[b"%d" % i for i in range(10)]]
    assert len(connection.fetches) < 20


def test_batches_before_the_asked_offset_are_no_progress() -> None:
    old = write([Record(0, 0, None, b"0")])
    log = Log([], instead=[None, *[old] * 100_000])
    connection = Steered(log)
    with pytest.raises(UnavailableError):
        read(connection, OffsetRange("t", 0, 4, 7), stall_ms=50)
    assert len(connection.fetches) < 100


def test_a_range_whose_records_are_held_back_holds_up_no_other() -> None:
    connection = Steered(Log(batches(0), end=1, instead=["empty"] * 12), Log(batches(*range(10))))
    assert read(connection, OffsetRange("t", 0, 0, 1), OffsetRange("t", 1, 0, 10)) == [
        [b"0"],
        [b"%d" % i for i in range(10)],
    ]
    assert [wait > 0 for wait in connection.waits_ms] == [False] * 11 + [True] * 2


def test_all_partitions_are_served_in_turn_however_small_the_answers() -> None:
    connection = Steered(*(Log(batches(*range(10))) for _ in range(3)))
    read(connection, *(OffsetRange("t", p, 0, 10) for p in range(3)))
    first_asked = [parts[0][0] for _, parts in connection.fetches[:9]]
    assert first_asked == [0, 1, 2] * 3


@pytest.mark.parametrize(
    "trouble", ["lost", Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH, Code.KAFKA_STORAGE_ERROR]
)
def test_trouble_costs_a_look_at_the_metadata_and_no_record(trouble: Any) -> None:
    logs = (Log(batches(*range(10)), instead=[None, None, trouble]), Log(batches(*range(5)), leader=2))
    values_of_ranges = read(Steered(*logs), OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 5))
    assert values_of_ranges == [[b"%d" % i for i in range(10)], [b"%d" % i for i in range(5)]]


def test_a_moved_leader_is_followed() -> None:
    log = Log(batches(*range(10)))
    connection = Steered(log)
    reading = read_ranges(Cluster(connection), [OffsetRange("t", 0, 0, 10)])  # type: ignore[arg-type]
    parts = [next(reading)]
    log.leader = 7
    parts += reading
    assert [value for part in parts for value in part.records.value.to_pylist()] == [b"%d" % i for i in range(10)]  # type: ignore[union-attr]
    assert {node for node, _ in connection.fetches} == {1, 7}


def test_a_first_batch_that_never_comes_whole_is_damaged() -> None:
    (_, whole), = batches(4)  # fmt: skip
    with pytest.raises(CorruptRecordError, match="offset 4 of t-0 is cut off"):
        read(Steered(Log([(4, whole[:-1])])), OffsetRange("t", 0, 4, 5))


def test_a_batch_cut_off_behind_another_partitions_data_comes_later() -> None:
    (_, whole), = batches(0)  # fmt: skip
    logs = (Log(batches(*range(3)), end=3), Log([(0, whole)], end=1, instead=[whole[:-1]]))
    assert read(Steered(*logs), OffsetRange("t", 0, 0, 3), OffsetRange("t", 1, 0, 1)) == [[b"0", b"1", b"2"], [b"0"]]
