"""The source's options as arguments: an editor completes them, a type checker reads them, and a call refuses at once.

    python examples/typed.py

It needs no Kafka: what a call describes is read when a query starts. It prints:

    option watermarkPolicy: 'fixedlags' is wrong; one of fixedLag, lagAndDelay, lagAndLull, timestampAndWallClockLag, realTimeLag, none, module:factory is expected; did you mean fixedLag? (KWM-1001) [fix your options]
    columns: device, event_time, watermark, control
"""  # noqa: E501

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from keyedwm.core.errors import OptionError
from keyedwm.spark import kafka, session_conf


def readings(spark: SparkSession) -> DataFrame:
    """The readings of devices, ten minutes out of order at most."""
    source = kafka(
        spark,
        "localhost:9092",
        subscribe="readings",
        starting_offsets="earliest",
        event_time="json:$.at",
        event_time_unit="iso",
        watermark_lag=timedelta(minutes=10),
        idle_timeout="1 minute",
        properties={"isolation.level": "read_committed"},
    )
    return source.load().selectExpr("cast(key as string) device", "event_time", "watermark", "control")


def refusal(spark: SparkSession) -> str:
    """What a wrong word is answered with, before any query starts."""
    try:
        kafka(spark, "localhost:9092", subscribe="readings", watermark_policy="fixedlags")
    except OptionError as error:
        return str(error)
    return "nothing was refused"


if TYPE_CHECKING:

    def underlined(spark: SparkSession) -> None:
        """What mypy and an editor underline: a misspelt argument, a word that no option takes, a bare number."""
        kafka(spark, "localhost:9092", subscribe="readings", watermark_lags="10 minutes")  # type: ignore[call-arg]
        kafka(spark, "localhost:9092", subscribe="readings", event_time_unit="seconds")  # type: ignore[arg-type]
        kafka(spark, "localhost:9092", subscribe="readings", watermark_lag=10)  # type: ignore[arg-type]


builder = SparkSession.builder.master("local[2]")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
print(refusal(session))
print("columns:", ", ".join(readings(session).columns))
