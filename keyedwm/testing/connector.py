"""Spark's own Kafka connector, for side-by-side runs with ours.

Rule: exactly these artifacts; the rest of what they depend on is already among PySpark's jars.
"""

from __future__ import annotations

from pathlib import Path

from keyedwm.testing.ivy import fetch_jars

ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


def spark_kafka_connector_jars() -> list[Path]:
    """Jars to name in `spark.jars`; raises UnavailableError when the registry cannot be reached."""
    return fetch_jars("spark-kafka-connector", ARTIFACTS, transitive=False)
