"""Event time and four fields of a record of twelve, out of Avro, Protobuf and JSON, by the code of the reading tasks.

`python -m benchmarks.avro [ROWS]` prints rows for a second of CPU, and ratios to JSON; in turns in one process.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyarrow as pa

from benchmarks.orders import FIELDS, NOW_MS, PROTO_TEXT, SCHEMA, values
from keyedwm.arrow.places import FieldColumns
from keyedwm.core.axis import Counts
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import policy_run
from pyspark_wm_source.values.ranges import ChannelRange

ROUNDS = 7
_FORMATS = {"avro": ("avro", json.dumps(SCHEMA)), "proto": ("protobuf", PROTO_TEXT)}


def options(name: str, fields: tuple[str, ...]) -> SourceOptions:
    format_options = {} if name == "json" else {"value.format": _FORMATS[name][0], "value.schema": _FORMATS[name][1]}
    columns = ", ".join(["event_time", *(f"{name}:$.{field}" for field in fields)])
    return SourceOptions.parse({
        "kafka.bootstrap.servers": "h:1", "subscribe": "t", "eventTime": f"{name}:$.ts", "columns": columns,
        **format_options,
    })  # fmt: skip


def cpu_s(read: SourceOptions, some: pa.Array) -> float:
    """The CPU time of event times, watermarks and columns."""
    count = len(some)
    records = Records(
        count, None, some, None, np.arange(count), np.full(count, NOW_MS), np.zeros(count, np.int32), count
    )
    task = ChannelRange(channel=TopicPartition("t", 0), start=0, end=count, counts=Counts(), axes={})
    names = set(read.selection.fields)
    columns = FieldColumns(read.selection.fields, names)
    began_s = time.process_time()
    run = policy_run(task, read, {"": None}, NOW_MS, {}, columns=names)
    observed = run.observe(records)
    columns.read(None, some, observed.decoded)
    return time.process_time() - began_s


def main(rows: int = 200_000) -> None:
    bytes_by_format = values(rows)
    for case, fields in (("event time and four fields", FIELDS), ("event time alone", ())):
        reads = {name: options(name, fields) for name in bytes_by_format}
        for name in bytes_by_format:
            cpu_s(reads[name], bytes_by_format[name])  # compiled, and warm
        took: dict[str, list[float]] = {name: [] for name in bytes_by_format}
        for _ in range(ROUNDS):
            for name in bytes_by_format:
                took[name].append(cpu_s(reads[name], bytes_by_format[name]))
        for name, some in took.items():
            ratio = np.median([json_s / own_s for own_s, json_s in zip(some, took["json"], strict=True)])
            print(f"{case}, {name}: {rows / min(some) / 1e6:.1f} million rows/s of CPU, {ratio:.1f}x of JSON")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
