"""Orders priced by a table of prices that changes: the changes come as Debezium writes them (CDC).

    python examples/prices.py

`join_latest` gives each order the price that held at its own event time, however late the change or the order comes:
an order waits until the watermark of the changes has passed it. The records are made up: `run` gives them to the
pipeline step by step, without Kafka. It prints:

    two prices: nothing yet
    two orders, whose prices may still change: nothing yet
    a change, and prices an hour later: 09:30 2 tea for 6, 09:45 1 tea for 4
    an order from before the change, late: 09:35 1 tea for 3
"""

from pyspark.sql import DataFrame, SparkSession

from keyedwm.spark import Source, join_latest, session_conf
from keyedwm.testing.pipeline import Record, run


def priced(source: Source) -> DataFrame:
    """The pipeline. source: of all topics, to be narrowed to one for each side."""
    orders = source.option("subscribe", "orders").load()
    changes = source.option("subscribe", "prices").option("eventTime", "json:$.ts_ms").load()
    priced_orders = join_latest(
        orders.selectExpr(
            "cast(key as string) article", "cast(cast(value as string) as int) pieces",
            "event_time", "watermark", "control",
        ),
        changes.selectExpr(
            "cast(key as string) article",
            # of a deleted row Debezium writes null behind it: from then on the article has no price
            "cast(get_json_object(cast(value as string), '$.after.euros') as int) euros",
            "event_time", "watermark", "control",
        ),
        "article",
        names=("orders", "prices"),
    )  # fmt: skip
    return priced_orders.selectExpr("*", "pieces * euros paid")


def order(time: str, article: str, pieces: int) -> Record:
    """An order of the first of January; its key is the article."""
    return Record(f"2026-01-01 {time}", article, str(pieces), topic="orders")


def price(time: str, article: str, euros: int) -> Record:
    """A change of the table of prices, as Debezium writes it; the record itself is written much later."""
    at = Record(f"2026-01-01 {time}").timestamp_ms
    change = {"op": "u", "ts_ms": at, "after": {"article": article, "euros": euros}}
    return Record("2026-01-02 00:00", article, change, topic="prices")


STEPS = {
    "two prices": [price("08:00", "tea", 3), price("08:00", "rum", 20)],
    "two orders, whose prices may still change": [order("09:30", "tea", 2), order("09:45", "tea", 1)],
    "a change, and prices an hour later": [price("09:40", "tea", 4), price("11:00", "rum", 21)],
    "an order from before the change, late": [order("09:35", "tea", 1)],
}

builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

results = run(spark, priced, list(STEPS.values()), options={"watermarkLag": "20 minutes"}, pushed=True)
for title, result in zip(STEPS, results, strict=True):
    rows = sorted(result.rows, key=lambda row: row["event_time_orders"])
    lines = [f"{row['event_time_orders']:%H:%M} {row['pieces']} {row['article']} for {row['paid']}" for row in rows]
    print(f"{title}: {', '.join(lines) or 'nothing yet'}")
