"""What one reading task does with its records: hands them on as rows, or combines them into frames (stage one).

    python -m benchmarks.reading_task [RECORDS]

In this process, without Spark: planned, fetched, decoded and combined, in four tasks one after another. 100 bytes a
record, 1,000 keys. Prints the best of three rounds: million records a second of wall time and a CPU second. Starts a
broker (or takes KEYEDWM_BOOTSTRAP), which shares the machine's cores.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from benchmarks.measure import FIRST_MS, KEYS, PARTITIONS
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster, close_shared
from keyedwm.kafka.requests.produce import send
from keyedwm.operators.results import ROWS
from keyedwm.operators.state.blobs import unpacked
from keyedwm.testing.admin import create_topic, delete_topic
from keyedwm.testing.broker import broker
from pyspark_wm_source.options.stage import STAGE, StageSpec

ROUNDS = 3
COUNT, SUM = {"n": "count()"}, {"total": "sum(json:$.amount::bigint)"}


def pushed_options(aggregates: Mapping[str, str], key: str = "key", size_ms: int = 10_000) -> dict[str, str]:
    """The options of stage one."""
    fields = [text.partition("(")[2][:-1] for text in aggregates.values()]
    window = {"kind": "sliding", "size_ms": size_ms, "slide_ms": size_ms}
    exchange = {
        "kind": "frames", "time": "__time", "order": [], "by": ["k"], "late_rule": "window", "window": window,
        "aggregates": [*aggregates.items()], "key_watermark": None,
    }  # fmt: skip
    read = {"k": key, **{text: text for text in fields if text}}
    spec = StageSpec(fields=read, times={"__time": ""}, exchange=exchange, number=0, buckets=2)
    return spec.as_options()


CASES = {
    "rows of two columns": {"columns": "key,event_time"},
    "count by key": pushed_options(COUNT),
    "count by key as text": pushed_options(COUNT, "key::string"),
    "count and sum of a JSON number by key": pushed_options(COUNT | SUM),
    "the same, in frames of 1 s": pushed_options(COUNT | SUM, size_ms=1_000),
    "count and sum of a JSON double by key": pushed_options(COUNT | {"total": "sum(json:$.amount::double)"}),
}


def load(cluster: Cluster, topic: str, records: int) -> None:
    """Produce the records, one a ms of event time in each partition."""
    create_topic(cluster, topic, PARTITIONS, {"retention.ms": "-1"})
    chance = np.random.default_rng(1)
    names = pa.array([b"k%06d" % number for number in range(KEYS)])
    each = records // PARTITIONS
    values = [b'{"id":%08d,"amount":%05d,"note":"' % (i, i * 7 % 100_000) + b"x" * 60 + b'"}' for i in range(each)]
    table = {"value": pa.array(values), "timestamp": FIRST_MS + np.arange(each)}
    keys = {partition: names.take(pa.array(chance.integers(0, KEYS, each))) for partition in range(PARTITIONS)}
    send(cluster, topic, {partition: pa.table({"key": keys[partition], **table}) for partition in keys})


def measured(options: Mapping[str, str], records: int) -> tuple[float, float]:
    """Read the topic once; wall and CPU seconds of its tasks. Raises SystemExit if a record is missing."""
    from pyspark_wm_source.reader import row_schema, stream_reader

    reader = stream_reader(options, row_schema(options))
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    wall, cpu = time.perf_counter(), time.process_time()
    batches = [batch for task in tasks for batch in reader.read(task)]
    took = time.perf_counter() - wall, time.process_time() - cpu
    if STAGE in options:
        blobs = [blob for batch in batches for blob in batch["partials"].to_pylist() if blob is not None]
        read = sum(sum(unpacked(blob)[ROWS].to_pylist()) for blob in blobs)
    else:
        read = sum(batch.num_rows for batch in batches)
    if read != records:
        raise SystemExit(f"{records} records were read as {read}: no figure")
    return took


def main(records: int = 4_000_000) -> None:
    """Run the cases and print what came out."""
    topic = f"bench-reading-{uuid.uuid4().hex}"
    with broker() as kafka:
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        load(cluster, topic, records)
        where = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        for name, options in CASES.items():
            rounds = [measured(where | options, records) for _ in range(ROUNDS)]
            wall, cpu = (min(figures) for figures in zip(*rounds, strict=True))
            print(f"{name:40} {records / wall / 1e6:6.2f} M/s   {records / cpu / 1e6:6.2f} M per CPU s", flush=True)
        close_shared()
        delete_topic(cluster, topic)
        cluster.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
