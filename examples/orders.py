"""Windows over Avro behind a Schema Registry, with the event time in a field, into a Delta table.

    keyedwm broker --registry                      # another terminal; it prints HOST:PORT and the REGISTRY's address
    python examples/orders.py HOST:PORT REGISTRY

Orders of two shops go into a topic, in Avro as Confluent's serializers write it. A newer version of the producer adds
a field in the middle; the query needs no restart for its schema. One value is not Avro: it comes back in the column
`rejected`, and the query continues. It prints:

    09:00 Bergen 1 3.0
    09:00 Oslo 2 6.5
    10:00 Oslo 1 1.0
    not read: the value has no head of confluent: a zero byte and four bytes of a schema's id are expected
"""

import json
import struct
import sys
import tempfile
import uuid

from deltalake import DeltaTable
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import SparkSession

from keyedwm.core.schemas import SchemaKind
from keyedwm.registry.client import Registry
from keyedwm.registry.options import RegistryConfig
from keyedwm.spark import aggregate, count, kafka, session_conf, sum, tumbling  # noqa: A004
from keyedwm.testing.pipeline import Schema

bootstrap, url = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

shop, note = ({"name": name, "type": "string"} for name in ("shop", "note"))
paid = {"name": "paid", "type": ["null", "double"]}
at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
versions = [
    Schema(json.dumps({"type": "record", "name": "order", "fields": fields}))
    for fields in ([shop, paid, at], [shop, note, paid, at])
]
topic = f"orders-{uuid.uuid4().hex[:8]}"
registry = Registry(RegistryConfig.from_options({"schemaRegistry.url": url, "schemaRegistry.cache": "none"}))
ids = [registry.register(f"{topic}-{number}", SchemaKind.AVRO, one.text) for number, one in enumerate(versions)]


def order(version: int, minute: int, **fields: object) -> bytes:
    """Return an order as a producer of this version writes it."""
    body = versions[version].of(fields | {"at": 1_767_258_000_000 + minute * 60_000}).body
    return b"\0" + struct.pack(">I", ids[version]) + body


KafkaAdminClient(bootstrap_servers=bootstrap).create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
producer = KafkaProducer(bootstrap_servers=bootstrap)
for record in (
    order(0, 0, shop="Oslo", paid=2.5), order(0, 10, shop="Bergen", paid=3.0), b"not Avro",
    order(1, 30, shop="Oslo", note="a gift", paid=4.0), order(1, 70, shop="Oslo", note="", paid=1.0),
    order(1, 150, shop="Oslo", note="", paid=9.0),
):  # fmt: skip
    producer.send(topic, record)
producer.close()

orders = kafka(
    spark, bootstrap, subscribe=topic, starting_offsets="earliest", event_time="avro:$.at", watermark_lag="10 seconds",
    value_format="avro-confluent", schema_registry_url=url, schema_registry_cache="none", on_bad_value="reject",
)  # fmt: skip
per_hour = aggregate(
    orders, {"shop": "avro:$.shop"}, tumbling("1 hour"), {"orders": count(), "paid": sum("avro:$.paid::double")}
)
with tempfile.TemporaryDirectory() as home:
    query = (
        per_hour.selectExpr("window.start AS hour", "shop", "orders", "paid", "rejected.reason AS reason", "control")
        .writeStream.format("keyedwm")
        .option("path", f"{home}/table")
        .option("checkpointLocation", f"{home}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = DeltaTable(f"{home}/table").to_pyarrow_table().to_pylist()
windows = [row for row in rows if row["reason"] is None]
for row in sorted(windows, key=lambda row: (row["hour"], row["shop"])):
    print(f"{row['hour']:%H:%M}", row["shop"], row["orders"], row["paid"])
for row in rows:
    if row["reason"] is not None:
        print("not read:", row["reason"])
