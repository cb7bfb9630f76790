"""Planning one batch over topics with many partitions, on one real broker: offsets asked, states fetched, tasks cut.

Run: python -m benchmarks.planning [--partitions 1000 10000] [--rounds 5] [--profile]
Every partition gets a record before each round, and the round before has been read. Times are those of `latestOffset`
and `partitions` on a warm reader, as Spark calls them (offsets pass through JSON). Also shown: this process's own CPU
time, which a busy machine changes less, a call that finds nothing new, the requests that one planning sends, and the
bytes of the offset log for each partition.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import time
from collections import Counter
from typing import Any

from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from pyspark.sql.streaming.datasource import ReadMaxRows

from benchmarks.measure import Sheet, how_many, through_json
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import Connection, Retry
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster, shared
from keyedwm.testing.admin import create_partitions, create_topic
from keyedwm.testing.local import local_broker
from pyspark_wm_source.reader import row_schema, stream_reader

# A controller makes at most so many partitions in one step.
STEP = 5_000
HEAP_MB = 1_500
NO_LIMIT = ReadMaxRows(2**31 - 1)
# Making thousands of logs takes a broker a while.
PATIENT = {"default.api.timeout.ms": "600000", "request.timeout.ms": "600000"}
SMALL_LOGS = {"log.index.size.max.bytes": "4096", "log.segment.bytes": "1048576", "offsets.topic.num.partitions": "1"}


def make(cluster: Cluster, partitions: int) -> str:
    """Create a topic with so many partitions."""
    topic = f"bench-planning-{partitions}"
    create_topic(cluster, topic, min(partitions, STEP))
    for total in range(2 * STEP, partitions + 1, STEP):
        create_partitions(cluster, topic, total)
    return topic


def append(cluster: Cluster, topic: str, partitions: int) -> None:
    """Append one record to every partition, in a single request."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1_000,
    )  # fmt: skip
    builder.append(0, time.time_ns() // 1_000_000, None, b"x", [])
    batch, kind = bytes(builder.build()), ProduceRequest.TopicProduceData
    parts = [kind.PartitionProduceData(index=partition, records=batch) for partition in range(partitions)]
    retry = Retry(cluster.config, "appending")
    (node,) = cluster.leaders([TopicPartition(topic, 0)], retry)
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[kind(name=topic, partition_data=parts)],
        min_version=3, max_version=9,
    )  # fmt: skip
    answer = cluster.connection.call(node, request)
    if failed := [part.index for part in answer.responses[0].partition_responses if part.error_code]:
        raise SystemExit(f"{len(failed)} partitions took no record: no figure")


def count_requests() -> Counter[str]:
    """Count what is sent from now on, by kind."""
    requests: Counter[str] = Counter()
    submit = Connection.submit

    def count_request(self: Connection, node_id: int | None, request: Any) -> Any:
        requests[type(request).__name__] += 1
        return submit(self, node_id, request)

    Connection.submit = count_request  # type: ignore[method-assign]
    return requests


def measure(sheet: Sheet, cluster: Cluster, topic: str, partitions: int, profile: cProfile.Profile | None) -> None:
    """Plan, read and plan again; as many rounds as the sheet's setting says, and one to warm up."""
    options = {
        "kafka.bootstrap.servers": cluster.config.addresses, "subscribe": topic, "startingOffsets": "earliest",
        **{f"kafka.{name}": value for name, value in PATIENT.items()},
        "columns": "partition,offset,event_time,watermark,control",
    }  # fmt: skip
    reader = stream_reader(options, row_schema(options))
    start = through_json(reader.initialOffset())  # comes back once every partition has its leader in place
    requests_sent = count_requests()
    for number in range(sheet.setting["rounds"] + 1):
        append(cluster, topic, partitions)
        requests_sent.clear()
        if profile and number:
            profile.enable()
        began, cpu_began = time.perf_counter(), time.process_time()
        end = reader.latestOffset(start, NO_LIMIT)
        tasks = reader.partitions(start, end)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        if profile:
            profile.disable()
        requests = sum(requests_sent.values())
        rows = sum(batch.column("control").null_count for task in tasks for batch in reader.read(task))
        if rows != partitions:
            raise SystemExit(f"planning: {rows} rows of {partitions} partitions were read: no figure")
        start = through_json(end)
        size = len(json.dumps(start, separators=(",", ":")))
        figures = {
            "ms": took * 1e3, "cpu_ms": cpu * 1e3, "tasks": len(tasks), "requests": requests,
            "offset_bytes": size / partitions,
        }  # fmt: skip
        sheet.add(f"{partitions:,} partitions", figures, warming=number == 0)
    while (end := through_json(reader.latestOffset(start, NO_LIMIT))) != start:
        start = end
    began = time.perf_counter()
    reader.latestOffset(start, NO_LIMIT)
    print(f"{partitions:,} partitions, nothing new: {(time.perf_counter() - began) * 1e3:,.0f} ms", flush=True)


def main() -> None:
    """Run all sizes and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=how_many, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=how_many, default=5)
    parser.add_argument("--profile", action="store_true", help="print where the time of each size goes")
    options = parser.parse_args()
    # The broker inherits it; it holds a file or two of each partition open.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with local_broker(extra=SMALL_LOGS, heap_mb=HEAP_MB) as broker:
        cluster = shared(ClientConfig.from_options({"bootstrap.servers": broker.bootstrap, **PATIENT}))
        sheet = Sheet("planning", None, {"rounds": options.rounds})
        for partitions in options.partitions:
            began = time.perf_counter()
            topic = make(cluster, partitions)
            print(f"{partitions:,} partitions were made in {time.perf_counter() - began:.0f} s", flush=True)
            profile = cProfile.Profile() if options.profile else None
            measure(sheet, cluster, topic, partitions, profile)
            if profile:
                pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        sheet.finish()


if __name__ == "__main__":
    main()
