"""Tools that tests share: records given byte for byte, topics, streams driven by hand, and waiting with a deadline."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import Retry
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.client.values import Codec, Isolation, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster, shared
from keyedwm.kafka.requests.reactions import Api, reaction
from keyedwm.kafka.requests.transactions import begin
from keyedwm.testing.admin import create_topic, delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_TIMESTAMP = -1
# Spark's two ways to say that another query has written to the same log.
SPARK_SAW_TWO = r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently"
MANY = 1_000
# Of a wait that ends at once on a free machine: only a defect, or a machine far too busy, lets it pass.
PATIENCE_S = 240.0
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class Record(NamedTuple):
    """One record, as it will lie in the log."""

    partition: int
    timestamp_ms: int
    value: bytes | None = b""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def at(ms: int) -> dt.datetime:
    """A time as Arrow gives it back."""
    return EPOCH + dt.timedelta(milliseconds=ms)


def cluster_at(bootstrap: str) -> Cluster:
    """This process's connection to a broker."""
    return shared(ClientConfig.from_options({"bootstrap.servers": bootstrap}))


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic; config: its settings, written with underscores."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    create_topic(cluster_at(bootstrap), name, partitions, settings)
    return name


def make_internal_topics(bootstrap: str) -> None:
    """A broker makes them when they are first asked for; on a busy machine longer than a task waits for a commit."""
    patient = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": "300000"}
    with closing(Cluster.connect(ClientConfig.from_options(patient), timeout_ms=300_000)) as cluster:
        cluster.fetch_offsets("first", [("none", 0)])
        begin(cluster, "first", 60_000)


def remake(bootstrap: str, topic: str, partitions: int) -> None:
    """Delete a topic and create it anew with so many partitions."""
    delete_topic(cluster_at(bootstrap), topic)

    def create_again() -> bool:
        try:
            make_topic(bootstrap, topic, partitions)
        except InputError as error:
            if "already exists" not in str(error):
                raise
            return False  # the broker is still busy deleting
        return True

    wait_until(create_again, f"topic {topic} deleted and recreated")


def produce(bootstrap: str, topic: str, records: Iterable[Record], codec: Codec = Codec.NONE) -> None:
    """Append records in the order given, one record batch per partition; every byte is the caller's."""
    by_partition: dict[int, list[Record]] = {}
    for record in records:
        by_partition.setdefault(record.partition, []).append(record)
    cluster = cluster_at(bootstrap)
    retry = Retry(cluster.config, f"producing to {topic}")
    for partition, of_partition in sorted(by_partition.items()):
        place, batch = TopicPartition(topic, partition), _batch(of_partition, codec)
        while code := _append(cluster, place, batch, retry):
            # A topic made a moment ago may not have its leader in place yet.
            assert reaction(Api.PRODUCE, code).repeats, f"{place} refused the records: {code.name}"
            cluster.forget_leaders([topic])
            retry.pause(code.name)


def _append(cluster: Cluster, place: TopicPartition, batch: bytes, retry: Retry) -> Code:
    (node,) = cluster.leaders([place], retry)
    kind = ProduceRequest.TopicProduceData
    data = kind.PartitionProduceData(index=place.partition, records=batch)
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[kind(name=place.topic, partition_data=[data])],
        min_version=3, max_version=9,
    )  # fmt: skip
    answer = cluster.connection.call(node, request)
    return Code.of(answer.responses[0].partition_responses[0].error_code)


def _batch(records: Sequence[Record], codec: Codec) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), is_transactional=False, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=2**30,
    )  # fmt: skip
    for offset, r in enumerate(records):
        builder.append(offset, r.timestamp_ms, r.key, r.value, list(r.headers))
    return bytes(builder.build())


def wait_until(condition: Callable[[], Any], description: str, timeout_s: float = PATIENCE_S) -> Any:
    """Poll until `condition()` is true and return it; fails with `description` in the error."""
    deadline_s = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {description}")
        time.sleep(0.02)
    return answer


def wait_for_markers(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open: a commit is answered before its markers stand in the partitions."""
    cluster = cluster_at(bootstrap)
    places = [TopicPartition(topic, partition) for partition in cluster.partitions([topic])[topic]]
    wait_until(
        lambda: cluster.latest(places, Isolation.READ_COMMITTED) == cluster.latest(places, Isolation.READ_UNCOMMITTED),
        f"the last stable offsets of {topic} at the logs' ends",
    )


class Stream:
    """The source driven as Spark drives it, in this process: plan, cut, read every task; one table per batch.

    Offsets pass through JSON and readers and splits through pickle, as they do in Spark.
    """

    def __init__(self, **options: str) -> None:
        from pyspark_wm_source.reader import row_schema, stream_reader

        self._make = lambda: stream_reader(options, row_schema(options))
        self.reader = self._make()
        self.offset: dict[str, Any] | None = None
        self.log: list[dict[str, Any]] = []

    def restart(self) -> None:
        """A new reader that knows nothing but the offset log."""
        self.reader = self._make()

    def plan(self, *, once: bool = False) -> bool:
        """Plan one batch and write it into the offset log; False if there is nothing to tell."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        if self.offset is None:
            self.offset = _through_json(self.reader.initialOffset())
            self.log.append(self.offset)
        limit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
        planned = _through_json(self.reader.latestOffset(self.offset, limit))
        if planned == self.offset:
            return False
        self.offset = planned
        self.log.append(planned)
        return True

    def read(self, number: int = -1) -> pa.Table:
        """Read the batch that ends at `log[number]`."""
        number %= len(self.log)
        tasks = self.reader.partitions(self.log[number - 1], self.log[number])
        batches = []
        for task in tasks:
            executor, split = pickle.loads(pickle.dumps((self.reader, task)))  # noqa: S301 - its own
            batches += executor.read(split)
        return pa.Table.from_batches(batches, self.schema)

    def batch(self, *, once: bool = False) -> pa.Table | None:
        """Plan and read one batch, None if there is nothing to tell."""
        return self.read() if self.plan(once=once) else None

    def drain(self) -> list[pa.Table]:
        """All batches until nothing is new."""
        batches = []
        while (batch := self.batch()) is not None:
            batches.append(batch)
            assert len(batches) < MANY, "the stream does not come to rest"
        return batches

    @property
    def schema(self) -> pa.Schema:
        """The rows' schema in Arrow."""
        from pyspark_wm_source.reader import arrow_schema

        return arrow_schema(self.reader._options)

    def watermark_ms(self) -> int | None:
        """The coalesced watermark of the last batch planned."""
        assert self.offset is not None
        return dict(self.offset["coalesced"]["emitted"]).get(0)


def _through_json(offset: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(offset))


def events(table: pa.Table) -> list[dict[str, Any]]:
    """The event rows."""
    return [row for row in table.to_pylist() if row.get("control") is None]


def controls(table: pa.Table) -> list[dict[str, Any]]:
    """The control rows: their struct without the source's id, which each query has of its own; `offset` beside it."""
    rows = [(row["control"], row["offset"]) for row in table.to_pylist() if row["control"] is not None]
    return [{name: of for name, of in one.items() if name != "source"} | {"offset": offset} for one, offset in rows]


def register_where_spark_cannot_find(session: SparkSession) -> None:
    """As docs/reference/versions.md has it for Python 3.13."""
    from keyedwm.cli.doctor.finding import Verdict
    from keyedwm.cli.doctor.machine import lookup
    from pyspark_wm_source import DefaultSource

    if lookup().verdict is not Verdict.OK:
        session.dataSource.register(DefaultSource)
