"""Avro schemas and values made at random, and what the specification says is read of them.

A value is a tree: of a union (branch, value), of a record a dict, of an array a list, of a map a dict.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Context
from fractions import Fraction
from typing import Any

from keyedwm.core.places import DecimalType, FieldType, Unit

PLAIN = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
TIMES = {
    f"{local}timestamp-{unit}": per_second
    for local in ("", "local-")
    for unit, per_second in (("millis", 10**3), ("micros", 10**6), ("nanos", 10**9))
}
LOGICAL = [
    {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"}, {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    *({"type": "long", "logicalType": name} for name in TIMES),
]  # fmt: skip
REQUEST_TYPES = (*FieldType, DecimalType(38, 6), DecimalType(5, 3), Unit.MILLISECONDS, Unit.SECONDS, Unit.ISO)
PARTS = ("record", "array", "map")
UNREADABLE = "cannot be read"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WIDE = Context(prec=60)


@dataclass
class Generator:
    """Schemas with names that are used again and records within themselves, and their values."""

    chance: random.Random
    types_by_name: dict[str, Any] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def schema(self) -> dict:
        return self._record(0, self.chance.randrange(1, 8))

    def _name(self) -> str:
        return f"n{len(self.types_by_name)}"

    def _record(self, depth: int, fields: int) -> dict:
        name = self._name()
        record: dict = {"type": "record", "name": name, "fields": []}
        self.types_by_name[name] = record
        self.open.append(name)
        for number in range(fields):
            record["fields"].append({"name": f"f{number}", "type": self._type(depth + 1)})
        self.open.pop()
        return record

    def _type(self, depth: int, *, in_union: bool = False) -> Any:  # noqa: PLR0911
        chance, roll = self.chance, self.chance.random()
        if roll < 0.45 or depth > 4:
            return chance.choice(PLAIN)
        if roll < 0.6:
            return chance.choice(LOGICAL)
        if roll < 0.7:
            return self._named_leaf(enum=roll < 0.65)
        if roll < 0.8 and not in_union:
            branches = self._branches(depth)
            if "null" not in branches and chance.random() < 0.8:
                branches.insert(chance.randrange(len(branches) + 1), "null")
            return branches
        if roll < 0.87:
            of = chance.choice(["items", "values"])
            return {"type": "array" if of == "items" else "map", of: self._type(depth + 1)}
        closed = [name for name in self.types_by_name if name not in self.open]
        if roll < 0.91 and closed:
            return chance.choice(closed)
        if roll < 0.94 and self.open and not in_union:
            return ["null", chance.choice(self.open)]
        return self._record(depth, chance.randrange(0, 4))

    def _branches(self, depth: int) -> list[Any]:
        """Some types of different names; what another one has defined is forgotten with it."""
        branches: dict[str, Any] = {}
        for _ in range(self.chance.randrange(1, 4)):
            before = dict(self.types_by_name)
            one = self._type(depth + 1, in_union=True)
            if branches.setdefault(_branch_name(one, self.types_by_name), one) is not one:
                self.types_by_name = before
        return [*branches.values()]

    def _named_leaf(self, *, enum: bool) -> dict:
        name = self._name()
        if enum:
            self.types_by_name[name] = {"type": "enum", "name": name, "symbols": [f"{name}_{n}" for n in range(3)]}
        else:
            self.types_by_name[name] = {
                "type": "fixed",
                "name": name,
                "size": self.chance.choice([0, 1, 5, 12, 16, 20]),
            }
            logical_type = {12: "duration", 16: "uuid"}.get(self.types_by_name[name]["size"])
            if logical_type and self.chance.random() < 0.5:
                self.types_by_name[name]["logicalType"] = logical_type
            elif self.chance.random() < 0.5 and self.types_by_name[name]["size"] > 3:
                self.types_by_name[name] |= {"logicalType": "decimal", "precision": 8, "scale": 2}
        return self.types_by_name[name]

    def value(self, schema: Any, depth: int = 0) -> Any:
        chance = self.chance
        if isinstance(schema, list):
            nulls = [n for n, one in enumerate(schema) if one == "null"]
            branch = nulls[0] if depth > 8 and nulls else chance.randrange(len(schema))
            return branch, self.value(schema[branch], depth + 1)
        kind, known = resolved(schema, self.types_by_name)
        if kind == "record":
            return {one["name"]: self.value(one["type"], depth + 1) for one in known["fields"]}
        if kind in ("array", "map"):
            many = 0 if depth > 8 else chance.choice([0, 0, 1, 2, 5])
            some = [self.value(known["items" if kind == "array" else "values"], depth + 1) for _ in range(many)]
            return some if kind == "array" else {f"k{n}": one for n, one in enumerate(some)}
        return self._leaf(kind, known, logical_of(known))

    def _leaf(self, kind: str, known: Any, logical: str | None) -> Any:  # noqa: PLR0911
        chance = self.chance
        if logical in TIMES:
            return chance.randrange(-(10**9), 4 * 10**9) * TIMES[logical] + chance.randrange(TIMES[logical])
        if logical == "decimal":
            size = known.get("size", chance.randrange(3, 6))
            return chance.randrange(-(10**6), 10**6).to_bytes(size, "big", signed=True)
        if logical is not None and kind != "fixed":
            some = {"date": (-700_000, 2_900_000), "time-millis": (0, 86_400_000), "time-micros": (0, 86_400_000_000)}
            low, high = some.get(logical, (10**11, 10**12))
            return chance.randrange(low, high) if logical in some else f"12345678-1234-5678-1234-{low}"
        if kind in ("int", "long"):
            bits = chance.choice([3, 14, 31 if kind == "int" else 63])
            return chance.randrange(-(2**bits), 2**bits)
        if kind in ("float", "double"):
            number = chance.choice([0.0, -1.5, 1e10, chance.uniform(-1e6, 1e6), float("inf")])
            return struct.unpack("<f", struct.pack("<f", number))[0] if kind == "float" else number
        if kind in ("bytes", "fixed"):
            return chance.randbytes(known["size"] if kind == "fixed" else chance.choice([0, 1, 7, 40]))
        if kind == "string":
            return chance.choice(["", "a", "Ærøskøbing", "x" * 50, "2026-01-02T03:04:05Z", "1700000000"])
        if kind == "boolean":
            return chance.random() < 0.5
        return chance.choice(known["symbols"]) if kind == "enum" else None


def resolved(schema: Any, types_by_name: dict) -> tuple[str, Any]:
    """The kind of a type, and its description."""
    if isinstance(schema, str) and schema in types_by_name:
        schema = types_by_name[schema]
    return (schema, schema) if isinstance(schema, str) else (schema["type"], schema)


def logical_of(known: Any) -> str | None:
    return known.get("logicalType") if isinstance(known, dict) else None


def _branch_name(schema: Any, types_by_name: dict) -> str:
    """What a union may hold once."""
    kind, known = resolved(schema, types_by_name)
    return known["name"] if kind in ("record", "enum", "fixed") else kind


def encoded(schema: Any, value: Any, types_by_name: dict, chance: random.Random) -> bytes:  # noqa: PLR0911
    """Encode a tree; blocks of arrays and maps come in each form that the specification has."""
    if isinstance(schema, list):
        return number(value[0]) + encoded(schema[value[0]], value[1], types_by_name, chance)
    kind, known = resolved(schema, types_by_name)
    if kind == "record":
        return b"".join(encoded(one["type"], value[one["name"]], types_by_name, chance) for one in known["fields"])
    if kind == "array":
        return _blocks([encoded(known["items"], one, types_by_name, chance) for one in value], chance)
    if kind == "map":
        items = value.items()
        return _blocks(
            [text(k.encode()) + encoded(known["values"], one, types_by_name, chance) for k, one in items], chance
        )
    if kind == "boolean":
        return bytes([value])
    if kind in ("int", "long"):
        return number(value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind in ("bytes", "string"):
        return text(value.encode() if kind == "string" else value)
    if kind == "fixed":
        return value
    return number(known["symbols"].index(value)) if kind == "enum" else b""


def _blocks(items: list[bytes], chance: random.Random) -> bytes:
    out, split_at = b"", chance.randrange(len(items) + 1)
    for block in (items[:split_at], items[split_at:]):
        data = b"".join(block)
        if block and chance.random() < 0.4:
            out += number(-len(block)) + number(len(data)) + data
        elif block:
            out += number(len(block)) + data
    return out + number(0)


def text(data: bytes) -> bytes:
    return number(len(data)) + data


def number(value: int) -> bytes:
    rest, out = (value << 1) ^ (value >> 63), b""
    while rest > 127:
        out += bytes([rest & 127 | 128])
        rest >>= 7
    return out + bytes([rest])


def leaves(schema: Any, types_by_name: dict, path: tuple[str, ...] = (), depth: int = 0) -> list[tuple[str, ...]]:
    """The paths to all that is no record, in records and unions; a record within itself is entered some times."""
    if isinstance(schema, list):
        return list(dict.fromkeys(one for branch in schema for one in leaves(branch, types_by_name, path, depth)))
    kind, known = resolved(schema, types_by_name)
    if kind != "record":
        return [path]
    fields = known["fields"] if depth < 6 else ()
    return [one for f in fields for one in leaves(f["type"], types_by_name, (*path, f["name"]), depth + 1)]


def ends_of(schema: Any, path: tuple[str, ...], types_by_name: dict) -> list[Any]:
    """The types that a path leads to, in all branches; a union at its end is one of them."""
    if not path:
        return [schema]
    if isinstance(schema, list):
        return [one for branch in schema for one in ends_of(branch, path, types_by_name)]
    kind, known = resolved(schema, types_by_name)
    if kind != "record":
        return []
    return [one for f in known["fields"] if f["name"] == path[0] for one in ends_of(f["type"], path[1:], types_by_name)]


def at(schema: Any, tree: Any, native: Any, path: tuple[str, ...], types_by_name: dict) -> tuple[Any, Any, Any] | None:
    """The type, the tree and the native value that a path leads to in one value, None if it leads to none."""
    if not path:
        return schema, tree, native
    if isinstance(schema, list):
        return at(schema[tree[0]], tree[1], native, path, types_by_name)
    kind, known = resolved(schema, types_by_name)
    fields = known["fields"] if kind == "record" else ()
    for f in fields:
        if f["name"] == path[0]:
            return at(f["type"], tree[path[0]], native[path[0]], path[1:], types_by_name)
    return None


def is_written(known: Any) -> bool:
    """Whether a type without parts has a text that is written for it."""
    logical = logical_of(known)
    is_fixed = isinstance(known, dict) and known["type"] == "fixed"
    return logical in ("time-millis", "time-micros", "duration") or (logical == "uuid" and is_fixed)


def stored(schema: Any, as_type: Any, types_by_name: dict) -> Any:
    """Of the branches of a union only those that are stored alike are read: as what this type is stored."""
    kind, known = resolved(schema, types_by_name)
    if isinstance(as_type, DecimalType):
        return known["scale"]
    if as_type is FieldType.STRING and kind in PARTS:
        return known["name"] if kind == "record" else id(known)
    if as_type is FieldType.STRING and is_written(known):
        return kind, logical_of(known), known.get("name")
    if isinstance(as_type, Unit) and kind in ("string", "float", "double"):
        return "double" if kind == "float" else kind
    return "number"


def readable(schema: Any, native: Any, as_type: Any, types_by_name: dict) -> Any:  # noqa: PLR0911, PLR0912
    """What a value of a type is as what is asked for, UNREADABLE if it cannot be that; event times in ms."""
    kind, known = resolved(schema, types_by_name)
    logical = logical_of(known)
    if isinstance(as_type, Unit):
        if logical in TIMES:
            return None if native is None else _us(native, TIMES[logical]) // 1_000
        if logical == "date":
            return None if native is None else (native - date(1970, 1, 1)).days * 86_400_000
        if logical is not None:
            return UNREADABLE
        if kind == "string":
            return _time_of(native, as_type)
        if as_type is Unit.ISO or kind not in ("int", "long", "float", "double"):
            return UNREADABLE
        return None if native is None else _in_years(native, 1_000 if as_type is Unit.SECONDS else 1)
    if isinstance(as_type, DecimalType):
        if logical != "decimal" or known["scale"] > as_type.scale:
            return UNREADABLE
        fits = native is not None and abs(native.scaleb(as_type.scale, _WIDE)) < 10**as_type.precision
        return native if fits else None
    if as_type is FieldType.STRING:
        if is_written(known):
            return None if native is None else native
        if kind == "bytes" and logical is None:
            return None if native is None else native.decode("utf-8", "replace")
        return UNREADABLE if kind not in ("string", "enum") else None if native is None else str(native)
    if as_type is FieldType.DOUBLE:
        return UNREADABLE if kind not in ("int", "long", "float", "double") else None if native is None else native
    if as_type is FieldType.BIGINT:
        return native if kind in ("int", "long") else UNREADABLE
    if as_type is FieldType.BINARY:
        if kind == "string":
            return None if native is None else str(native).encode()
        return native if kind in ("bytes", "fixed") else UNREADABLE
    if as_type is FieldType.TIMESTAMP:
        return UNREADABLE if logical not in TIMES else None if native is None else _us(native, TIMES[logical])
    return native if (kind == "boolean" if as_type is FieldType.BOOLEAN else logical == "date") else UNREADABLE


def _time_of(native: str | None, unit: Unit) -> int | None:
    if unit is Unit.ISO:
        return 1_767_323_045_000 if native == "2026-01-02T03:04:05Z" else None
    return 1_700_000_000 * (1_000 if unit is Unit.SECONDS else 1) if native == "1700000000" else None


def _in_years(native: float, factor: int) -> int | None:
    if native == float("inf"):
        return None
    ms = math.floor(Fraction(repr(native)) * factor)
    return ms if -62_135_596_800_000 <= ms <= 253_402_300_799_999 else None


def _us(native: Any, per_second: int) -> int:
    if isinstance(native, int):  # fastavro leaves nanoseconds as they are
        return native * 1_000_000 // per_second
    aware = native.replace(tzinfo=timezone.utc) if native.tzinfo is None else native
    return (aware - _EPOCH) // timedelta(microseconds=1)
