"""Streams of the source in the shared Spark session."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from keyedwm.spark.hosting.source_description import Source
    from tests.spark.started import Started


@dataclass(frozen=True)
class Ran:
    """A finished query: its rows in order, and what Spark told about each batch."""

    rows: list[Row]
    progress: list[dict[str, Any]]

    @property
    def dropped(self) -> int:
        """How many rows Spark's operators dropped as late."""
        return sum(op["numRowsDroppedByWatermark"] for p in self.progress for op in p["stateOperators"])

    @property
    def batches(self) -> int:
        return len({p["batchId"] for p in self.progress})


@pytest.fixture(scope="session")
def load(spark, kafka) -> Callable[..., DataFrame]:
    """A streaming frame of a topic from its beginning; further options by name, or as a mapping."""

    def frame(topic: str, options: dict[str, str] | None = None, **named: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.readStream.format("keyedwm").options(**(given | (options or {}) | named)).load()

    return frame


@pytest.fixture(scope="session")
def described(spark, kafka) -> Callable[..., Source]:
    """A maker of descriptions of a topic read from its beginning."""

    from keyedwm.spark import source

    def describe(topic: str, **options: str) -> Source:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return source(spark).options(**(given | {"idleTimeout": "none"} | options))

    return describe


@pytest.fixture
def run(spark, tmp_path: Path) -> Callable[..., Ran]:
    """Run a streaming frame over all there is, into memory."""

    def to_the_end(frame: DataFrame, *, mode: str = "append", **trigger: bool) -> Ran:
        name = f"ran_{uuid.uuid4().hex}"
        writer = frame.writeStream.format("memory").queryName(name).outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return Ran(rows=spark.table(name).collect(), progress=[dict(p) for p in map(_plain, query.recentProgress)])

    return to_the_end


@pytest.fixture
def bucket_conf(spark) -> Iterator[None]:
    """The settings that `aggregate` asks of a user, for the time of a test."""
    from keyedwm.spark import recommended_conf

    wanted = recommended_conf(cores=2)
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.fixture
def one_bucket(bucket_conf, spark) -> None:
    """State in one bucket, for tests to which the number of buckets is nothing: a batch has half the tasks."""
    from keyedwm.spark.setup.conf import PARTITIONS

    spark.conf.set(PARTITIONS, "1")


@pytest.fixture
def started(kafka, tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Start a streaming frame into memory, to be driven record by record; stopped when the test ends.

    later: it starts with its first batch of `in_one_batch`.
    """
    from tests.spark.started import Started

    running: list[Started] = []

    def start(frame: Callable[[], DataFrame] | DataFrame, *, later: bool = False) -> Started:
        of_call = frame if callable(frame) else lambda: frame
        running.append(Started(kafka.bootstrap, of_call, tmp_path, later=later))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def _plain(progress: Any) -> dict[str, Any]:
    import json

    return json.loads(progress.json)
