"""Devices that fall silent, and devices that upload hours late: two reasons to wait, and what each one costs.

    python examples/devices.py

A gateway that has nothing to send becomes idle, so nobody waits for it. A device without network keeps its measurements
and sends them late, beside devices of the same gateway that are on time: with `per_key` it has a watermark of its own.
The measurements are made up: `run` gives them to the pipeline step by step, without Kafka. It prints:

    one watermark for all devices
      10:00 both gateways on time: nothing yet
      10:20 the second gateway is silent, less than a minute: nothing yet
      12:00 the second gateway is idle: lamp 10h 1 row, pump 10h 2 rows, valve 10h 1 row
      12:00 an upload of the valve, hours late: nothing yet
      14:00 two hours later: pump 12h 1 row, valve 12h 1 row
    a watermark for each device
      10:00 both gateways on time: nothing yet
      10:20 the second gateway is silent, less than a minute: pump 10h 2 rows
      12:00 the second gateway is idle: nothing yet
      12:00 an upload of the valve, hours late: valve 10h 3 rows
      14:00 two hours later: pump 12h 1 row

The first one loses two measurements of the valve. The second one has them all, and the hour of the pump earlier.
"""

from pyspark.sql import DataFrame, SparkSession

from keyedwm.spark import aggregate, count, per_key, session_conf, tumbling
from keyedwm.testing.pipeline import Record, Silence, run

FIRST, SECOND = 0, 1  # gateways, and their partitions
OPTIONS = {"watermarkLag": "10 minutes", "idleTimeout": "1 minute"}


def measured(time: str, device: str, gateway: int = FIRST) -> Record:
    """A measurement of the first of January; its key is the device."""
    return Record(f"2026-01-01 {time}", device, "7.5", partition=gateway)


def for_all(rows: DataFrame) -> DataFrame:
    """Measurements by device and hour; what comes below the watermark of the query is late."""
    devices = rows.selectExpr("*", "cast(key as string) device")
    return aggregate(devices, "device", tumbling("1 hour"), {"rows": count()}, name="hours")


def for_each(rows: DataFrame) -> DataFrame:
    """The same, but an hour of a device closes by its own watermark, or half a day behind the others."""
    devices = rows.selectExpr("*", "cast(key as string) device")
    own = per_key("10 minutes", behind="12 hours")
    return aggregate(devices, "device", tumbling("1 hour"), {"rows": count()}, name="hours", key_watermark=own)


STEPS = {
    "both gateways on time": [measured("10:05", "pump"), measured("10:10", "valve"), measured("10:30", "lamp", SECOND)],
    "the second gateway is silent, less than a minute": [measured("10:55", "pump"), measured("12:10", "pump")],
    "the second gateway is idle": Silence("2 minutes"),
    "an upload of the valve, hours late": [measured("10:20", "valve"), measured("10:40", "valve"),
                                             measured("12:05", "valve")],
    "two hours later": [measured("14:10", "pump")],
}  # fmt: skip

builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

for title, pipeline in {"one watermark for all devices": for_all, "a watermark for each device": for_each}.items():
    results = run(spark, pipeline, list(STEPS.values()), options=OPTIONS)
    print(title)
    for step, result in zip(STEPS, results, strict=True):
        hours = sorted((row["device"], f"{row['window']['start']:%H}h", row["rows"]) for row in result.rows)
        line = ", ".join(f"{device} {hour} {rows} row{'s' * (rows > 1)}" for device, hour, rows in hours)
        print(f"  {result.watermark:%H:%M} {step}: {line or 'nothing yet'}")
