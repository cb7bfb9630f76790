"""Two drivers on copies of one checkpoint, in every order of their requests: a batch is published once, and whole.

The brokers are simulated (tests/system/world); each driver is a thread that waits before each of its requests.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from keyedwm.core.errors import FencedError, InputError
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import Isolation
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.cluster import Cluster, close_shared, shared
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.log import Clock
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.ledger import Ledger
from pyspark_wm_sink.kafka.publish import KafkaPublication, publish_to_kafka, recover
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, StagedRecords, stage
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.places.notes import Claim
from tests.system.world.wire import SimulatedConnection

TOPIC, QUERY = "out", "query"
ROWS = ("a", "b")
WHOLE = Counter({"1a": 1, "1b": 1})
PUBLISHED = "published"
NUMBERS = itertools.count()
# Those that tell or change who may decide, and what is decided; a driver stops before each of them.
_STEPS = {
    "InitProducerIdRequest", "OffsetFetchRequest", "AddOffsetsToTxnRequest", "TxnOffsetCommitRequest", "EndTxnRequest",
    "DescribeTransactionsRequest",
}  # fmt: skip
_WAIT_S = 240


class Gate:
    """A thread that takes one step when it is told to; a step is all up to the next request."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.ended = PUBLISHED
        self.over = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(action,), name=name, daemon=True)
        self._thread.start()
        self._wait()

    def _run(self, action: Callable[[], None]) -> None:
        try:
            self.pause()
            action()
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            self.ended = type(error).__name__
        self.over = True
        self._stopped.release()

    def pause(self) -> None:
        """In the thread: wait before a request."""
        self._stopped.release()
        assert self._go.acquire(timeout=_WAIT_S)

    def _wait(self) -> None:
        assert self._stopped.acquire(timeout=_WAIT_S)

    def step(self) -> bool:
        """Let it take a step; gives whether there was one to take."""
        if self.over:
            return False
        self._go.release()
        self._wait()
        return True

    def do_steps(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def finish(self) -> None:
        while self.step():
            pass
        self._thread.join(_WAIT_S)


@dataclass
class Driver:
    """One driver: its own ledger, client and name."""

    name: str
    ledger: Path
    run: str
    claim: Claim | None = None

    @property
    def config(self) -> ClientConfig:
        return ClientConfig.from_options({"bootstrap.servers": "world:1", "client.id": self.name})

    @property
    def cluster(self) -> Cluster:
        return shared(self.config)

    @property
    def how(self) -> KafkaPublication:
        plan = KafkaStagePlan(
            client=self.config, topic=TOPIC, stem=None, timeout_ms=60_000, transactional=True, columns=("value",),
            has_control=False, has_offsets=False,
        )  # fmt: skip
        return KafkaPublication(
            plan=plan, ledger=self.ledger, mode=SnapshotMode.BATCH, guarantee=Guarantee.EXACTLY_ONCE, claim=self.claim
        )

    def start(self) -> None:
        self.claim = recover(self.cluster, Ledger(self.ledger), owner=self.name)

    def stage_records(self, batch: int) -> list[StagedRecords]:
        return [
            stage(self.how.plan, Task(query=QUERY, run=self.run, batch=batch, partition=number, attempt=0,
                                      number=next(NUMBERS)), [pa.record_batch({"value": [f"{batch}{row}"]})])
            for number, row in enumerate(ROWS)
        ]  # fmt: skip

    def publish(self, batch: int, records: list[StagedRecords] | None = None) -> None:
        publish_to_kafka(self.how, records or self.stage_records(batch), batch=batch)


@dataclass
class Scene:
    """An original that has published batch 0 and staged batch 1, and a copy of its checkpoint, about to start."""

    directory: Path
    brokers: Brokers = field(default_factory=lambda: Brokers(Clock()))
    gates: dict[str, Gate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.brokers.clock.now_ms = time.time() * 1_000
        self.brokers.create(TOPIC, 2)
        self.original = Driver("original", self.directory / "original", "run-0")
        self.copy = Driver("copy", self.directory / "copy", "run-copy")

    def begin(self) -> None:
        self.original.start()
        self.original.publish(0)
        shutil.copytree(self.original.ledger, self.copy.ledger)
        records = self.original.stage_records(1)
        self.gates["original"] = Gate("original", lambda: self.original.publish(1, records))
        self.gates["copy"] = Gate("copy", self._copy)

    def _copy(self) -> None:
        self.copy.start()
        self.copy.publish(1)

    def connect(self, config: ClientConfig, _timeout_ms: int = 0) -> Cluster:
        """Stands in for Cluster.connect."""
        return Cluster(SimulatedConnection(self.brokers, config, self._travel))  # type: ignore[arg-type]

    def _travel(self, _node: int, request: Any, answer: Callable[[], Any], _limit_ms: float) -> Any:
        gate = self.gates.get(threading.current_thread().name)
        if gate is not None and type(request).__name__ in _STEPS:
            gate.pause()
        return answer()

    def visible(self) -> Counter[str]:
        """What a read_committed reader sees of batch 1."""
        ranges = [OffsetRange(*where, 0, log.stable) for where, log in self.brokers.logs.items()]
        reader = shared(ClientConfig.from_options({"bootstrap.servers": "world:1", "client.id": "reader"}))
        parts = read_ranges(reader, ranges, ColumnSelection(), Isolation.READ_COMMITTED)
        values = [value.decode() for part in parts for value in part.records.value.to_pylist()]
        assert sorted(value for value in values if value[0] == "0") == ["0a", "0b"]
        return Counter(value for value in values if value[0] == "1")


def play(directory: Path, schedule: Callable[[Gate, Gate], None]) -> tuple[str, ...]:
    """Let both drivers go by a schedule and to their ends, then start both again; gives what each ended with."""
    shutil.rmtree(directory, ignore_errors=True)
    scene = Scene(directory)
    with mock.patch.object(Cluster, "connect", scene.connect), mock.patch.object(os, "fsync"):
        close_shared()
        try:
            scene.begin()
            original, copy = scene.gates["original"], scene.gates["copy"]
            schedule(original, copy)
            original.finish()
            copy.finish()
            visible = scene.visible()
            assert visible in (Counter(), WHOLE), f"a reader sees {dict(visible)}"
            again = [started_again(driver) for driver in (scene.original, scene.copy)]
            visible = scene.visible()
            assert visible == WHOLE, f"in the end a reader sees {dict(visible)}, and the drivers {again}"
            return original.ended, copy.ended, *again
        finally:
            close_shared()


def started_again(driver: Driver) -> str:
    """Start a driver's query again, as a user would after an error, and let it write the batch."""
    driver.run, driver.name = f"{driver.run}-again", f"{driver.name}-again"
    try:
        driver.start()
        driver.publish(1)
    except (FencedError, InputError) as error:
        return type(error).__name__
    return PUBLISHED


def steps_of(directory: Path, name: str) -> int:
    """How many steps a driver takes that nobody disturbs."""
    steps_taken = 0

    def run_one_after_other(original: Gate, copy: Gate) -> None:
        nonlocal steps_taken
        while (original if name == "original" else copy).step():
            steps_taken += 1

    play(directory, run_one_after_other)
    return steps_taken


@pytest.mark.starts  # takes long
def test_one_of_two_drivers_publishes_wherever_the_other_stands(tmp_path: Path) -> None:
    """The original stops at each place, the copy then goes on to each (of every two) of its own; then both end."""
    ended = Counter()
    originals, copies = steps_of(tmp_path, "original"), steps_of(tmp_path, "copy")
    for first in range(originals + 1):
        for second in range(first % 2, copies + 1, 2):

            def schedule(original: Gate, copy: Gate, first: int = first, second: int = second) -> None:
                original.do_steps(first)
                copy.do_steps(second)

            ended[play(tmp_path / "scene", schedule)] += 1
    assert {original for original, *_ in ended} == {PUBLISHED, "FencedError"}
    assert {copy for _, copy, *_ in ended} == {PUBLISHED, "InputError"}


@pytest.mark.parametrize("seed", range(2))
def test_one_of_two_drivers_publishes_in_any_order_of_their_requests(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def schedule(original: Gate, copy: Gate) -> None:
        while not (original.over and copy.over):
            chance.choice([original, copy]).do_steps(chance.choice([1, 1, 2, 5]))

    for _ in range(15):
        play(tmp_path / "scene", schedule)
