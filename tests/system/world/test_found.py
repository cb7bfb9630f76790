"""What seeds of the world have found, each as a test of its own."""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from types import FunctionType
from unittest import mock

import pyarrow as pa
import pytest

from keyedwm.core.control_row import channel_row
from keyedwm.core.errors import UnavailableError
from keyedwm.core.rows import ControlKind
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import Isolation
from keyedwm.kafka.requests import cluster as cluster_module
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.transactions import Fate, end
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.log import START_MS, Clock
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, stage
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.sink.kafka_sink import Sink
from tests.system.world.clock import virtual
from tests.system.world.simulate import quiet
from tests.system.world.wire import SimulatedConnection
from tests.tools import Stream, at, controls, events

TIMEOUT_MS = 60_000


@pytest.fixture
def world() -> Iterator[tuple[Brokers, Cluster, KafkaStagePlan]]:
    """Simulated brokers with a topic `out`, this process's client, and how tasks write there."""
    clock = Clock()
    with virtual(clock, random.Random(1), lambda _handle: None), mock.patch.dict(cluster_module._shared, clear=True):
        brokers = Brokers(clock)
        brokers.create("out", 1)
        config = ClientConfig.from_options({"bootstrap.servers": "world:1"})
        cluster = Cluster(SimulatedConnection(brokers, config, lambda _node, _request, answer, _limit_ms: answer()))
        plan = KafkaStagePlan(
            client=config, topic="out", stem="s", timeout_ms=TIMEOUT_MS, transactional=True, columns=("value",),
            has_control=False, has_offsets=False,
        )  # fmt: skip
        with mock.patch.object(Cluster, "connect", return_value=cluster):
            yield brokers, cluster, plan


def attempt(number: int) -> Task:
    return Task(query="q", run="r", batch=0, partition=0, attempt=0, number=number)


def test_a_task_that_outlasts_its_transaction_names_the_time_out_and_may_be_tried_again(world) -> None:
    brokers, _, plan = world

    def rows():
        yield pa.record_batch({"value": [b"x" * (9 << 20)]})
        yield pa.record_batch({"value": [b"x" * (9 << 20)]})
        brokers.clock.pass_ms(TIMEOUT_MS + 1_000)
        yield pa.record_batch({"value": [b"late"]})

    with pytest.raises(UnavailableError, match=r"transactionTimeout.* 60000 ms") as found:
        stage(plan, attempt(1), rows())
    assert "ended by the broker" in found.value.message


def test_a_transaction_that_a_speculative_attempt_left_open_delays_rows_up_to_its_time_out_and_loses_none(
    world,
) -> None:
    brokers, cluster, plan = world

    def seen() -> list[bytes]:
        ranges = [OffsetRange("out", 0, 0, brokers.logs["out", 0].stable)]
        parts = read_ranges(cluster, ranges, isolation=Isolation.READ_COMMITTED)
        return [value for part in parts for value in part.records.value.to_pylist()]

    both = [stage(plan, attempt(number), [pa.record_batch({"value": [b"row"]})]) for number in (1, 2)]
    assert end(cluster, [both[1].transaction], commit=True) == {both[1].transaction: Fate.COMMITTED}
    assert seen() == []
    brokers.clock.pass_ms(TIMEOUT_MS + 1_000)
    assert seen() == [b"row"]


def test_a_thread_that_is_no_part_of_the_world_neither_moves_its_clock_nor_takes_its_chances() -> None:
    def alone(seed: int, *, beside: bool) -> tuple[float, str, uuid.UUID]:
        clock = Clock()

        def other() -> None:
            time.sleep(0.001)
            secrets.token_hex(4)
            uuid.uuid4()

        with virtual(clock, random.Random(seed), lambda _handle: None):
            if beside:
                thread = threading.Thread(target=other)
                thread.start()
                thread.join()
            return clock.now_ms, secrets.token_hex(4), uuid.uuid4()

    assert alone(1, beside=True) == alone(1, beside=False)
    assert alone(1, beside=True)[0] == START_MS


def test_a_compiler_that_names_its_files_takes_no_chances_of_the_world() -> None:
    name_a_file = FunctionType((lambda: uuid.uuid4().hex).__code__, {"__name__": "numba.core.caching", "uuid": uuid})

    def drawn(*, compiles: bool) -> uuid.UUID:
        with virtual(Clock(), random.Random(1), lambda _handle: None):
            if compiles:
                name_a_file()
            return uuid.uuid4()

    assert drawn(compiles=True) == drawn(compiles=False)


def test_a_played_world_leaves_the_warnings_of_the_product_as_they_were() -> None:
    log = logging.getLogger("keyedwm.source")
    before = log.isEnabledFor(logging.WARNING)
    with quiet():
        assert not log.isEnabledFor(logging.WARNING)
    assert log.isEnabledFor(logging.WARNING) == before


def test_readers_of_a_union_of_two_propagated_sources_go_on_when_the_one_with_fewer_snapshots_has_a_batch(
    world, tmp_path
) -> None:
    brokers, _, _ = world

    def sink(topic: str) -> Sink:
        brokers.create(topic, 1)
        return Sink("world:1", topic, tmp_path / topic, topic, inline=True, mode=SnapshotMode.BARRIER)

    def stream(topic: str) -> Stream:
        return Stream(**{
            "kafka.bootstrap.servers": "world:1", "subscribe": topic, "startingOffsets": "earliest",
            "propagate": "true",
        })  # fmt: skip

    firsts, union = [sink("first-0"), sink("first-1")], sink("union")
    streams = [stream(first.topic) for first in firsts]

    def upstream(which: int, batch: int, ms: int) -> None:
        """A batch of one of the first jobs; the snapshots of the second have higher numbers."""
        told = (
            channel_row(ControlKind.WATERMARK, ("in", which), batch, "s", key=0, watermark_ms=ms),
            channel_row(ControlKind.BARRIER, ("in", which), batch, "s", snapshot=batch + 40 * which, channels=1),
        )
        firsts[which].publish(batch, firsts[which].written(batch, f"{which}:{batch}", control=told))

    upstream(0, 0, 1_000)
    upstream(1, 0, 2_500)
    union.publish(0, *(union.staged(0, one.batch(), part) for part, one in enumerate(streams)))
    batches = 1
    for which, batch, ms in ((0, 1, 2_000), (0, 2, 3_000), (1, 1, 4_500), (0, 3, 4_000), (1, 2, 5_000)):
        upstream(which, batch, ms)
        for table in streams[which].drain():
            union.publish(batches, union.staged(batches, table))
            batches += 1
    read = stream("union").drain()
    values = sorted(event["value"] for table in read for event in events(table))
    assert values == [b"0:0", b"0:1", b"0:2", b"0:3", b"1:0", b"1:1", b"1:2"]
    told = [row["watermark"] for table in read for row in controls(table) if row["kind"] == "watermark"]
    assert max(told) == at(4_000)


def test_a_reader_goes_on_when_barriers_come_into_a_query_that_had_none(world, tmp_path) -> None:
    brokers, _, _ = world
    brokers.create("batches", 1)
    sink = Sink("world:1", "batches", tmp_path / "ledger", "q", inline=True, mode=SnapshotMode.BATCH)
    reader = Stream(**{
        "kafka.bootstrap.servers": "world:1", "subscribe": "batches", "startingOffsets": "earliest",
        "propagate": "true",
    })  # fmt: skip
    values, told = [], []
    for batch in range(6):
        control = [channel_row(ControlKind.WATERMARK, ("in", 0), batch, "s", key=0, watermark_ms=1_000 * batch)]
        if batch >= 3:
            snapshot = batch - 3
            control.append(channel_row(ControlKind.BARRIER, ("in", 0), batch, "s", snapshot=snapshot, channels=1))
        sink.publish(batch, sink.written(batch, str(batch), control=tuple(control)))
        for table in reader.drain():
            values += [event["value"] for event in events(table)]
            told += [row["watermark"] for row in controls(table) if row["kind"] == "watermark"]
    assert values == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert max(told) == at(5_000)
