"""Flights per airport and hour, counted by event time, from Kafka to a Delta table.

    python examples/flights.py HOST:PORT TOPIC TABLE

One partition may be hours behind another: every partition's watermark is followed on its own, the slowest one decides
when an hour is closed, and a partition that falls silent holds nobody back for longer than a minute.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from keyedwm.spark import with_watermark

bootstrap, topic, table = sys.argv[1:]
spark = (
    SparkSession.builder.appName("flights")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "4")  # one task each in every batch; Spark's default is 200
    .getOrCreate()
)

flights = (
    spark.readStream.format("keyedwm")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("watermarkLag", "3 hours")
    .option("idleTimeout", "60 seconds")
    .load()
)
per_hour = (
    with_watermark(flights)
    .groupBy(F.window("event_time", "1 hour"), F.col("key").cast("string").alias("airport"))
    .count()
    .select("airport", F.col("window.start").alias("hour"), "count")
)
query = (
    per_hour.writeStream.format("keyedwm")
    .option("path", table)
    .option("checkpointLocation", f"{table}-checkpoint")
    .start()
)
query.awaitTermination()
