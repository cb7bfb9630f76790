"""Busiest hours of New York's airports and the breaks of their carriers: windows and sessions over real flights.

    keyedwm broker                          # a real Kafka, in another terminal; it prints HOST:PORT
    python examples/windows.py HOST:PORT    # in a checkout, after make install

The first month of flights goes into a topic, one partition per airport; JFK's feed comes six hours after the others.
Sliding windows of three hours, one every hour, are counted per airport, and the busiest one of each day is taken by a
second aggregate behind the first: each is emitted in the batch that closes its window. It prints:

    +-------+----------+---------------+
    |airport|       day|busiest_3_hours|
    +-------+----------+---------------+
    |    EWR|2013-01-01|             72|
    |    JFK|2013-01-01|             72|
    |    LGA|2013-01-01|             55|
    |    EWR|2013-01-02|             86|
    |    JFK|2013-01-02|             77|
    |    LGA|2013-01-02|             65|
    |    EWR|2013-01-03|             79|
    |    JFK|2013-01-03|             76|
    |    LGA|2013-01-03|             60|
    |    EWR|2013-01-04|             84|
    |    JFK|2013-01-04|             76|
    |    LGA|2013-01-04|             61|
    +-------+----------+---------------+
    only showing top 12 rows
"""

import sys
import uuid

from pyspark.sql import SparkSession

from examples.demo.flights import read_flights
from examples.demo.load import Step, closing, new_topic
from keyedwm.spark import aggregate, count, max, session_conf, sliding, tumbling  # noqa: A004

(bootstrap,) = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

flights = read_flights(days=31)
with new_topic(bootstrap, f"flights-{uuid.uuid4().hex[:8]}") as topic:
    topic.write(Step(0, flights))
    topic.write(closing(flights))
    departures = (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .option("watermarkLag", "24 hours")  # planned departures: a flight may be a day late
        .load()
        .selectExpr("cast(key as string) airport", "event_time", "watermark", "control")
    )
    busy = aggregate(departures, "airport", sliding("3 hours", "1 hour"), {"flights": count()}, name="busy")
    busiest = aggregate(busy, "airport", tumbling("1 day"), {"flights": max("flights")}, name="busiest")
    query = (
        busiest.where("control IS NULL")
        .selectExpr("airport", "date(window.start) day", "flights busiest_3_hours")
        .writeStream.format("memory")
        .queryName("busiest")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.table("busiest").orderBy("day", "airport").show(12)
