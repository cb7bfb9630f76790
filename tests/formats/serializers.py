"""Windows inside the source over what Confluent's own serializers write, against brute force.

Run: python -m tests.formats.serializers [RECORDS 100000] [SEED]
In Avro, Protobuf and JSON Schema: RECORDS orders each, of two versions of the schema, the second one with a field in
front, registered by the serializers at a real registry (that of KEYEDWM_REGISTRY, else Apicurio, else the tests' own).
"""

from __future__ import annotations

import json
import random
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.proto_schema import link
from keyedwm.kafka.requests.produce import send
from tests.tools import cluster_at, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
FIRST_MS, SIZE_MS = 1_767_225_600_000, 10_000
LATE_MS = 5_000  # how far event times of a partition go back; the lag is more
END_MS = FIRST_MS + 10**9  # of the records that close all windows
LANGUAGES = {"avro-confluent": "avro", "protobuf-confluent": "proto", "json-confluent": "json"}
Order = Mapping[str, Any]
Serialize = Callable[[Order], bytes]
Windows = dict[tuple[str | None, int], tuple[int, float, int]]


def orders(count: int, seed: int) -> Iterator[Order]:
    """Orders whose times mostly grow; some have no shop."""
    chance = random.Random(f"{seed} orders")
    for number in range(count):
        yield {
            "number": number, "shop": chance.choice([None, "Oslo", "Bergen", "Tromsø"]),
            "ts": FIRST_MS + number * 40 - chance.randrange(LATE_MS), "amount": chance.randrange(-400, 4_000) / 4,
        }  # fmt: skip


def windows(some: Sequence[Order]) -> Windows:
    """Brute force: by shop and window the number of orders, the sum of amounts and the highest number."""
    of: dict[tuple[str | None, int], list[Order]] = defaultdict(list)
    for one in some:
        of[one["shop"], one["ts"] // SIZE_MS * SIZE_MS].append(one)
    return {
        key: (len(own), sum(one["amount"] for one in own), max(one["number"] for one in own))
        for key, own in of.items()
    }  # fmt: skip


def serializers(form: str, client: SchemaRegistryClient, topic: str) -> list[Serialize]:
    """Confluent's serializer of a format for each version of the schema; the second one has a field in front."""
    context = SerializationContext(topic, MessageField.VALUE)
    make = {"avro-confluent": _avro, "protobuf-confluent": _protobuf, "json-confluent": _json}[form]
    return [partial(make(client, has_note), ctx=context) for has_note in (False, True)]


def _avro(client: SchemaRegistryClient, has_note: bool) -> Callable[..., bytes]:
    fields: list[Any] = [
        {"name": "number", "type": "long"}, {"name": "shop", "type": ["null", "string"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": "double"},
    ]  # fmt: skip
    note = [{"name": "note", "type": "string", "default": ""}] if has_note else []
    schema = json.dumps({"type": "record", "name": "order", "fields": [*note, *fields]})
    return AvroSerializer(client, schema, lambda order, _: {**order, "note": f"note {order['number']}"})


def _protobuf(client: SchemaRegistryClient, has_note: bool) -> Callable[..., bytes]:
    text = (
        'syntax = "proto3";\nimport "google/protobuf/timestamp.proto";\n'
        "message ping { string from = 1; message echo { int64 ts = 1; } }\n"
        f"message order {{ {'string note = 9;' if has_note else ''} int64 number = 1; optional string shop = 2;\n"
        "  google.protobuf.Timestamp ts = 3; double amount = 4; map<string, int32> more = 5; }\n"
    )
    file = link(RegisteredSchema(0, SchemaKind.PROTOBUF, text))
    kind = GetMessageClass(file.message_types_by_name["order"])
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})

    def serialize(order: Order, ctx: SerializationContext) -> bytes:
        seconds, ms = divmod(order["ts"], 1_000)
        members = {name: one for name, one in order.items() if one is not None}
        members |= {"ts": {"seconds": seconds, "nanos": ms * 1_000_000}, "more": {"a": 1}}
        return serializer(kind(**members, **({"note": f"note {order['number']}"} if has_note else {})), ctx)

    return serialize


def _json(client: SchemaRegistryClient, has_note: bool) -> Callable[..., bytes]:
    kinds = {"number": "integer", "shop": ["string", "null"], "ts": "integer", "amount": "number"}
    kinds |= {"note": "string"} if has_note else {}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "order", "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
    }  # fmt: skip
    note = {"note": "x"} if has_note else {}
    return JSONSerializer(json.dumps(schema), client, lambda order, _: {**note, **order}, {"validate": False})


def produce(bootstrap: str, url: str, form: str, some: Sequence[Order], chance: random.Random) -> str:
    """Write orders into a topic, the second half by either version; returns its name.

    The last record of each partition closes all windows.
    """
    topic = make_topic(bootstrap, f"orders-{uuid.uuid4().hex}", PARTITIONS)
    parts: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with SchemaRegistryClient({"url": url}) as client:
        both = serializers(form, client, topic)
        for number, order in enumerate(some):
            version = number * 2 >= len(some) and chance.random() < 0.7
            parts[chance.randrange(PARTITIONS)].append(both[version](order))
        for part in parts:
            part.append(both[0]({"number": -1, "shop": "end", "ts": END_MS, "amount": 0.0}))
    tables = {number: pa.table({"value": pa.array(part, pa.binary())}) for number, part in enumerate(parts)}
    send(cluster_at(bootstrap), topic, tables)
    return topic


def windowed(spark: SparkSession, bootstrap: str, url: str, form: str, topic: str, batch: int) -> DataFrame:
    """The windows, whose first stage runs in the tasks that read."""
    from keyedwm.spark import aggregate, count, kafka, tumbling
    from keyedwm.spark import max as most
    from keyedwm.spark import sum as total

    language = LANGUAGES[form]
    registry = {} if language == "json" else {"schema_registry_url": url, "schema_registry_cache": "none"}
    read = kafka(
        spark, bootstrap, subscribe=topic, starting_offsets="earliest", max_offsets_per_trigger=batch,
        value_format=form, event_time=f"{language}:$.ts", watermark_lag="1 minute", idle_timeout="none", **registry,
    )  # fmt: skip
    aggregates = {
        "n": count(), "total": total(f"{language}:$.amount::double"), "last": most(f"{language}:$.number::bigint")
    }  # fmt: skip
    results = aggregate(read, {"shop": f"{language}:$.shop"}, tumbling(f"{SIZE_MS} milliseconds"), aggregates)
    return results.where("control IS NULL").selectExpr("shop", "unix_millis(window.start) ms", "n", "total", "last")


def windows_of(rows: Sequence[Any]) -> Windows:
    """What a query has found, as brute force has it; a window that comes twice is an error."""
    of_key: Windows = {}
    for row in rows:
        assert (row["shop"], row["ms"]) not in of_key, f"{row} came twice"
        of_key[row["shop"], row["ms"]] = row["n"], row["total"], row["last"]
    return of_key


@contextmanager
def a_registry() -> Iterator[str]:
    """A real registry, else that of the tests; its address."""
    from keyedwm.core.errors import UnavailableError
    from keyedwm.testing.java import JavaError
    from keyedwm.testing.registry import registry
    from tests.support.fake_registry import fake_registry

    with ExitStack() as stack:
        try:
            running = stack.enter_context(registry())
            print(running.describe(), flush=True)
        except (JavaError, UnavailableError) as error:
            running = stack.enter_context(fake_registry())
            print(f"the registry of the tests ({error.message})", flush=True)
        yield running.url


def main(records: int = 100_000, seed: int = 1) -> int:
    """Play all formats; return 1 if windows differ."""
    from keyedwm.testing.broker import broker
    from tests.e2e.window_flights import session

    differ = 0
    some = [*orders(records, seed)]
    expected = windows(some)
    with broker() as kafka, a_registry() as url:
        spark = session()
        for form in LANGUAGES:
            began = time.monotonic()
            topic = produce(kafka.bootstrap, url, form, some, random.Random(f"{seed} {form}"))
            write_s = time.monotonic() - began
            frame = windowed(spark, kafka.bootstrap, url, form, topic, max(records // 8, 1))
            query = frame.writeStream.format("memory").queryName(topic.replace("-", "_"))
            query.trigger(availableNow=True).start().awaitTermination()
            results = windows_of(spark.table(topic.replace("-", "_")).collect())
            wrong = results.items() ^ expected.items()
            differ += len(wrong)
            print(
                f"{form}, seed {seed}: {records:,} records in {write_s:.0f} s, {len(results):,} windows in "
                f"{time.monotonic() - began - write_s:.0f} s, {len(wrong)} differ from brute force",
                *sorted(wrong, key=repr)[:4], sep="\n  ", flush=True,
            )  # fmt: skip
        spark.stop()
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
