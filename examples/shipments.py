"""Orders with their shipments: two topics, matched by order and event time, the second one hours behind.

    python examples/shipments.py

Each side keeps its own watermark, so no shipment is late because the orders are ahead, and an order waits until no
shipment of it can come any more. The records are made up: `run` gives them to the pipeline step by step, without
Kafka. It prints:

    orders of a morning: nothing yet
    their shipments, from yesterday's backlog: order 1 of 40 EUR was sent by Hermes after 1 h
    a shipment two days after its order: order 2 of 15 EUR was sent by DHL after 46 h
    both sides days later: order 3 of 99 EUR was never sent
"""

from pyspark.sql import DataFrame, SparkSession

from keyedwm.spark import Source, join, session_conf
from keyedwm.testing.pipeline import Record, run

TIMES = ("event_time", "watermark", "control")


def sent_orders(source: Source) -> DataFrame:
    """The pipeline. source: of all topics, to be narrowed to one for each side."""
    orders = source.option("subscribe", "orders").load()
    shipments = source.option("subscribe", "shipments").load()
    return join(
        orders.selectExpr(
            "cast(key as string) id", "cast(value as string) euros", "event_time", "watermark", "control"
        ),
        shipments.selectExpr(
            "cast(key as string) id", "cast(value as string) by", "event_time", "watermark", "control"
        ),
        "id",
        within=("0 seconds", "2 days"),  # a shipment comes up to two days after its order
        how="left",
        names=("orders", "shipments"),
    )


def order(time: str, number: int, euros: int) -> Record:
    """An order of January; its key is its number."""
    return Record(f"2026-01-{time}", str(number), str(euros), topic="orders")


def shipment(time: str, number: int, by: str) -> Record:
    """A shipment of January; its key is the number of its order."""
    return Record(f"2026-01-{time}", str(number), by, topic="shipments")


STEPS = {
    "orders of a morning": [order("05 09:00", 1, 40), order("05 10:00", 2, 15), order("05 11:00", 3, 99)],
    "their shipments, from yesterday's backlog": [shipment("05 10:00", 1, "Hermes")],
    "a shipment two days after its order": [order("09 12:00", 4, 7), shipment("07 08:00", 2, "DHL")],
    "both sides days later": [order("20 12:00", 5, 3), shipment("09 08:00", 9, "DHL")],
}

builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

results = run(spark, sent_orders, list(STEPS.values()), options={"watermarkLag": "1 hour"}, pushed=True)
for title, result in zip(STEPS, results, strict=True):
    lines = []
    for row in sorted(result.rows, key=lambda row: row["id"]):
        if row["by"] is None:
            lines.append(f"order {row['id']} of {row['euros']} EUR was never sent")
        else:
            hours = (row["event_time_shipments"] - row["event_time_orders"]).total_seconds() / 3600
            lines.append(f"order {row['id']} of {row['euros']} EUR was sent by {row['by']} after {hours:.0f} h")
    print(f"{title}: {', '.join(lines) or 'nothing yet'}")
