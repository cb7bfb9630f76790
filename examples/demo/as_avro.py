"""The demo's flights as Avro behind a Schema Registry (`keyedwm demo --format avro`).

Rule: the event time stands in the value alone. The record's timestamp is the time when the record reaches Kafka, so
a reader that goes by the timestamp counts in the wrong hours.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from examples.demo.flights import Flights
from keyedwm.core.schemas import SchemaKind
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.registry.client import Registry
from keyedwm.registry.options import RegistryConfig
from keyedwm.testing.avro_values import encode_avro

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = json.dumps({
    "type": "record", "name": "flight", "fields": [
        {"name": "carrier", "type": "string", "default": ""}, {"name": "flight", "type": "int", "default": 0},
        {"name": "tailnum", "type": "string", "default": ""}, {"name": "dest", "type": "string", "default": ""},
        {"name": "dep_delay", "type": "double", "default": 0},
        {"name": "departs", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
})  # fmt: skip
_HEAD_BYTES = 5


@dataclass(frozen=True, slots=True)
class AvroTopic:
    """Values of the schema with an id. url: of the registry."""

    url: str
    schema_id: int

    @classmethod
    def registered(cls, url: str, topic: str) -> AvroTopic:
        """Register the schema for the values of a topic."""
        registry = Registry(RegistryConfig.from_options(_registry_options(url)))
        return cls(url, registry.register(f"{topic}-value", SchemaKind.AVRO, SCHEMA))

    def options(self) -> Mapping[str, str]:
        """Return the options of the source that read the event time out of the values."""
        return {**_registry_options(self.url), "value.format": "avro-confluent", "eventTime": "avro:$.departs"}

    def encoded(self, flights: Flights) -> Flights:
        """Return the flights with values of Avro in place of JSON."""
        table, schema = flights.table, parse_avro(SCHEMA)
        head = b"\0" + struct.pack(">I", self.schema_id)
        values = [
            head + encode_avro(schema, {**json.loads(text or "{}"), "departs": event_ms})
            for text, event_ms in zip(table["value"].to_pylist(), table["event_ms"].to_pylist(), strict=True)
        ]
        place = table.schema.get_field_index("value")
        return Flights(table.set_column(place, "value", pa.array(values, pa.binary())))


def decoded_by_spark(rows: DataFrame) -> DataFrame:
    """Return the rows of Spark's Kafka source with the column `departs`, as people decode a registry's values."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    body = F.expr(f"substring(value, {_HEAD_BYTES + 1})")
    return rows.withColumn("departs", from_avro(body, SCHEMA)["departs"])


def _registry_options(url: str) -> dict[str, str]:
    return {"schemaRegistry.url": url, "schemaRegistry.cache": "none"}
