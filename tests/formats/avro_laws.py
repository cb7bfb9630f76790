"""Fields of generated Avro values against fastavro: `python -m tests.formats.avro_laws 10000 [FIRST]`."""

from __future__ import annotations

import copy
import io
import json
import math
import random
import sys
from typing import Any

import fastavro
import pyarrow as pa

from keyedwm.core.places import FieldType
from keyedwm.core.schemas import RegisteredSchema, SchemaKind, UnknownSchemaError
from keyedwm.formats.decoder import Decoded, Decoder
from keyedwm.formats.faults import Fault
from keyedwm.formats.heads import Head
from keyedwm.formats.requests import Request
from tests.formats.generated_avro import (
    ASKED,
    TIMES,
    UNREADABLE,
    Generator,
    at,
    encoded,
    leaves,
    logical_of,
    readable,
    resolved,
    stored,
    types_at,
)

_VALUES = 20
_RAW = ("time-millis", "time-micros", "decimal", "date", "uuid", *TIMES)


class Texts:
    """Schemas by their ids."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts, self.asked = texts, []

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self.texts:
            raise UnknownSchemaError(f"no schema has the id {schema_id}")
        return RegisteredSchema(schema_id, SchemaKind.AVRO, self.texts[schema_id])


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def check(seed: int) -> None:
    """Two writers' schemas in one batch: what is read is what fastavro reads, field by field."""
    chance = random.Random(f"{seed} avro")
    writers = [Generator(chance) for _ in range(2)]
    schemas = [writer.schema() for writer in writers]
    requests = _requests(chance, schemas, writers)
    values, expected = [], []
    for _ in range(_VALUES):
        which = chance.randrange(2)
        tree = writers[which].value(schemas[which])
        body = encoded(schemas[which], tree, writers[which].named, chance)
        values.append(framed(which + 1, body))
        expected.append((which, tree, _natives(schemas[which], body)))
    texts = Texts({number + 1: json.dumps(schema) for number, schema in enumerate(schemas)})
    decoded = Decoder(Head.CONFLUENT, requests, texts).decode(pa.array(values, pa.binary()))
    assert texts.asked == sorted(set(texts.asked), key=texts.asked.index), "a schema was asked for twice"
    for slot, request in enumerate(requests):
        rows = _rows(decoded, slot)
        for row, (which, tree, natives) in enumerate(expected):
            wanted = _wanted(schemas[which], tree, natives, request, writers[which].named)
            assert _same(rows[row], wanted), (seed, request, row, rows[row], wanted, json.dumps(schemas[which]))
    assert all(fault in (Fault.NONE, Fault.OTHER_TYPE) for fault in decoded.faults)


def _requests(chance: random.Random, schemas: list, writers: list[Generator]) -> list[Request]:
    paths = [path for schema, writer in zip(schemas, writers, strict=True) for path in leaves(schema, writer.named)]
    paths = [path for path in dict.fromkeys(paths) if path] or [("f0",)]
    some = chance.sample(paths, min(len(paths), chance.randrange(1, 7)))
    return [Request(path, chance.choice(ASKED)) for path in (*some, *some[:1])]


def _natives(schema: Any, body: bytes) -> tuple[Any, Any]:
    """What fastavro reads, with logical types and without them."""
    plain = _without_logical(schema)
    both = [
        fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(copy.deepcopy(one)))
        for one in (schema, plain)
    ]
    return both[0], both[1]


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if isinstance(schema, dict):
        return {key: _without_logical(one) for key, one in schema.items() if key != "logicalType"}
    return schema


def _wanted(schema: Any, tree: Any, natives: tuple[Any, Any], request: Request, named: dict) -> Any:
    path, asked = tuple(map(str, request.path)), request.type
    found = at(schema, tree, natives[0], path, named)
    raw = at(schema, tree, natives[1], path, named)
    if found is None or raw is None:
        return None
    fits = [one for one in types_at(schema, path, named) if readable(one, None, asked, named) is not UNREADABLE]
    logical = logical_of(resolved(found[0], named)[1])
    is_raw = logical in _RAW and asked in (FieldType.BIGINT, FieldType.DOUBLE, FieldType.BINARY)
    value = readable(found[0], raw[1] if is_raw else found[1], asked, named)
    if value is UNREADABLE or stored(found[0], asked, named) != stored(fits[0], asked, named):
        return None
    return value


def _rows(decoded: Decoded, slot: int) -> list:
    column = decoded.columns[slot]
    if isinstance(column, tuple):
        return [int(ms) if valid else None for ms, valid in zip(*column, strict=True)]
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    return column.to_pylist()


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and isinstance(wanted, (int, float)):
        return found == float(wanted) or (math.isnan(found) and math.isnan(wanted))
    return found == wanted


def main(count: int, first: int = 0) -> None:
    for seed in range(first, first + count):
        check(seed)
        if seed % 500 == 499:
            print(f"{seed + 1 - first} of {count}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
