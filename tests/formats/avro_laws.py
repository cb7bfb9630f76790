"""Fields of generated Avro values against fastavro: `python -m tests.formats.avro_laws 10000 [FIRST]`."""

from __future__ import annotations

import copy
import io
import json
import math
import random
import sys
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from keyedwm.core.places import TEXT_TYPES, FieldType
from keyedwm.core.schemas import RegisteredSchema, SchemaKind, UnknownSchemaError
from keyedwm.formats.decoder import Decoded, Decoder
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Head
from tests.formats.avro_texts import expected_json, expected_leaf, loaded, part_of, same_json, same_part
from tests.formats.generated_avro import (
    PARTS,
    REQUEST_TYPES,
    TIMES,
    UNREADABLE,
    Generator,
    at,
    encoded,
    ends_of,
    is_written,
    leaves,
    logical_of,
    readable,
    resolved,
    stored,
)

_VALUES = 20
_RAW = ("time-millis", "time-micros", "decimal", "date", "uuid", *TIMES)


class Texts:
    """Schemas by their ids."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts, self.asked_ids = texts, []

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked_ids.append(schema_id)
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
    some = _typed_paths(chance, schemas, writers)
    requests = [Request((*one.path, *one.steps), one.type) for one in some]
    values, expected = [], []
    for _ in range(_VALUES):
        which = chance.randrange(2)
        tree = writers[which].value(schemas[which])
        body = encoded(schemas[which], tree, writers[which].types_by_name, chance)
        values.append(framed(which + 1, body))
        expected.append((which, tree, _natives(schemas[which], body)))
    texts = Texts({number + 1: json.dumps(schema) for number, schema in enumerate(schemas)})
    decoded = Decoder(Head.CONFLUENT, requests, texts).decode(pa.array(values, pa.binary()))
    assert texts.asked_ids == sorted(set(texts.asked_ids), key=texts.asked_ids.index), "a schema was asked for twice"
    for slot, request in enumerate(requests):
        rows = _rows(decoded, slot)
        for row, (which, tree, natives) in enumerate(expected):
            right = _is_right(rows[row], schemas[which], tree, natives, some[slot], writers[which].types_by_name)
            assert right, (seed, request, row, rows[row], natives[0], json.dumps(schemas[which]))
    assert all(fault in (Fault.NONE, Fault.OTHER_TYPE) for fault in decoded.faults)


@dataclass(frozen=True)
class TypedPath:
    """A path to a type without fields, and on into its lists and maps."""

    path: tuple[str, ...]
    steps: tuple[str | int, ...]
    type: Any


def _typed_paths(chance: random.Random, schemas: list, writers: list[Generator]) -> list[TypedPath]:
    some = []
    for schema, writer in zip(schemas, writers, strict=True):
        paths = [path for path in dict.fromkeys(leaves(schema, writer.types_by_name)) if path]
        paths += [path[:-1] for path in paths if len(path) > 1]  # whole records
        for path in chance.sample(paths, min(len(paths), chance.randrange(1, 5))):
            ends = [
                one
                for end in ends_of(schema, path, writer.types_by_name)
                for one in (end if isinstance(end, list) else [end])
            ]
            steps = _steps(chance, chance.choice(ends), writer.types_by_name) if chance.random() < 0.5 else ()
            some.append(TypedPath(path, steps, chance.choice(TEXT_TYPES if steps else REQUEST_TYPES)))
            if chance.random() < 0.3:
                some.append(TypedPath(path, (), FieldType.STRING))
    return [*some, *some[:1]] or [TypedPath(("f0",), (), FieldType.STRING)]


def _steps(chance: random.Random, schema: Any, types_by_name: dict) -> tuple[str | int, ...]:
    """A path into lists and maps, if the type is one."""
    if isinstance(schema, list):
        schema = chance.choice(schema)
    kind, known = resolved(schema, types_by_name)
    if kind in ("array", "map") and (kind == "map" or chance.random() < 0.9):
        step: str | int = chance.randrange(3) if kind == "array" else f"k{chance.randrange(2)}"
        inner = known["items" if kind == "array" else "values"]
        return (step, *(_within(chance, inner, types_by_name) if chance.random() < 0.6 else ()))
    return ()


def _within(chance: random.Random, schema: Any, types_by_name: dict) -> tuple[str | int, ...]:
    if isinstance(schema, list):
        schema = chance.choice(schema)
    kind, known = resolved(schema, types_by_name)
    if kind == "record" and known["fields"]:
        field = chance.choice(known["fields"])
        return (field["name"], *(_within(chance, field["type"], types_by_name) if chance.random() < 0.5 else ()))
    return _steps(chance, schema, types_by_name)


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


def _is_right(
    value: Any, schema: Any, tree: Any, natives: tuple[Any, Any], one: TypedPath, types_by_name: dict
) -> bool:
    """Whether a column has what fastavro reads at a path."""
    choices = [
        choice for end in ends_of(schema, one.path, types_by_name) for choice in _choices(end, one, types_by_name)
    ]
    logical, plain = (at(schema, tree, native, one.path, types_by_name) for native in natives)
    if logical is None or plain is None or plain[2] is None or not choices:
        return value is None
    end, branch, raw = plain
    if isinstance(end, list) and all(type_ is not end for _, type_ in choices):
        end, branch = end[branch[0]], branch[1]
    keys = [key for key, type_ in choices if type_ is end]
    if not keys or keys[0] != choices[0][0]:
        return value is None
    inner = end[branch[0]] if isinstance(end, list) else end
    kind, known = resolved(inner, types_by_name)
    if kind in PARTS:
        whole = expected_json(end, branch, raw, types_by_name)
        return same_part(value, part_of(whole, one.steps), one.type) if one.steps else same_json(loaded(value), whole)
    if isinstance(end, list):
        return value is None
    if one.type is FieldType.STRING and is_written(known):
        return value == expected_leaf(kind, known, raw)
    is_raw = logical_of(known) in _RAW and one.type in (FieldType.BIGINT, FieldType.DOUBLE, FieldType.BINARY)
    return _same(value, readable(end, raw if is_raw else logical[2], one.type, types_by_name))


def _choices(end: Any, one: TypedPath, types_by_name: dict) -> list[tuple[Any, Any]]:
    """How each type at the end of a path is stored that can be read as what is asked for, and the type."""
    branches = end if isinstance(end, list) else [end]
    if one.steps:
        of = "array" if isinstance(one.steps[0], int) else "map"
        return [(id(branch), branch) for branch in branches if resolved(branch, types_by_name)[0] == of]
    read = [branch for branch in branches if readable(branch, None, one.type, types_by_name) is not UNREADABLE]
    with_parts = [branch for branch in branches if resolved(branch, types_by_name)[0] in PARTS]
    if one.type is FieldType.STRING and with_parts and not read:
        return [(id(end), end)] if isinstance(end, list) else [(stored(end, one.type, types_by_name), end)]
    return [(stored(branch, one.type, types_by_name), branch) for branch in read]


def _rows(decoded: Decoded, slot: int) -> list:
    column = decoded.columns[slot]
    if isinstance(column, tuple):
        return [int(ms) if valid else None for ms, valid in zip(*column, strict=True)]
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    return column.to_pylist()


def _same(actual: Any, expected: Any) -> bool:
    if isinstance(actual, float) and isinstance(expected, (int, float)):
        return actual == float(expected) or (math.isnan(actual) and math.isnan(expected))
    return actual == expected


def main(count: int, first: int = 0) -> None:
    for seed in range(first, first + count):
        check(seed)
        if seed % 500 == 499:
            print(f"{seed + 1 - first} of {count}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
