"""The marker of the last decision, for rows that name their topics too; the brokers are simulated (tests/system)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import Committed
from keyedwm.kafka.requests.cluster import Cluster, close_shared, shared
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.log import Clock
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.ledger import Ledger
from pyspark_wm_sink.kafka.publish import KafkaPublication, publish_to_kafka
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, stage
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.system.world.wire import SimulatedConnection

CONFIG = ClientConfig.from_options({"bootstrap.servers": "world:1", "client.id": "marker"})
GROUP = "q-ledger"


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    cluster = Brokers(Clock())
    cluster.clock.now_ms = time.time() * 1_000
    for topic in ("x", "y"):
        cluster.create(topic, 1)

    def connect(config: ClientConfig, _timeout_ms: int = 0) -> Cluster:
        return Cluster(SimulatedConnection(cluster, config, lambda _node, _request, answer, _limit_ms: answer()))  # type: ignore[arg-type]

    with mock.patch.object(Cluster, "connect", connect):
        close_shared()
        yield cluster
        close_shared()


@pytest.fixture
def how(brokers: Brokers, tmp_path: Path) -> KafkaPublication:
    plan = KafkaStagePlan(
        client=CONFIG, topic=None, stem=None, timeout_ms=60_000, transactional=True, columns=("value", "topic"),
        has_control=False, has_offsets=False,
    )  # fmt: skip
    return KafkaPublication(
        plan=plan, ledger=tmp_path / "ledger", mode=SnapshotMode.BATCH, guarantee=Guarantee.EXACTLY_ONCE
    )


def publish(how: KafkaPublication, batch: int, *topics: str, run: str = "run-0") -> None:
    task = Task(query="q", run=run, batch=batch, partition=0, attempt=0, number=batch)
    rows = [pa.record_batch({"value": [f"{batch}"] * len(topics), "topic": list(topics)})] if topics else []
    publish_to_kafka(how, [stage(how.plan, task, rows)], batch=batch)


def markers() -> dict[str, int]:
    """The batch of each topic's marker."""
    offsets: dict = shared(CONFIG).fetch_offsets(GROUP, None)
    return {where.topic: json.loads(of.metadata)["batch"] for where, of in offsets.items()}


def test_rows_that_name_their_topics_leave_a_marker_at_one_of_them(how: KafkaPublication) -> None:
    publish(how, 0, "y", "x")
    assert markers() == {"x": 0}
    publish(how, 1, "y")
    publish(how, 2)
    assert markers() == {"x": 0, "y": 1}


def test_a_lost_ledger_of_rows_that_name_their_topics_is_refused(how: KafkaPublication) -> None:
    publish(how, 0, "x")
    publish(how, 1, "y")
    shutil.rmtree(how.ledger)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is empty, but query q has decided batch 1"):
        publish(how, 1, "y", run="run-1")


def test_another_decision_of_the_same_batch_is_refused(how: KafkaPublication, tmp_path: Path) -> None:
    """As when a copy was restored next to a marker that the other copy wrote."""
    publish(how, 0, "x")
    shutil.copytree(how.ledger, tmp_path / "copy")  # type: ignore[arg-type]
    publish(how, 1, "x")
    copy = replace(how, ledger=tmp_path / "copy")
    decided = Ledger(how.ledger).newest()  # type: ignore[arg-type]
    assert decided is not None
    Ledger(tmp_path / "copy").decide(replace(decided, transactions=(), published=False))
    with pytest.raises(InputError, match="has decided that batch with other transactions, by a copy"):
        publish(copy, 2, "x", run="run-1")


def test_a_marker_of_version_1_still_contradicts_an_older_ledger(how: KafkaPublication) -> None:
    publish(how, 0, "x")
    old = {("x", 0): (6, '{"version":1,"batch":5}')}
    shared(CONFIG).commit_offsets(GROUP, old)
    assert shared(CONFIG).fetch_offsets(GROUP, None) == {("x", 0): Committed(6, '{"version":1,"batch":5}')}
    with pytest.raises(InputError, match="ends at batch 0, but query q has decided batch 5"):
        publish(how, 1, "x", run="run-1")


def test_a_fence_that_the_brokers_have_forgotten_is_taken_again(how: KafkaPublication, brokers: Brokers) -> None:
    publish(how, 0, "x")
    del brokers.transactions["q-fence"]
    publish(how, 1, "x")
    assert markers() == {"x": 1}


def test_a_decision_whose_marker_was_not_written_is_completed_by_the_next_start(
    how: KafkaPublication, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_wm_sink.kafka.marker import Marker

    publish(how, 0, "x")
    with monkeypatch.context() as dying:
        dying.setattr(Marker, "write", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            publish(how, 1, "x")
    assert markers() == {"x": 0}
    publish(how, 2, "x", run="run-1")
    assert markers() == {"x": 2}
    assert [entry.published for entry in Ledger(how.ledger).entries(3)] == [True] * 3  # type: ignore[arg-type]
