"""Late rows go to a topic of their own, and a second job counts them afterwards: no order is missing in the end.

    keyedwm broker                        # a real Kafka, in another terminal; it prints HOST:PORT
    python examples/late.py HOST:PORT

The first query writes the orders of each minute to one topic, and in the same transactions the orders whose minute was
closed to another; each order is in exactly one of the two. The second query goes on from its own checkpoint whenever it
is started, and writes a correction for each late order, exactly once as well. It prints:

    counted on time: 09:00 2, 09:01 2, 09:03 1
    with corrections: 09:00 3, 09:01 2, 09:03 1
"""

import json
import sys
import tempfile
import uuid
from collections import Counter

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from keyedwm.spark import events, late_rows, on_time_rows, session_conf, source, tumbling, with_rejected

(bootstrap,) = sys.argv[1:]
ORDERS, LATE, COUNTS = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "late-orders", "counts"))
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in (ORDERS, LATE, COUNTS)])
admin.close()

builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
home = tempfile.mkdtemp()
MINUTE = tumbling("1 minute")


def orders(topic: str) -> DataFrame:
    """The orders of a topic from its beginning: their own time stands in the value."""
    read = source(spark).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    read = read.options(startingOffsets="earliest", eventTime="json:$.at", eventTimeUnit="iso")
    return read.option("kafka.isolation.level", "read_committed").load()


def run(job: str, results: DataFrame, **options: str) -> None:
    """Write results to the topic of counts: from the job's checkpoint to the end of what it reads."""
    writer = results.writeStream.format("keyedwm").option("kafka.bootstrap.servers", bootstrap).option("topic", COUNTS)
    writer = writer.options(**options).option("checkpointLocation", f"{home}/{job}").trigger(availableNow=True)
    writer.start().awaitTermination()


def count() -> None:
    """Count orders by minute; a late one goes to a topic of its own."""
    read = orders(ORDERS)
    by_minute = on_time_rows(read, MINUTE).groupBy(F.window("event_time", "1 minute")).count()
    results = by_minute.selectExpr("date_format(window.start, 'HH:mm') key", "cast(count as string) value")
    run("count", with_rejected(results, late_rows(read, MINUTE)), errorsTo=LATE)


def correct() -> None:
    """Add one to the minute of each late order."""
    run("correct", events(orders(LATE)).selectExpr("date_format(event_time, 'HH:mm') key", "'1' value"))


def read_counts() -> str:
    """The sum of counts and corrections of each minute."""
    read = spark.read.format("keyedwm").option("kafka.bootstrap.servers", bootstrap).option("subscribe", COUNTS)
    rows = read.option("kafka.isolation.level", "read_committed").load().collect()
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row["key"].decode()] += int(row["value"])
    return ", ".join(f"{minute} {number}" for minute, number in sorted(sums.items()))


def send(*times: str) -> None:
    """Write orders."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for time in times:
        producer.send(ORDERS, json.dumps({"at": f"2026-01-01T{time}Z"}).encode())
    producer.close()


send("09:00:10", "09:00:50", "09:01:20")
count()
send("09:00:30", "09:01:40", "09:03:00")  # the first one comes when its minute is closed
count()
send("09:05:00")
count()
print("counted on time:", read_counts())
correct()
print("with corrections:", read_counts())
