"""Tables of a declarative pipeline, and sinks to Delta, Iceberg and Kafka: events, and windows per customer.

Tables get no control rows: `events` drops them. The flows of the keyedwm sinks keep them: a sink commits whole
snapshots by them, and writes none.
"""

from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from keyedwm.spark import Source, aggregate, count, events, kafka, sum, tumbling  # noqa: A004

spark = SparkSession.active()
bootstrap = spark.conf.get("orders.bootstrap")
data = spark.conf.get("orders.data")
catalog = {"type": "sql", "uri": f"sqlite:///{data}/catalog.db", "warehouse": f"file://{data}/lake"}
Path(data).mkdir(parents=True, exist_ok=True)
load_catalog("default", **catalog).create_namespace_if_not_exists("db")


def orders_topic() -> Source:
    """Describe the read of the topic."""
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


dp.create_sink("per_minute_delta", "keyedwm", {"path": f"{data}/per_minute_delta"})
dp.create_sink(
    "per_minute_iceberg",
    "keyedwm",
    {"table": "db.per_minute", "createTable": "true", **{f"catalog.{name}": value for name, value in catalog.items()}},
)
dp.create_sink(
    "per_minute_kafka",
    "keyedwm",
    # Spark sets the checkpoint, so the ledger needs a place of its own.
    {"kafka.bootstrap.servers": bootstrap, "topic": "per_minute", "ledger": f"{data}/per_minute_ledger"},
)


@dp.append_flow(target="per_minute_delta")
def to_delta() -> DataFrame:
    """The same windows, exactly once in a Delta table."""
    return windows()


@dp.append_flow(target="per_minute_iceberg")
def to_iceberg() -> DataFrame:
    """The same windows, exactly once in an Iceberg table."""
    return windows()


@dp.append_flow(target="per_minute_kafka")
def to_kafka() -> DataFrame:
    """The same windows as JSON, exactly once in a topic."""
    return windows().selectExpr("customer AS key", "to_json(struct(window.start, orders, amount)) AS value", "control")
