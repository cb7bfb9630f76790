"""A feed of hand-made in-band rows: each batch is one Parquet file, read by Spark's file stream, one file a trigger."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from keyedwm.arrow.schema import row_schema

if TYPE_CHECKING:
    from tests.sink.kafka_sink import Sink

SCHEMA = row_schema(("",), headers=False, control=True)
SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "event_time timestamp, watermark timestamp, control struct<kind: string, key: tinyint, watermark: timestamp, "
    "channel: string, snapshot: bigint, channels: int>"
)


class Feed:
    """Rows by channel number of topic `t`; `batch` writes what was given as the next micro-batch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir()
        self._count = 0

    @staticmethod
    def event(partition: int, offset: int, ms: int = 0) -> dict:
        return {
            "value": f"{partition}:{offset}".encode(),
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "timestamp": ms * 1_000,
            "timestampType": 0,
            "event_time": ms * 1_000,
        }

    @staticmethod
    def watermark(partition: int | None, offset: int | None, ms: int, key: int = 0) -> dict:
        channel = None if partition is None else f"t-{partition}"
        control = {"kind": "watermark", "key": key, "watermark": ms * 1_000, "channel": channel}
        return {
            "topic": None if partition is None else "t",
            "partition": partition,
            "offset": offset,
            "control": control,
        }

    @staticmethod
    def barrier(partition: int, offset: int, snapshot: int, channels: int) -> dict:
        control = {"kind": "barrier", "channel": f"t-{partition}", "snapshot": snapshot, "channels": channels}
        return {"topic": "t", "partition": partition, "offset": offset, "control": control}

    def batch(self, *rows: dict) -> None:
        name = self.directory / f"{self._count:06d}.parquet"
        hidden_path = self.directory / f".{name.name}"
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), hidden_path)
        # The file stream orders files by their time: make it the order of writing.
        os.utime(hidden_path, (1_600_000_000 + self._count, 1_600_000_000 + self._count))
        hidden_path.rename(name)
        self._count += 1

    def end_snapshot(self, snapshot: int, tops: tuple[int, ...], ms: int, count: int = 2) -> None:
        """One whole batch: `count` events a channel up to `tops` (next offsets), a watermark and a barrier each."""
        rows = []
        for partition, top in enumerate(tops):
            rows += [self.event(partition, offset, ms + offset) for offset in range(top - count, top)]
            rows.append(self.watermark(partition, top, ms))
            rows.append(self.barrier(partition, top, snapshot, len(tops)))
        self.batch(*rows)

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.directory))


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "feed")


Drain = Callable[..., None]


@pytest.fixture
def drain(tmp_path: Path) -> Drain:
    """Run a stream through the sink until its input is used up; an error comes out as Spark words it."""

    def run(frame: DataFrame, checkpoint: str = "checkpoint", mode: str = "append", **options: str) -> None:
        writer = frame.writeStream.format("keyedwm").outputMode(mode).trigger(availableNow=True)
        all_options = {"path": str(tmp_path / "table"), "checkpointLocation": str(tmp_path / checkpoint), **options}
        query = writer.options(**all_options).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    return run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture(params=["delta", "iceberg"])
def tables(request) -> ModuleType:
    """How to write and look at tables of one format: each claim about batches holds in all of them."""
    return importlib.import_module(f"tests.sink.{request.param}_sink")


@pytest.fixture
def sink(kafka, topic_of, tmp_path: Path) -> Sink:
    """A query's sink to a topic of two partitions."""
    from tests.sink.kafka_sink import Sink

    return Sink(kafka.bootstrap, topic_of(2), tmp_path / "ledger", f"q-{uuid.uuid4().hex}")


@pytest.fixture
def dies_at(monkeypatch) -> Callable[..., None]:
    """Let the driver die instead of doing a step of its commit, or after it."""

    def at(step: str, *, after: bool = False) -> None:
        import pyspark_wm_sink.kafka.publish as module
        from tests.sink.kafka_sink import Died

        place = module if hasattr(module, step) else module.Ledger
        real = getattr(place, step)

        def die(*args, **kwargs):
            if after:
                real(*args, **kwargs)
            raise Died

        monkeypatch.setattr(place, step, die)

    return at


@pytest.fixture
def committed(kafka) -> Callable[..., list[str]]:
    """The values in a topic, sorted, for a read_committed reader. only_committed: wait until nothing is open."""

    def read(topic: str, *, only_committed: bool = True) -> list[str]:
        return sorted(
            value.decode() for _, _, value, _ in records_of(kafka.bootstrap, topic, only_committed=only_committed)
        )

    return read


def records_of(bootstrap: str, topic: str, *, only_committed: bool = True) -> list[tuple]:
    """(partition, key, value, headers) of every committed record, by partition and offset."""
    from keyedwm.kafka.client.values import Isolation
    from keyedwm.kafka.records.read import ColumnSelection
    from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
    from tests.tools import cluster_at, wait_for_markers

    cluster = cluster_at(bootstrap)
    if only_committed:
        wait_for_markers(bootstrap, topic)
    places = [(topic, partition) for partition in cluster.partitions([topic])[topic]]
    stable = sorted(cluster.latest(places, Isolation.READ_COMMITTED).items())
    ranges = [OffsetRange(topic, where.partition, 0, end) for where, end in stable]
    records: list[tuple] = []
    for part in read_ranges(cluster, ranges, ColumnSelection(headers=True), Isolation.READ_COMMITTED):
        rows = part.records
        columns = (rows.key.to_pylist(), rows.value.to_pylist(), rows.headers.to_pylist())
        records += [(part.tp.partition, *row) for row in zip(*columns, strict=True)]
    return records
