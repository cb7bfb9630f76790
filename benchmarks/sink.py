"""Kafka to Kafka: keyedwm's source and sink beside Spark's own, in turn, on one broker.

Run: python benchmarks/sink.py [--records 1000000] [--batch 500000] [--rounds 2]
Sides: Spark's connector (at-least-once), keyedwm at-least-once, keyedwm exactly-once; each with its own source, batches
of the same size, the columns it needs (key and value; with keyedwm control too, for barriers), and an output topic of
its own, whose committed records are counted before a rate is shown. Look at the ratios, the machine may be busy.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from keyedwm.kafka.admin import create_topic, delete_topic
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.fetch import Range, read_ranges
from keyedwm.kafka.produce import send
from keyedwm.kafka.records import Wanted
from keyedwm.kafka.values import Isolation
from keyedwm.testing.broker import broker
from keyedwm.testing.connector import spark_kafka_connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
VALUE_BYTES = 100
SOURCE = "bench-sink-in"
SIDES = {
    "spark": ("kafka", {}),
    "keyedwm at-least-once": ("keyedwm", {"guarantee": "at-least-once"}),
    "keyedwm exactly-once": ("keyedwm", {"guarantee": "exactly-once"}),
}


def load(cluster: Cluster, records: int) -> None:
    """Produce `records` records of 100 bytes with 1,000 keys."""
    create_topic(cluster, SOURCE, PARTITIONS)
    each = records // PARTITIONS
    numbers = np.arange(each)
    keys = pa.array([b"k%03d" % i for i in range(1_000)], pa.binary()).take(pa.array(numbers % 1_000))
    values = pa.array([b"x" * VALUE_BYTES], pa.binary()).take(pa.array(np.zeros(each, np.int64)))
    table = pa.table({"key": keys, "value": values, "timestamp": pa.array(1_700_000_000_000 + numbers)})
    send(cluster, SOURCE, dict.fromkeys(range(PARTITIONS), table))


def committed(cluster: Cluster, topic: str) -> int:
    """Count the records that a read_committed reader finds."""
    ends = cluster.latest([(topic, p) for p in range(PARTITIONS)], Isolation.READ_COMMITTED)
    ranges = [Range(where.topic, where.partition, 0, end) for where, end in sorted(ends.items())]
    parts = read_ranges(cluster, ranges, Wanted(key=False, value=False), Isolation.READ_COMMITTED)
    return sum(part.records.count for part in parts)


def rounds(spark: SparkSession, cluster: Cluster, records: int, batch: int, count: int) -> Iterator[dict[str, float]]:
    """Yield each side's records per second, round by round; the first round warms up and is not yielded."""
    for number in range(count + 1):
        rates: dict[str, float] = {}
        for side, (form, options) in SIDES.items():
            topic = f"bench-sink-out-{number}-{side.replace(' ', '-')}"
            create_topic(cluster, topic, PARTITIONS)
            seconds = run(spark, cluster, form, topic, maxOffsetsPerTrigger=str(batch), **options)
            found = committed(cluster, topic)
            if found != records:
                raise SystemExit(f"{side}: {found} of {records} records arrived")
            delete_topic(cluster, topic)
            rates[side] = records / seconds
        if number:
            yield rates


def run(spark: SparkSession, cluster: Cluster, form: str, topic: str, **options: str) -> float:
    """Copy the source into a topic; returns the seconds."""
    where = {"kafka.bootstrap.servers": cluster.config.addresses}
    reading = {"subscribe": SOURCE, "startingOffsets": "earliest"}
    reading["maxOffsetsPerTrigger"] = options.pop("maxOffsetsPerTrigger")
    if form == "keyedwm":
        reading["columns"] = "key,value,control"
    rows = spark.readStream.format(form).options(**where, **reading).load()
    if form == "kafka":
        rows = rows.select("key", "value")
    with tempfile.TemporaryDirectory() as checkpoint:
        began = time.perf_counter()
        writer = rows.writeStream.format(form).options(**where, topic=topic, checkpointLocation=checkpoint, **options)
        writer.trigger(availableNow=True).start().awaitTermination()
        return time.perf_counter() - began


def session() -> SparkSession:
    """Start Spark as all sides use it."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in spark_kafka_connector_jars()))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=500_000, help="maxOffsetsPerTrigger of all sides")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with broker() as running:
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": running.bootstrap}))
        load(cluster, given.records)
        spark = session()
        found = list(rounds(spark, cluster, given.records, given.batch, given.rounds))
        spark.stop()
        delete_topic(cluster, SOURCE)
        cluster.close()
    for side in SIDES:
        rates = [rates[side] for rates in found]
        ratios = [rates[side] / rates["spark"] for rates in found]
        print(
            f"{side:24} {statistics.median(rates):12,.0f} records/s   "
            f"{statistics.median(ratios):.2f} x spark ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
        )


if __name__ == "__main__":
    main()
