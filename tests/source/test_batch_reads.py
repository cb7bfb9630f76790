"""`spark.read`: bounded, late-bound, and nothing but the records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.testing.broker import Broker
from pyspark_wm_source.options.source_options import SourceOptions
from tests.tools import Record, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def read(kafka: Broker, spark: SparkSession) -> Callable[..., DataFrame]:
    def load(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("keyedwm").option("kafka.bootstrap.servers", kafka.bootstrap)
        return reader.options(subscribe=topic, **options).load()

    return load


def numbered(partition: int, first: int, count: int) -> list[Record]:
    return [Record(partition, 1_000_000 + n, b"%d" % n) for n in range(first, first + count)]


def values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def test_an_end_left_open_is_bound_late(kafka: Broker, topic_of: Callable, read: Callable) -> None:
    """O18."""
    topic = topic_of(3)
    produce(kafka.bootstrap, topic, numbered(0, 0, 10) + numbered(1, 10, 10) + numbered(2, 20, 1))
    frame = read(topic)
    assert frame.where("control IS NULL").count() == 21
    produce(kafka.bootstrap, topic, numbered(2, 21, 9))
    assert values(frame) == list(range(30))
    assert frame.where("control IS NOT NULL OR watermark IS NOT NULL").count() == 0


def test_explicit_offsets_hold_where_they_are_given(kafka: Broker, topic_of: Callable, read: Callable) -> None:
    """O19."""
    topic = topic_of(3)
    produce(kafka.bootstrap, topic, numbered(0, 0, 10) + numbered(1, 10, 10) + numbered(2, 20, 1))
    frame = read(
        topic,
        startingOffsets=json.dumps({topic: {"0": -2, "1": -2, "2": 0}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": -1, "2": 1}}),
    )
    assert values(frame) == list(range(21))
    produce(kafka.bootstrap, topic, numbered(2, 100, 3) + numbered(1, 200, 2))
    assert values(frame.where("true")) == [*range(21), 200, 201]


def test_timestamps_bound_a_read(kafka: Broker, topic_of: Callable, read: Callable) -> None:
    """O20."""
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, numbered(0, 0, 30) + numbered(1, 30, 10))
    first = {topic: {"0": 1_000_010, "1": 1_000_030}}
    last = {topic: {"0": 1_000_020, "1": 9_000_000}}
    frame = read(topic, startingOffsetsByTimestamp=json.dumps(first), endingOffsetsByTimestamp=json.dumps(last))
    assert values(frame) == [*range(10, 20), *range(30, 40)]


def test_min_partitions_makes_tasks(kafka: Broker, topic_of: Callable, read: Callable) -> None:
    topic = topic_of(3)
    produce(kafka.bootstrap, topic, numbered(0, 0, 10) + numbered(1, 10, 10) + numbered(2, 20, 1))
    frame = read(topic, minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert values(frame) == list(range(21))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "option startingOffsets: 'latest' is wrong"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, r"option startingOffsets: t-0 has -1 \(latest\)"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: 'earliest' is wrong"),
        ({"endingOffsets": '{"t": {"3": -2}}'}, r"option endingOffsets: t-3 has -2 \(earliest\)"),
    ],
)
def test_bounds_that_a_batch_read_cannot_have_are_refused(options: dict[str, str], sentence: str) -> None:
    options_read = SourceOptions.parse({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", **options})
    with pytest.raises(OptionError, match=sentence):
        options_read.for_batch()


def test_a_start_behind_the_end_is_refused(kafka: Broker, topic_of: Callable, read: Callable) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, numbered(0, 0, 5))
    frame = read(topic, startingOffsets=json.dumps({topic: {"0": 4}}), endingOffsets=json.dumps({topic: {"0": 2}}))
    with pytest.raises(Exception, match=f"{topic}-0 would be read from offset 4 to 2"):
        frame.count()
