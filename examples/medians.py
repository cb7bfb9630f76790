"""The median order of each minute, kept up to date by late orders; those that come too late go to a topic of their own.

    keyedwm broker                          # a real Kafka, in another terminal; it prints HOST:PORT
    python examples/medians.py HOST:PORT

Results and rejected orders leave in one query, batch by batch in one transaction: each order is in a result, or in the
error topic with the reason. It prints:

    medians {"minute":"00:00","number":3,"median":5.0,"timing":"on_time"}
    medians {"minute":"00:00","number":4,"median":3.5,"timing":"late"}
    medians {"minute":"00:01","number":1,"median":4.0,"timing":"on_time"}
    rejected-orders 3 outside the retention
"""

import sys
import tempfile
import uuid

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import SparkSession

from keyedwm.spark import Store, aggregate, count, median, session_conf, tumbling

(bootstrap,) = sys.argv[1:]
orders, results, errors = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "medians", "rejected-orders"))
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in (orders, results, errors)])
admin.close()

builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
medians = aggregate(
    spark.readStream.format("keyedwm")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", orders)
    .option("startingOffsets", "earliest")
    .option("watermarkLag", "5 seconds")
    .load()
    .selectExpr("*", "cast(key as string) shop", "cast(cast(value as string) as double) paid"),
    "shop", tumbling("1 minute"), {"number": count(), "median": median("paid")},
    store=Store(retention="5 minutes"), late="emit",
)  # fmt: skip
checkpoint = tempfile.mkdtemp()


def run(*paid: tuple[int, str]) -> None:
    """Send orders, of a second each and so much, and let the query go on from its checkpoint to the end of them."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for second, euros in paid:
        producer.send(orders, key=b"Oslo", value=euros.encode(), timestamp_ms=second * 1_000)
    producer.close()
    query = (
        medians.selectExpr(
            "shop key", "to_json(struct(date_format(window.start, 'HH:mm') minute, number, median, pane.timing)) value",
            "rejected", "event_time", "watermark", "control",
        )
        .writeStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", results)
        .option("errorsTo", errors)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )  # fmt: skip
    query.awaitTermination()


run((1, "5"), (2, "1"), (3, "9"), (70, "4"))  # the minute 00:00 is complete
run((4, "2"), (600, "7"))  # the first is late, and inside the retention: the median of 00:00 changes
run((5, "3"))  # too late
for topic in (results, errors):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed",
        consumer_timeout_ms=5_000,
    )  # fmt: skip
    for record in consumer:
        reasons = {name: text.decode() for name, text in record.headers if name == "keyedwm.reason"}
        print(topic.rpartition("-")[0], (record.value or b"").decode(), *reasons.values())
    consumer.close()
