"""Spark's own Kafka connector and its Avro, which the demo and the benchmarks compare with.

Rule: the connector is exactly these artifacts: the rest of what they depend on is already among PySpark's jars.
"""

from __future__ import annotations

from pathlib import Path

from keyedwm.testing.ivy import fetch_jars

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
HASHES = {
    "commons-pool2-2.12.0.jar": "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    "kafka-clients-3.9.1.jar": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "spark-avro_2.13-4.2.0.jar": "4c186cedc03cbe4ee356a94b32232b347ef48611c3209400b3a77e4fe4abff4f",
    "spark-sql-kafka-0-10_2.13-4.2.0.jar": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar": (
        "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b"
    ),
}


def spark_avro_jars() -> list[Path]:
    """Return the jars of Spark's `from_avro`, to name in `spark.jars`; raises UnavailableError as the one below."""
    return fetch_jars("spark-avro", [AVRO], transitive=False, hashes=HASHES)


def spark_kafka_connector_jars() -> list[Path]:
    """Return the jars to name in `spark.jars`; raises UnavailableError when the registry cannot be reached."""
    return fetch_jars("spark-kafka-connector", CONNECTOR, transitive=False, hashes=HASHES)
