"""What one real broker cannot be made to do: moved leaders, quotas, tight budgets, a log that ends in nothing."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.connection import TransientError
from keyedwm.kafka.errors import Code, CorruptRecordError
from keyedwm.kafka.fetch import Range, read_ranges
from keyedwm.kafka.values import Isolation
from tests.kafka.reference import Record, write


@dataclass(eq=False)
class Log:
    """One partition of topic t: its batches, who leads it, where it ends, and what is answered instead, once each."""

    batches: Sequence[tuple[int, bytes]]
    leader: int = 1
    end: int = 10
    instead: list[Any] = field(default_factory=list)


class Steered:
    """Stands where a Connection stands; answers metadata and fetches from logs, one batch a request."""

    def __init__(self, *logs: Log) -> None:
        self.config = ClientConfig.from_options({"bootstrap.servers": "h:1", "retry.backoff.ms": "1"})
        self.logs = logs
        self.asked: list[tuple[int, list[tuple[int, int]]]] = []

    def submit(self, node: int, request: Any) -> concurrent.futures.Future[Any]:
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        assert isinstance(request, FetchRequest)
        parts = [part for topic in request.topics for part in topic.partitions]
        self.asked.append((node, [(part.partition, part.fetch_offset) for part in parts]))
        answer.set_result(self._fetched(node, parts))
        return answer

    def result(self, answer: concurrent.futures.Future[Any]) -> Any:
        if answer.result() == "lost":
            raise TransientError("the connection was lost")
        return answer.result()

    def call(self, _node: int | None, request: Any) -> Any:
        assert isinstance(request, MetadataRequest)
        parts = [SimpleNamespace(partition_index=p, leader_id=log.leader) for p, log in enumerate(self.logs)]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", error_code=0, partitions=parts)])

    def _fetched(self, node: int, parts: list[Any]) -> Any:
        answers, room, throttled_ms = [], True, 0
        for part in parts:
            log = self.logs[part.partition]
            code, records = 0, b""
            instead = log.instead.pop(0) if log.instead else None
            if instead == "lost":
                return "lost"
            if instead == "throttled":
                throttled_ms = 1
            elif isinstance(instead, bytes):
                records = instead
            elif isinstance(instead, Code) or log.leader != node:
                code = instead or Code.NOT_LEADER_OR_FOLLOWER
            elif room:
                records = next((data for last, data in log.batches if last >= part.fetch_offset), b"")
                room = not records
            answers.append(
                SimpleNamespace(
                    partition_index=part.partition, error_code=int(code), records=records, high_watermark=log.end,
                    last_stable_offset=log.end, aborted_transactions=[],
                )
            )  # fmt: skip
        topic = SimpleNamespace(topic="t", partitions=answers)
        return SimpleNamespace(error_code=0, throttle_time_ms=throttled_ms, responses=[topic])


def batches(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, write([Record(offset, 0, None, b"%d" % offset)])) for offset in offsets]


def read(connection: Steered, *ranges: Range) -> list[list[bytes]]:
    """The values by range; each range must be done exactly once, at its end."""
    found: list[list[bytes]] = [[] for _ in ranges]
    done = []
    for part in read_ranges(Cluster(connection), ranges, isolation=Isolation.READ_COMMITTED, stall_ms=2_000):  # type: ignore[arg-type]
        found[part.index] += part.records.value.to_pylist()  # type: ignore[union-attr]
        if part.done:
            assert part.next_offset == ranges[part.index].end
            done.append(part.index)
    assert sorted(done) == list(range(len(ranges)))
    return found


def test_a_tail_without_any_batch_is_done() -> None:
    assert read(Steered(Log(batches(0, 3))), Range("t", 0, 0, 10)) == [[b"0", b"3"]]


def test_a_throttled_answer_is_not_the_end() -> None:
    assert read(Steered(Log(batches(0, 3), instead=["throttled"])), Range("t", 0, 0, 10)) == [[b"0", b"3"]]


def test_a_range_with_a_tail_of_nothing_waits_for_the_others_records() -> None:
    logs = (Log(batches(0)), Log(batches(*range(10))))
    found = read(Steered(*logs), Range("t", 0, 0, 10), Range("t", 1, 0, 10))
    assert found == [[b"0"], [b"%d" % i for i in range(10)]]


def test_all_partitions_are_served_in_turn_however_small_the_answers() -> None:
    connection = Steered(*(Log(batches(*range(10))) for _ in range(3)))
    read(connection, *(Range("t", p, 0, 10) for p in range(3)))
    first_asked = [parts[0][0] for _, parts in connection.asked[:9]]
    assert first_asked == [0, 1, 2] * 3


@pytest.mark.parametrize(
    "trouble", ["lost", Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH, Code.KAFKA_STORAGE_ERROR]
)
def test_trouble_costs_a_look_at_the_metadata_and_no_record(trouble: Any) -> None:
    logs = (Log(batches(*range(10)), instead=[None, None, trouble]), Log(batches(*range(5)), leader=2))
    found = read(Steered(*logs), Range("t", 0, 0, 10), Range("t", 1, 0, 10))
    assert found == [[b"%d" % i for i in range(10)], [b"%d" % i for i in range(5)]]


def test_a_moved_leader_is_followed() -> None:
    log = Log(batches(*range(10)))
    connection = Steered(log)
    reading = read_ranges(Cluster(connection), [Range("t", 0, 0, 10)])  # type: ignore[arg-type]
    found = [next(reading)]
    log.leader = 7
    found += reading
    assert [value for part in found for value in part.records.value.to_pylist()] == [b"%d" % i for i in range(10)]  # type: ignore[union-attr]
    assert {node for node, _ in connection.asked} == {1, 7}


def test_a_first_batch_that_never_comes_whole_is_damaged() -> None:
    (_, whole), = batches(4)  # fmt: skip
    with pytest.raises(CorruptRecordError, match="offset 4 of t-0 is cut off"):
        read(Steered(Log([(4, whole[:-1])])), Range("t", 0, 4, 5))


def test_a_batch_cut_off_behind_another_partitions_data_comes_later() -> None:
    (_, whole), = batches(0)  # fmt: skip
    logs = (Log(batches(*range(3)), end=3), Log([(0, whole)], end=1, instead=[whole[:-1]]))
    assert read(Steered(*logs), Range("t", 0, 0, 3), Range("t", 1, 0, 1)) == [[b"0", b"1", b"2"], [b"0"]]
