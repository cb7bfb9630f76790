"""Sessions of a web site's visitors: a session ends half an hour after the visitor's last click.

    python examples/sessions.py

Each server of the site writes to a partition of its own, and the second one lags. The clicks are made up: `run` gives
them to the pipeline step by step, without Kafka. Behind `spark.readStream.format("keyedwm")` the pipeline is the same.
It prints:

    step 1, watermark 10:00: no session is complete
    step 2, watermark 10:30: no session is complete
    step 3, watermark 12:50: ana 10:00-11:20, 3 clicks, home > cart > paid
    step 3, watermark 12:50: ben 10:05-10:35, 1 clicks, home
    step 3, watermark 12:50: eve 10:15-11:05, 2 clicks, home > cart
"""

from pyspark.sql import DataFrame, SparkSession

from keyedwm.spark import aggregate, collect, count, session, session_conf
from keyedwm.testing.pipeline import Record, run

FIRST, SECOND = 0, 1  # servers, and their partitions


def visits(rows: DataFrame) -> DataFrame:
    """The pipeline: one row for each session, once it is complete."""
    clicks = rows.selectExpr("*", "cast(key as string) visitor", "cast(value as string) page")
    return aggregate(clicks, "visitor", session("30 minutes"), {"clicks": count(), "pages": collect("page")})


def click(time: str, visitor: str, page: str, server: int) -> Record:
    """A click of the first of January; its key is the visitor."""
    return Record(f"2026-01-01 {time}", visitor, page, partition=server)


STEPS = [
    [click("10:00", "ana", "home", FIRST), click("10:05", "ben", "home", FIRST), click("10:15", "eve", "home", SECOND)],
    # The first server is far ahead. Two clicks of ana, 50 minutes apart, are two sessions so far.
    [click("10:50", "ana", "paid", FIRST), click("13:00", "eve", "home", FIRST), click("10:35", "eve", "cart", SECOND)],
    # The second server comes after: its click of ana joins the two into one.
    [click("10:25", "ana", "cart", SECOND), click("12:55", "eve", "cart", SECOND)],
]

builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

for number, result in enumerate(run(spark, visits, STEPS, options={"watermarkLag": "5 minutes"}), start=1):
    prefix = f"step {number}, watermark {result.watermark:%H:%M}"
    for row in sorted(result.rows, key=lambda row: row["visitor"]):
        span = f"{row['window']['start']:%H:%M}-{row['window']['end']:%H:%M}"
        print(f"{prefix}: {row['visitor']} {span}, {row['clicks']} clicks, {' > '.join(row['pages'])}")
    if not result.rows:
        print(f"{prefix}: no session is complete")
