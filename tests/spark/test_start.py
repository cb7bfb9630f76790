"""Several queries of one session are started one after another (see `keyedwm/spark/setup/conf.py` for why)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from keyedwm.spark import start_in_turn
from tests.tools import Record, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class Writer:
    """Starts a query, and notes what Spark says of those that run by then."""

    frame: DataFrame
    seen: list[str]

    def start(self) -> StreamingQuery:
        self.seen += [query.status["message"] for query in self.frame.sparkSession.streams.active]
        return self.frame.writeStream.format("noop").start()


@pytest.fixture
def ended(spark: SparkSession):
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.mark.usefixtures("ended")
def test_a_query_is_started_when_the_source_of_the_one_before_is_set_up(load, topic_of, kafka):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 0)])
    seen: list[str] = []
    queries = start_in_turn(*(Writer(load(topic), seen) for _ in range(3)))
    assert len(seen) == 3
    assert not [message for message in seen if message.startswith("Initializing")]
    for query in queries:
        query.processAllAvailable()


class Query:
    """A query that is set up, and its own writer."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls
        self.isActive, self.status = True, {"message": "Waiting for data to arrive"}

    def start(self) -> Query:
        self.calls.append(f"start {self.name}")
        if self.name == "c":
            raise ValueError("Cannot start query with name c as a query with that name is already active")
        return self

    def stop(self) -> None:
        self.calls.append(f"stop {self.name}")


def test_a_query_that_cannot_be_started_stops_the_earlier_ones():
    calls: list[str] = []
    assert [query.name for query in start_in_turn(*(Query(name, calls) for name in "ab"))] == ["a", "b"]
    with pytest.raises(ValueError, match="already active"):
        start_in_turn(*(Query(name, calls) for name in "abcd"))
    assert calls == ["start a", "start b", "start a", "start b", "start c", "stop b", "stop a"]


@pytest.mark.usefixtures("ended")
def test_a_query_that_cannot_be_set_up_holds_nobody(load, topic_of):
    topic = topic_of()
    schemaless = load(topic).sparkSession.readStream.format("keyedwm").schema("value string")
    refused = schemaless.option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", topic).load()
    first, second = start_in_turn(refused.writeStream.format("noop"), load(topic).writeStream.format("noop"))
    assert "has a fixed schema" in str(first.exception())
    second.processAllAvailable()
    assert second.exception() is None
