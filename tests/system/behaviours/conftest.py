"""Queries in the shared Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming import StreamingQuery

PATIENCE_S = 400


def collected(rows: DataFrame, number: int) -> list[Row]:
    """How a batch is taken unless a test has something to do meanwhile."""
    return rows.collect()


class Run:
    """A running query into a list per batch; `take` (a batch's records, its number) collects them."""

    def __init__(
        self, frame: DataFrame, checkpoint: Path, take: Callable[[DataFrame, int], list[Row]], **trigger: Any
    ) -> None:
        self.batches: dict[int, list[int]] = {}
        self._take = take
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = (writer.trigger(**trigger) if trigger else writer).start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        records = frame.where("control IS NULL") if "control" in frame.columns else frame
        rows = self._take(records.select("partition", "offset", "value"), number)
        self.batches[number] = [int(bytes(row.value)) for row in sorted(rows)]

    @property
    def values(self) -> list[int]:
        """All records' values, batch after batch, inside a batch by partition and offset."""
        return [value for number in sorted(self.batches) for value in self.batches[number]]

    @property
    def full(self) -> list[list[int]]:
        """The batches with records."""
        return [self.batches[number] for number in sorted(self.batches) if self.batches[number]]

    @property
    def progress(self) -> list[dict[str, Any]]:
        """What Spark told about each batch."""
        return [json.loads(progress.json) for progress in self.query.recentProgress]

    def ends(self) -> Run:
        """Wait until the query has stopped by itself; raises what it failed with."""
        assert self.query.awaitTermination(PATIENCE_S), "the query did not stop by itself"
        return self

    def catches_up(self) -> Run:
        """Wait until all that is there now has been processed."""
        self.query.processAllAvailable()
        return self


@pytest.fixture
def load(spark, kafka) -> Callable[..., DataFrame]:
    """A streaming frame; options by name, or as a mapping."""

    def frame(options: dict[str, str] | None = None, **named: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": kafka.bootstrap} | (options or {}) | named
        return spark.readStream.format("keyedwm").options(**given).load()

    return frame


class Starter:
    """Starts queries on frames; a second one goes on from where the first one stopped, until `anew`."""

    def __init__(self, home: Path) -> None:
        self._home, self._checkpoints, self.runs = home, 0, []

    def __call__(
        self, frame: DataFrame, take: Callable[[DataFrame, int], list[Row]] = collected, **trigger: Any
    ) -> Run:
        self.runs.append(Run(frame, self.checkpoint, take, **trigger))
        return self.runs[-1]

    @property
    def checkpoint(self) -> Path:
        return self._home / f"checkpoint-{self._checkpoints}"

    def anew(self) -> None:
        """Begin a new checkpoint."""
        self._checkpoints += 1


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    for run in starter.runs:
        run.query.stop()


@pytest.fixture
def send(kafka) -> Callable[..., None]:
    """Appends values to one partition, as decimal strings."""
    from tests.tools import Record, produce

    def values(topic: str, partition: int, numbers: range | list[int]) -> None:
        produce(kafka.bootstrap, topic, [Record(partition, 1_700_000_000_000 + n, b"%d" % n) for n in numbers])

    return values
