"""Values with a schema, read by the source: beside Spark's `from_avro`, beside JSON, and beside the record's timestamp.

Run: python -m benchmarks.formats [--case fields|event-time] [--records 2500000] [--pairs 5]
The same orders of twelve fields stand in three topics, in Avro, Protobuf and JSON; a registry of the tests knows the
schemas. `fields`: event time and four fields, into a no-op sink, of which sums are checked. `event-time`: all columns
of the record, by its own timestamp and by a field of its value, of each format on the same topic.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measure import PARTITIONS, Run, Sheet, checked, new_topic
from benchmarks.orders import FIELDS, NOW_MS, PROTO_TEXT, SCHEMA, framed, orders, values
from benchmarks.targets import AVRO, EVENT_TIME, JSON, PROTO
from benchmarks.turns import Bench, bench, in_turn
from examples.demo.spark_jars import spark_avro_jars
from keyedwm.core.schemas import SchemaKind
from keyedwm.kafka.requests.produce import send
from tests.support.fake_registry import FakeRegistry, fake_registry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCH, BATCHES = 250_000, 10
FORMATS = {"avro": "avro-confluent", "proto": "protobuf-confluent"}
SPARK, PRUNED = "spark, from_avro", "spark, from_avro of five fields"
KEYEDWM = {"avro": AVRO, "proto": PROTO, "json": JSON}
# The reader's schema of somebody who knows that Avro skips what it has not.
NEEDED_FIELDS = {
    **SCHEMA,
    "fields": [one for one in SCHEMA["fields"] if one["name"] in ("shop", "kind", "ts", "customer", "amount")],
}


def load(on: Bench, registry: FakeRegistry) -> dict[str, int]:
    """Produce the orders in each format, the same in all partitions; returns the sums that readers must find."""
    schema_id = registry.add("orders-value", json.dumps(SCHEMA))
    heads = framed(schema_id) | {
        "proto": framed(registry.add("p-value", PROTO_TEXT, SchemaKind.PROTOBUF.value))["proto"]
    }
    each = on.records // PARTITIONS
    formats = values(each, heads)
    times = pa.array(range(NOW_MS, NOW_MS + each))
    for name, of in formats.items():
        new_topic(on.cluster, topic(name))
        send(on.cluster, topic(name), dict.fromkeys(range(PARTITIONS), pa.table({"value": of, "timestamp": times})))
    some = pa.Table.from_pylist([
        {"ms": one["ts"], "letters": len(one["shop"]) + len(one["kind"]), "customer": one["customer"],
         "quarters": int(4 * one["amount"])}
        for one in orders(each)
    ])  # fmt: skip
    return {name: PARTITIONS * pc.sum(some[name]).as_py() for name in some.column_names}


def topic(name: str) -> str:
    return f"bench-orders-{name}"


def sums() -> list[Column]:
    """The sums of what comes out; of control rows they count nothing."""
    from pyspark.sql import functions as F

    return [
        F.sum(F.unix_millis("event_time")).alias("ms"),
        F.sum(F.length("shop") + F.length("kind")).alias("letters"),
        F.sum("customer").alias("customer"),
        F.sum((4 * F.col("amount")).cast("long")).alias("quarters"),
    ]


def reading(on: Bench, name: str) -> dict[str, str]:
    """The options of every side."""
    common = {"subscribe": topic(name), "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH)}
    return {**on.where, **common}


def native(on: Bench, *, pruned: bool) -> DataFrame:
    """Spark's Kafka source and its `from_avro`. pruned: with a reader's schema of the five fields."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import expr

    rows = on.spark.readStream.format("kafka").options(**reading(on, "avro")).load()
    reader = {"avroSchema": json.dumps(NEEDED_FIELDS)} if pruned else {}
    parsed = rows.select(from_avro(expr("substring(value, 6)"), json.dumps(SCHEMA), reader).alias("o"))
    return parsed.selectExpr("o.ts AS event_time", "o.shop", "o.kind", "o.customer", "o.amount")


def keyedwm_rows(on: Bench, name: str, registry: FakeRegistry, **options: str) -> DataFrame:
    """Our source with the registry of the tests."""
    settings = {**reading(on, name), **options}
    if name in FORMATS:
        settings |= {
            "value.format": FORMATS[name], "schemaRegistry.url": registry.url, "schemaRegistry.cache": "none",
        }  # fmt: skip
    return on.spark.readStream.format("keyedwm").options(**settings).load()


def compare_fields(on: Bench, registry: FakeRegistry, answer: dict[str, int]) -> None:
    """Event time and four fields."""

    def measured(side: str) -> Run:
        if side in (SPARK, PRUNED):
            frame = native(on, pruned=side == PRUNED)
        else:
            name = next(name for name, one in KEYEDWM.items() if one == side)
            columns = ", ".join(["event_time", *(f"{name}:$.{one}" for one in FIELDS)])
            frame = keyedwm_rows(on, name, registry, eventTime=f"{name}:$.ts", columns=columns)
        return checked(side, frame, sums(), answer, on.records)

    sheet = Sheet("formats-fields", SPARK, {"records": on.records, "batch": BATCH})
    in_turn(sheet, {side: partial(measured, side) for side in (SPARK, PRUNED, *KEYEDWM.values())}, on.pairs)


def compare_event_times(on: Bench, registry: FakeRegistry, answer: dict[str, int]) -> None:
    """The event time of the value beside the record's timestamp."""
    from pyspark.sql import functions as F

    total = [F.sum(F.unix_millis("event_time")).alias("ms")]

    def measured(name: str, options: dict[str, str]) -> Run:
        return checked(name, keyedwm_rows(on, name, registry, **options), total, {"ms": answer["ms"]}, on.records)

    sides = {}
    for name, (by_field, by_timestamp) in zip(FORMATS, EVENT_TIME.values(), strict=True):
        sides[by_timestamp] = partial(measured, name, {})
        sides[by_field] = partial(measured, name, {"eventTime": f"{name}:$.ts"})
    in_turn(Sheet("formats-event-time", None, {"records": on.records, "batch": BATCH}), sides, on.pairs)


def main() -> None:
    """Run the cases and write their results."""
    cases = {"fields": compare_fields, "event-time": compare_event_times}
    with bench(__doc__, cases, jars=spark_avro_jars) as whole, fake_registry() as registry:
        on = replace(whole, asked_records=whole.at_most(BATCH * BATCHES))
        began = time.monotonic()
        answer = load(on, registry)
        print(f"{on.records:,} orders in three formats made in {time.monotonic() - began:.0f} s", flush=True)
        for name in on.cases:
            cases[name](on, registry, answer)


if __name__ == "__main__":
    main()
