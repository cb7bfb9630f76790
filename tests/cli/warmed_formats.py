"""What values with a schema compile, read and written, beside what `keyedwm warm` has played: none if all is warm.

Run: python -m tests.cli.warmed_formats (a process of its own: what one test has compiled, another does not miss)
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa

from keyedwm.cli.warm import reading
from keyedwm.core.axis import Counts
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from keyedwm.runtime import compiled
from keyedwm.testing.schemas import Schema, Schemas
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import policy_run
from pyspark_wm_source.values.ranges import ChannelRange
from tests.formats import avro_writing, other_writing

AVRO = Schema(json.dumps({"type": "record", "name": "every", "fields": [
    {"name": "text", "type": ["null", "string"]}, {"name": "ratio", "type": "double"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}, {"name": "raw", "type": "bytes"},
]}))  # fmt: skip
PROTO = Schema(
    'syntax = "proto3"; message Every { string text = 1; double ratio = 2; int64 at = 3; bytes raw = 4; }', "PROTOBUF"
)
NOW_MS = 1_700_000_000_000
AT = dt.datetime(2023, 11, 14, tzinfo=dt.timezone.utc)
VALUES = {
    "avro": AVRO.of({
        "text": "a", "ratio": 1.5, "day": AT.date(), "price": Decimal("1.25"), "at": AT, "raw": b"x",
    }),
    "proto": PROTO.of({"text": "a", "ratio": 1.5, "at": NOW_MS, "raw": "eA=="}),
}  # fmt: skip
COLUMNS = {
    "avro": ", avro:$.day::date, avro:$.price::decimal(12,3), avro:$.at::timestamp AS time, avro:$.raw::binary",
    "proto": ", proto:$.raw::binary",
}
FORMATS = {"avro-confluent": "avro", "avro-apicurio": "avro", "protobuf-confluent": "proto"}


def signatures() -> set[str]:
    """The functions that are compiled in this process, by the types of their arguments."""
    return {
        f"{later.__module__}.{later.__qualname__}{signature}"
        for later in compiled._all
        if later._ready
        for signature in getattr(later.dispatcher(), "signatures", ())
    }


def read_once(name: str, place: str) -> None:
    """Read good values, and then good ones among a null, one without a head and one that is cut off."""
    format_options = {
        "value.format": name, "onBadValue": "null", "eventTime": f"{place}:$.at",
        "columns": f"{place}:$.text, {place}:$.ratio::double, schema_id{COLUMNS[place]}",
    }  # fmt: skip
    schemas = Schemas([], format_options)
    framed = schemas.bytes_of(VALUES[place], "value.format")
    with schemas.registry() as registry_options:
        source_options = (
            {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"} | registry_options | format_options
        )
        options = SourceOptions.parse(source_options)
        for values in ([framed] * 3, [framed, None, b"{}", framed[:-1]]):
            count = len(values)
            records = Records(
                count, None, pa.array(values, pa.binary()), None, np.arange(count), np.full(count, NOW_MS),
                np.zeros(count, np.int32), count,
            )  # fmt: skip
            task = ChannelRange(channel=TopicPartition("t", 0), start=0, end=count, counts=Counts(), axes={})
            run = policy_run(task, options, {"": None}, NOW_MS, {}, columns=set(options.selection.fields))
            assert len(run.observe(records).decoded) == len(options.selection.fields)
            run.end()


def main() -> None:
    reading.read_records_once()
    reading.read_values_once()
    reading.write_values_once()
    before = signatures()
    for name, place in FORMATS.items():
        read_once(name, place)
    for seed in range(8):
        avro_writing.check(seed)
        other_writing.check_json(seed)
        other_writing.check_protobuf(seed)
    print(*sorted(signatures() - before), sep="\n")


if __name__ == "__main__":
    main()
