"""Tables and a Delta sink of a declarative pipeline: events, and windows that close by the watermark of each partition.

Tables get no control rows: `events` drops them. The flow of the keyedwm sink keeps them: the sink commits whole
snapshots by them, and writes none.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from keyedwm.spark import Source, aggregate, count, events, kafka, sum, tumbling  # noqa: A004

spark = SparkSession.active()


def orders_topic() -> Source:
    """Describe the read of the topic."""
    bootstrap = spark.conf.get("orders.bootstrap")
    return kafka(spark, bootstrap, subscribe="orders", starting_offsets="earliest", watermark_lag="5 seconds")


def windows() -> DataFrame:
    """Return orders and amounts per customer and minute, with control rows."""
    aggregates = {"orders": count(), "amount": sum("json:$.amount::bigint")}
    return aggregate(orders_topic(), {"customer": "key::string"}, tumbling("1 minute"), aggregates, name="per_minute")


@dp.table
def orders() -> DataFrame:
    """One row for each record."""
    return events(orders_topic())


@dp.table
def per_minute() -> DataFrame:
    """One row for each closed window."""
    return events(windows())


dp.create_sink("per_minute_delta", "keyedwm", {"path": spark.conf.get("orders.delta")})


@dp.append_flow(target="per_minute_delta")
def to_delta() -> DataFrame:
    """The same windows, exactly once in a Delta table."""
    return windows()
