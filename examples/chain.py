"""Two jobs in a row: the second goes by the watermarks of the first, which come to it inside the topic between them.

    keyedwm broker                        # a real Kafka, in another terminal; it prints HOST:PORT
    python examples/chain.py HOST:PORT

The first job keeps the purchases among the clicks of two servers, the second counts them by hour. Its topic has one
partition, in which the rows of both servers are mixed: only the first job knows which server lags. With
`controlRows=inline` it says so, and with `propagate=true` the second one follows. It prints:

    the first server is at 12:30, the second at 10:20
    the second server is at 12:30, too
      10h: 3 purchases
      11h: 1 purchase
"""

import sys
import tempfile
import uuid
from datetime import datetime

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from keyedwm.spark import aggregate, count, session_conf, source, tumbling

(bootstrap,) = sys.argv[1:]
run_id = uuid.uuid4().hex[:8]
CLICKS, PURCHASES = f"clicks-{run_id}", f"purchases-{run_id}"
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(CLICKS, num_partitions=2, replication_factor=1)])
admin.create_topics([NewTopic(PURCHASES, num_partitions=1, replication_factor=1)])
admin.close()

builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

home = tempfile.mkdtemp()


def rows(topic: str, **options: str) -> DataFrame:
    """The rows of a topic from its beginning, control rows among them."""
    read = source(spark).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return read.option("startingOffsets", "earliest").options(**options).load()


def first_job() -> DataStreamWriter:
    """Purchases alone; control rows go along with them."""
    purchases = rows(CLICKS, watermarkLag="5 minutes").where("control IS NOT NULL OR cast(value as string) = 'buy'")
    writer = purchases.drop("topic", "partition", "offset").writeStream.format("keyedwm")
    return (
        writer.option("kafka.bootstrap.servers", bootstrap).option("topic", PURCHASES).option("controlRows", "inline")
    )


def second_job() -> DataStreamWriter:
    """Purchases by hour of the first job's event time, printed when no earlier one can come."""
    hours = aggregate(rows(PURCHASES, propagate="true"), (), tumbling("1 hour"), {"purchases": count()})
    return hours.where("control IS NULL").writeStream.foreachBatch(show)


def show(batch: DataFrame, _: int) -> None:
    """Print the hours of a batch."""
    for row in batch.orderBy("window").collect():
        print(f"  {row['window']['start']:%H}h: {row['purchases']} purchase{'s' * (row['purchases'] > 1)}")


def run(*clicks: tuple[int, str, str]) -> None:
    """Write clicks, and let each job go on from its checkpoint to the end of its topic."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for server, time, page in clicks:
        at = datetime.fromisoformat(f"2026-01-01T{time}+00:00")
        producer.send(CLICKS, page.encode(), partition=server, timestamp_ms=int(at.timestamp() * 1_000))
    producer.close()
    for job in (first_job, second_job):
        writer = job().option("checkpointLocation", f"{home}/{job.__name__}").trigger(availableNow=True)
        writer.start().awaitTermination()


print("the first server is at 12:30, the second at 10:20")
run((0, "10:05", "buy"), (0, "10:10", "home"), (0, "11:10", "buy"), (0, "12:30", "home"), (1, "10:20", "buy"))
print("the second server is at 12:30, too")
run((1, "10:40", "buy"), (1, "12:30", "home"))
