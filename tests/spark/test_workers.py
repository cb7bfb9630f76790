"""A worker keeps its connection from task to task; what travels between processes survives the journey."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

import keyedwm.core.errors as core_errors
import keyedwm.kafka.client.errors as kafka_errors
from keyedwm.core.errors import KeyedwmError
from keyedwm.kafka.client.values import TopicPartition
from tests.tools import Record, Stream, produce, wait_until

SOCKETS = Path("/proc/net/tcp")


def local_ports(bootstrap: str) -> set[str]:
    """Local ports of all connections to the broker, closing ones included."""
    wanted = f":{int(bootstrap.rpartition(':')[2]):04X}"
    lines = [line.split() for file in (SOCKETS, Path(f"{SOCKETS}6")) for line in file.read_text().splitlines()[1:]]
    return {local for _, local, remote, *_ in lines if remote.endswith(wanted)}


@pytest.mark.skipif(not SOCKETS.exists(), reason="connections are counted where Linux lists them")
def test_workers_keep_their_connection_between_tasks(kafka, topic_of, load):
    topic = topic_of(2)
    query = load(topic).writeStream.format("noop").start()
    batches = 12
    try:
        for warm in range(3):
            produce(kafka.bootstrap, topic, [Record(0, warm), Record(1, warm)])
            query.processAllAvailable()
        before = local_ports(kafka.bootstrap)
        number = query.lastProgress.batchId
        for later in range(batches):
            produce(kafka.bootstrap, topic, [Record(0, 10 + later), Record(1, 10 + later)])
            query.processAllAvailable()
        assert query.lastProgress.batchId >= number + batches
        # A worker may join in; one connection per task would be a dozen and more.
        assert len(local_ports(kafka.bootstrap) - before) < batches // 2
    finally:
        query.stop()


def test_reader_options_and_splits_survive_pickling(kafka, topic_of, open_source):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 10, b"a"), Record(1, 20, b"b")])
    stream: Stream = open_source(topic)
    assert stream.plan()
    splits = stream.reader.partitions(stream.log[-2], stream.log[-1])
    assert pickle.loads(pickle.dumps(splits)) == splits  # noqa: S301 - its own
    copy = pickle.loads(pickle.dumps(stream.reader))  # noqa: S301 - its own
    assert copy._options == stream.reader._options
    assert copy._planner_or_none is None
    assert copy.partitions(stream.log[-2], stream.log[-1]) == splits


def test_a_writer_survives_pickling(spark, tmp_path):
    from pyspark_wm_sink.writer import stream_writer

    writer = stream_writer({"path": str(tmp_path), "snapshot": "batch"}, spark.range(1).schema, overwrite=False)
    assert pickle.loads(pickle.dumps(writer))._how == writer._how  # noqa: S301 - its own


def error_classes() -> list[type[KeyedwmError]]:
    found = {
        kind for module in (core_errors, kafka_errors) for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, KeyedwmError)
    }  # fmt: skip
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_with_its_words(kind):
    error = kind("what was found, where, what would be right")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
    assert type(copy) is kind
    assert (str(copy), copy.message, copy.advice) == (str(error), error.message, error.advice)


def test_errors_with_a_place_keep_it_through_pickling():
    place = TopicPartition("t", 3)
    for error in (
        kafka_errors.OffsetOutOfRangeError.of(place, 5, 7, 9),
        kafka_errors.CorruptRecordError.of(place, 5, "is damaged", 6),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
        assert (str(copy), vars(copy)) == (str(error), vars(error))


@pytest.fixture
def open_source(kafka):
    return lambda topic: Stream(
        **{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    )


def test_progress_names_the_log_ends(kafka, topic_of, load):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 10)] * 3)
    query = load(topic).writeStream.format("noop").start()
    try:
        query.processAllAvailable()
        wait_until(lambda: query.recentProgress, "the first progress")
        latest = [p.sources[0].latestOffset for p in query.recentProgress]
        assert any(f'"{topic}":{{"0":3,"1":0}}' in (told or "").replace(" ", "") for told in latest)
    finally:
        query.stop()
