"""What a query's sources say reaches the user's program: as values, and in its own log."""

from __future__ import annotations

import json
import logging
import time
import uuid
from queue import Queue
from types import SimpleNamespace

from keyedwm.kafka.client.values import TopicPartition
from keyedwm.spark import log_progress, source_progress
from keyedwm.spark.failures.checkpoint_errors import Failures
from keyedwm.spark.inspect.progress import LOG
from keyedwm.spark.metrics.catalogue import PARTITIONS
from keyedwm.spark.metrics.exporter import MetricsListener
from keyedwm.spark.metrics.figures import Figures
from tests.cli.planted import T_MS, Planted
from tests.source.scripted import Log
from tests.tools import Record, produce, wait_until


def test_who_holds_the_watermark_comes_as_values_and_as_a_line_of_the_programs_own_log(
    spark, kafka, topic_of, load, caplog
):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 50_000)])
    query = load(topic).writeStream.format("noop").queryName("orders").start()
    listener = log_progress(spark)
    try:
        with caplog.at_level(logging.DEBUG, LOG.name):
            produce(kafka.bootstrap, topic, [Record(0, 60_000)])
            query.processAllAvailable()
            (facts,) = wait_until(lambda: source_progress(query), "the first progress")
            wait_until(lambda: any("query orders planned" in line for line in caplog.messages), "a line of the log")
            produce(kafka.bootstrap, topic, [Record(0, 70_000)])
            query.processAllAvailable()
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    assert facts["held_by"]["0"].startswith(f"{topic}-1 without a watermark: no record since ")
    told = [record.getMessage() for record in caplog.records if (record.name, record.levelname) == (LOG.name, "INFO")]
    assert len(told) == 1, "one line for several batches"
    assert told[0].startswith(f"query orders: no watermark yet, held by {topic}-")
    line = next(line for line in caplog.messages if "query orders planned" in line)
    assert json.loads(line.partition(" planned ")[2])["held_by"].keys() == {"0"}


def test_a_query_without_a_source_of_ours_has_nothing_to_say(spark):
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        assert source_progress(query) == []
        wait_until(lambda: query.recentProgress, "the first progress")
        assert source_progress(query) == []
    finally:
        query.stop()


class Stopped:
    """A query that was started again on a checkpoint and has no progress yet."""

    lastProgress = None  # noqa: N815 (Spark's own name)

    def __init__(self, checkpoint: str | None) -> None:
        if checkpoint is not None:  # else one of Spark Connect
            java = SimpleNamespace(resolvedCheckpointRoot=lambda: f"file:{checkpoint}")
            self._jsq = SimpleNamespace(streamingQuery=lambda: java)


def test_before_its_first_progress_a_query_shows_the_batch_that_was_committed_last(tmp_path, monkeypatch):
    channel = TopicPartition("t", 0)
    planted = Planted(monkeypatch, tmp_path, {channel: Log.of(5)})
    assert source_progress(Stopped(str(tmp_path))) == []
    planted.plan()
    planted.driver.run_tasks(T_MS)
    planted.cluster.logs[channel] = Log.of(7)
    planted.plan()
    planted.driver.run_tasks(T_MS + 9)
    planted.cluster.logs[channel] = Log.of(8)
    planted.plan(committed=False)
    (facts,) = source_progress(Stopped(str(tmp_path)))
    assert (facts["batch"], facts["reads"], facts["watermark"]) == (1, 2, {"0": "2023-11-14T22:13:20.000Z"})
    assert (facts["backlog"], facts["offsets"], facts["causes"]) == (None, {}, {"0": {"log ends not asked for": 1}})
    assert source_progress(Stopped(None)) == []


def test_a_listener_shows_the_committed_batch_when_a_query_starts(tmp_path, monkeypatch):
    planted = Planted(monkeypatch, tmp_path, {TopicPartition("t", 0): Log.of(5)})
    planted.plan()
    changes: Queue[None] = Queue()
    exporter = SimpleNamespace(changed=lambda: changes.put(None))
    started = SimpleNamespace(id=uuid.uuid4(), runId=uuid.uuid4(), name="orders")
    streams = SimpleNamespace(active=[], get=lambda _id: Stopped(str(tmp_path)))
    figures = Figures(time.time, partitions=0)
    listener = MetricsListener(figures, exporter, Failures(SimpleNamespace(streams=streams)))
    listener.onQueryStarted(started)
    for _ in ("the start", "the figures of the checkpoint"):
        changes.get(timeout=30)
    assert [sample.value for sample in figures.samples() if sample.metric is PARTITIONS] == [1, 0]


class Broken:
    """An exporter that fails at everything; it counts how often it was told."""

    place = "nowhere"

    def __init__(self) -> None:
        self.told = 0

    def changed(self) -> None:
        self.told += 1
        raise RuntimeError("broken")

    def close(self) -> None:
        raise RuntimeError("broken")


def test_an_exporter_that_raises_ends_no_query(spark):
    exporter = Broken()
    listener = MetricsListener(Figures(time.time, partitions=1), exporter, Failures(spark))
    spark.streams.addListener(listener)
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        wait_until(lambda: exporter.told > 2, "three events")
        before = query.lastProgress.batchId
        wait_until(lambda: query.lastProgress.batchId > before, "a batch more")
        assert query.isActive
    finally:
        query.stop()
        spark.streams.removeListener(listener)
