"""Reading Kafka into a no-op sink: the keyedwm source beside Spark's own Kafka connector, in turn, on one broker.

Run: python benchmarks/source.py [--records 2000000] [--pairs 5]
Each round is a fresh query over the whole topic with batches of the same size; row counts are checked before a time is
shown. Prints each side's rates and the ratio of each pair; look at the ratios, the machine may be busy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from keyedwm.kafka.admin import create_topic
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.produce import send
from keyedwm.testing.broker import broker
from keyedwm.testing.connector import spark_kafka_connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
VALUE_BYTES = 100
KEYS = 1_000
TOPIC = "bench-source"
FIRST_MS = 1_700_000_000_000


def load(bootstrap: str, records: int) -> None:
    """Produce `records` records of 100 bytes, one per ms of event time and partition."""
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
    create_topic(cluster, TOPIC, PARTITIONS)
    each = records // PARTITIONS
    numbers = np.arange(each)
    keys = pa.array([b"k%03d" % i for i in range(KEYS)], pa.binary()).take(pa.array(numbers % KEYS))
    values = pa.array([b"x" * VALUE_BYTES], pa.binary()).take(pa.array(np.zeros(each, np.int64)))
    table = pa.table({"key": keys, "value": values, "timestamp": pa.array(FIRST_MS + numbers)})
    send(cluster, TOPIC, dict.fromkeys(range(PARTITIONS), table))
    cluster.close()


def session(jars: str) -> SparkSession:
    """Start Spark as both sides use it."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )


def rows_per_second(frame: DataFrame, records: int) -> float:
    """Run one query over the topic to its end and return its rate; raises if it did not see every record."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        seen = sum(progress.numInputRows for progress in query.recentProgress)
    took = time.perf_counter() - began
    if not records <= seen <= records + 100 * PARTITIONS:
        raise SystemExit(f"a query saw {seen} rows of {records}: no figure")
    return records / took


def main() -> None:
    """Run the pairs and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=500_000, help="maxOffsetsPerTrigger of both sides")
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    jars = ",".join(map(str, spark_kafka_connector_jars()))
    with broker() as kafka:
        print(kafka.describe(), file=sys.stderr)
        load(kafka.bootstrap, chosen.records)
        spark = session(jars)

        def source(form: str, **options: str) -> DataFrame:
            reader = spark.readStream.format(form).option("kafka.bootstrap.servers", kafka.bootstrap)
            common = {"subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(chosen.batch)}
            return reader.options(**common, **options).load()

        sides: dict[str, Callable[[], DataFrame]] = {
            "spark": lambda: source("kafka"),
            "keyedwm": lambda: source("keyedwm"),
            "keyedwm, 4 columns": lambda: source("keyedwm", columns="key,value,event_time,watermark"),
        }
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(chosen.pairs + 1):
            for name, frame in sides.items():
                rate = rows_per_second(frame(), chosen.records)
                if number:  # the first round warms both sides up
                    rates[name].append(rate)
                print(f"round {number} {name}: {rate / 1e3:,.0f} thousand rows/s", flush=True)
        for name, found in rates.items():
            ratios = [ours / theirs for ours, theirs in zip(found, rates["spark"], strict=True)]
            print(
                f"{name}: median {statistics.median(found) / 1e3:,.0f} thousand rows/s; of Spark's "
                f"{statistics.median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})"
            )
        spark.stop()


if __name__ == "__main__":
    main()
