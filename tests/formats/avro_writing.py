"""Avro that is written out of columns against fastavro: `python -m tests.formats.avro_writing 10000 [FIRST]`."""

from __future__ import annotations

import copy
import io
import json
import random
import struct
import sys
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa

from keyedwm.formats import writing
from keyedwm.formats.avro_making import avro_schema_of
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.avro_writing import avro_encoder

HEAD = b"\0\0\0\1\2"
_UNITS = {"millis": 1_000, "micros": 1}


@dataclass
class Columns:
    """Types of columns with a schema that takes them, and values as Arrow and as fastavro have them.

    is_made: the schema is the one that is made of the columns.
    """

    chance: random.Random
    is_made: bool
    names: int = 0
    path: list[str] = field(default_factory=list)

    def record(self, depth: int) -> tuple[pa.DataType, Any, Any]:
        """The type, the schema, and a function that makes a value: (for Arrow, for fastavro)."""
        self.names += 1
        name, fields, makers = f"r{self.names}", [], []
        for number in range(self.chance.randrange(1, 7 if depth == 0 else 4)):
            is_nullable = self.chance.random() < 0.6
            kind, schema, make = self.column(depth + 1)
            if is_nullable:
                schema = self._nullable(schema)
            fields.append((pa.field(f"f{number}", kind, is_nullable), schema, make))
        kind = pa.struct([one for one, _, _ in fields])
        described = [{"name": one.name, "type": schema} for one, schema, _ in fields]
        if not self.is_made and self.chance.random() < 0.4:
            described.insert(self.chance.randrange(len(described) + 1), self._absent())
            self.chance.shuffle(described)
        makers = [(one.name, one.nullable, make) for one, _, make in fields]

        def value() -> tuple[Any, Any]:
            pairs = {n: (None, None) if null and self.chance.random() < 0.3 else make() for n, null, make in makers}
            return {n: a for n, (a, _) in pairs.items()}, {n: b for n, (_, b) in pairs.items()}

        return kind, {"type": "record", "name": name, "fields": described}, value

    def _nullable(self, schema: Any) -> list:
        if self.is_made or self.chance.random() < 0.5:
            return ["null", schema]
        branches = [schema, "null"]
        if isinstance(schema, str) and schema != "boolean" and self.chance.random() < 0.5:
            branches.insert(self.chance.randrange(3), "boolean")  # a branch that no value has
        return branches

    def _absent(self) -> dict:
        """A field with a default, of which there is no column."""
        self.names += 1
        some = [("long", -300), (["null", "string"], None), ("string", "é"), ("double", 1.5),
                ({"type": "array", "items": "int"}, [1, 2]), ({"type": "map", "values": "boolean"}, {"a": True}),
                ({"type": "enum", "name": f"e{self.names}", "symbols": ["A", "B"]}, "B")]  # fmt: skip
        type_, default = self.chance.choice(some)
        return {"name": f"absent{self.names}", "type": type_, "default": default}

    def column(self, depth: int) -> tuple[pa.DataType, Any, Any]:
        roll = self.chance.random()
        if roll < 0.75 or depth > 3:
            return self.chance.choice([
                self._whole, self._float, self._text, self._octets, self._boolean, self._time, self._date,
                self._decimal,
            ])()  # fmt: skip
        if roll < 0.85:
            return self.record(depth)
        kind, schema, make = self.column(depth + 1)
        is_nullable = self.chance.random() < 0.5
        schema = self._nullable(schema) if is_nullable else schema
        is_map = self.chance.random() < 0.4

        def value() -> tuple[Any, Any]:
            many = self.chance.choice([0, 0, 1, 3, 70])
            some = [(None, None) if is_nullable and self.chance.random() < 0.2 else make() for _ in range(many)]
            if is_map:
                return [(f"k{n}", a) for n, (a, _) in enumerate(some)], {f"k{n}": b for n, (_, b) in enumerate(some)}
            return [a for a, _ in some], [b for _, b in some]

        if is_map:
            return pa.map_(pa.string(), pa.field("value", kind, is_nullable)), {"type": "map", "values": schema}, value
        return pa.list_(pa.field("element", kind, is_nullable)), {"type": "array", "items": schema}, value

    def _whole(self) -> tuple[pa.DataType, Any, Any]:
        bits = self.chance.choice([8, 16, 32, 64])
        some = ["int", "long", "double"] if bits < 64 else ["long"]
        schema = some[0] if self.is_made else self.chance.choice(some)

        def value() -> tuple[Any, Any]:
            size = self.chance.choice([2, bits // 2, bits - 1])
            number = self.chance.choice([self.chance.randrange(-(2**size), 2**size), 2 ** (bits - 1) - 1])
            return number, number

        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits], schema, value

    def _float(self) -> tuple[pa.DataType, Any, Any]:
        is_single = self.chance.random() < 0.5

        def value() -> tuple[Any, Any]:
            number = self.chance.choice([0.0, -0.0, 1.5, self.chance.uniform(-1e9, 1e9), float("inf"), float("nan")])
            number = struct.unpack("<f", struct.pack("<f", number))[0] if is_single else number
            return number, number

        if not is_single:
            return pa.float64(), "double", value
        return pa.float32(), "float" if self.is_made else self.chance.choice(["float", "double"]), value

    def _text(self) -> tuple[pa.DataType, Any, Any]:
        kind = self.chance.choice([pa.string(), pa.large_string()])
        some = ["", "a", "Ærøskøbing", "x" * 200]
        if not self.is_made and self.chance.random() < 0.3:
            self.names += 1
            symbols = [f"S{n}" for n in range(self.chance.choice([1, 3, 70]))]
            return kind, {"type": "enum", "name": f"e{self.names}", "symbols": symbols}, self._same(symbols)
        return kind, "string", self._same(some)

    def _octets(self) -> tuple[pa.DataType, Any, Any]:
        if self.is_made or self.chance.random() < 0.5:
            return pa.binary(), "bytes", self._same([b"", b"\0\xff", b"z" * 65])
        self.names += 1
        size = self.chance.choice([0, 1, 16])
        return pa.binary(), {"type": "fixed", "name": f"x{self.names}", "size": size}, self._same([b"f" * size])

    def _boolean(self) -> tuple[pa.DataType, Any, Any]:
        return pa.bool_(), "boolean", self._same([True, False])

    def _same(self, some: list) -> Any:
        def value() -> tuple[Any, Any]:
            one = self.chance.choice(some)
            return one, one

        return value

    def _time(self) -> tuple[pa.DataType, Any, Any]:
        is_local = self.chance.random() < 0.5
        unit = "micros" if self.is_made else self.chance.choice(["millis", "micros", "nanos"])

        def value() -> tuple[Any, Any]:
            us = self.chance.randrange(-(10**15), 4 * 10**15)
            return us, us * 1_000 if unit == "nanos" else us // _UNITS[unit]

        schema = {"type": "long", "logicalType": f"{'local-' if is_local else ''}timestamp-{unit}"}
        return pa.timestamp("us", None if is_local else "Europe/Berlin"), schema, value

    def _date(self) -> tuple[pa.DataType, Any, Any]:
        return (
            pa.date32(),
            {"type": "int", "logicalType": "date"},
            lambda: (self.chance.randrange(-(10**6), 10**6),) * 2,
        )

    def _decimal(self) -> tuple[pa.DataType, Any, Any]:
        precision = self.chance.choice([1, 9, 18, 19, 38])
        scale = self.chance.choice([0, precision // 2])
        wider = precision if self.is_made else min(38, precision + self.chance.choice([0, 2]))
        schema: dict = {"type": "bytes", "logicalType": "decimal", "precision": wider, "scale": scale}
        if not self.is_made and self.chance.random() < 0.4:
            self.names += 1
            schema |= {"type": "fixed", "name": f"d{self.names}", "size": self.chance.choice([16, 20])}

        def value() -> tuple[Any, Any]:
            most = 10 ** self.chance.randrange(1, precision + 1)
            number = Decimal(self.chance.randrange(-most + 1, most)).scaleb(-scale, context=_WIDE)
            return number, number

        return pa.decimal128(precision, scale), schema, value


_WIDE = Context(prec=60)


def check(seed: int) -> None:
    """The bytes of each row are those that fastavro writes, behind the head, whole and in slices."""
    chance = random.Random(f"{seed} writing")
    columns = Columns(chance, is_made=seed % 2 == 0)
    kind, schema, make = columns.record(0)
    text = avro_schema_of(kind, "top.Order") if columns.is_made else json.dumps(schema)
    pairs = [(None, None) if chance.random() < 0.1 else make() for _ in range(20)]
    values = pa.array([one for one, _ in pairs], kind)
    encoder = avro_encoder(parse_avro(text), kind, "value.schema")
    parsed = fastavro.parse_schema(json.loads(text))
    expected = [None if one is None else HEAD + _body(parsed, one) for _, one in pairs]
    coded = writing.encode(encoder, values, HEAD)
    coded.validate(full=True)
    assert coded.to_pylist() == expected, (seed, text)
    assert writing.encode(encoder, values.slice(7, 9), HEAD).to_pylist() == expected[7:16], (seed, text)


def _body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, copy.copy(value))
    return out.getvalue()


def main(count: int, first: int = 0) -> None:
    for seed in range(first, first + count):
        check(seed)
        if seed % 500 == 499:
            print(f"{seed + 1 - first} of {count}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
