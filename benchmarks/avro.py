"""Event time and four fields of a record of twelve, out of Avro and out of JSON, by the code of the reading tasks.

`python -m benchmarks.avro [ROWS]` prints rows for a second of CPU, and their ratio; both in turns in one process.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time

import fastavro
import numpy as np
import pyarrow as pa

from keyedwm.arrow.places import FieldColumns
from keyedwm.core.axis import Counts
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import policy_run
from pyspark_wm_source.values.ranges import ChannelRange

ROUNDS = 7
NOW_MS = 1_767_225_600_000
SCHEMA = {"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "string"}, {"name": "shop", "type": "string"}, {"name": "kind", "type": "string"},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "customer", "type": "long"},
    {"name": "amount", "type": "double"}, {"name": "net", "type": "double"}, {"name": "currency", "type": "string"},
    {"name": "items", "type": "int"}, {"name": "note", "type": ["null", "string"]},
    {"name": "paid", "type": "boolean"}, {"name": "tags", "type": {"type": "array", "items": "string"}},
]}  # fmt: skip
FIELDS = ("shop", "kind", "customer::bigint", "amount::double")


def values(rows: int) -> dict[str, pa.Array]:
    """The same records in both formats."""
    chance, made = random.Random(7), {"avro": [], "json": []}
    parsed = fastavro.parse_schema(SCHEMA)
    for row in range(rows):
        order = {
            "id": f"{chance.getrandbits(64):016x}", "shop": f"shop-{row % 40}", "kind": "paid", "ts": NOW_MS + row,
            "customer": chance.randrange(10**6), "amount": round(chance.random() * 100, 2), "net": 1.5,
            "currency": "EUR", "items": row % 7, "note": "n" * (row % 30) or None, "paid": row % 2 == 0,
            "tags": ["a", "bc"][: row % 3],
        }  # fmt: skip
        data = io.BytesIO()
        fastavro.schemaless_writer(data, parsed, order)
        made["avro"].append(data.getvalue())
        made["json"].append(json.dumps(order).encode())
    return {name: pa.array(some, pa.binary()) for name, some in made.items()}


def options(name: str, fields: tuple[str, ...]) -> SourceOptions:
    given = {"value.format": "avro", "value.schema": json.dumps(SCHEMA)} if name == "avro" else {}
    columns = ", ".join(["event_time", *(f"{name}:$.{field}" for field in fields)])
    return SourceOptions.parse({
        "kafka.bootstrap.servers": "h:1", "subscribe": "t", "eventTime": f"{name}:$.ts", "columns": columns, **given,
    })  # fmt: skip


def cpu_s(read: SourceOptions, some: pa.Array) -> float:
    """The CPU time of event times, watermarks and columns."""
    count = len(some)
    records = Records(
        count, None, some, None, np.arange(count), np.full(count, NOW_MS), np.zeros(count, np.int32), count
    )
    task = ChannelRange(channel=TopicPartition("t", 0), start=0, end=count, counts=Counts(), axes={})
    names = set(read.chosen.fields)
    columns = FieldColumns(read.chosen.fields, names)
    begun = time.process_time()
    run = policy_run(task, read, {"": None}, NOW_MS, {}, columns=names)
    observed = run.observe(records)
    columns.read(None, some, observed.decoded)
    return time.process_time() - begun


def main(rows: int = 200_000) -> None:
    made = values(rows)
    for called, fields in (("event time and four fields", FIELDS), ("event time alone", ())):
        reads = {name: options(name, fields) for name in made}
        for name in made:
            cpu_s(reads[name], made[name])  # compiled, and warm
        took: dict[str, list[float]] = {name: [] for name in made}
        for _ in range(ROUNDS):
            for name in made:
                took[name].append(cpu_s(reads[name], made[name]))
        best = {name: rows / min(some) for name, some in took.items()}
        ratio = np.median([json_s / avro_s for avro_s, json_s in zip(took["avro"], took["json"], strict=True)])
        million = {name: f"{rate / 1e6:.1f}" for name, rate in best.items()}
        print(f"{called}: Avro {million['avro']}, JSON {million['json']} million rows/s of CPU, {ratio:.1f}x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
