"""The fingerprint of an Avro schema, by which values of `avro-single-object` name their schema.

Rule: it is the CRC-64-AVRO of the canonical form, as in Avro's specification. So attributes that change no bytes of a
value (documentation, defaults, aliases, logical types) change no fingerprint.
"""

from __future__ import annotations

import json
from typing import Any

_EMPTY = 0xC15D213AA4D7A795
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAMED_KINDS = {"record", "error", "enum", "fixed"}


def fingerprint(text: str) -> int:
    """Return the fingerprint of a schema that `parse_avro` reads, as a signed number of 64 bits."""
    try:
        schema = json.loads(text)
    except ValueError:
        schema = text.strip()
    fingerprint = _EMPTY
    for byte in canonical(schema).encode():
        fingerprint = (fingerprint >> 8) ^ _TABLE[(fingerprint ^ byte) & 0xFF]
    return fingerprint - 2**64 if fingerprint >= 2**63 else fingerprint


def canonical(schema: Any, space: str = "") -> str:
    """Return a schema's parsing canonical form. space: the namespace around it."""
    if isinstance(schema, str):
        return _text(schema if schema in _PRIMITIVES else _full(schema, space))
    if isinstance(schema, list):
        return f"[{','.join(canonical(one, space) for one in schema)}]"
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in {*_NAMED_KINDS, "array", "map"}:
        return canonical(kind, space)
    if kind in {"array", "map"}:
        of = "items" if kind == "array" else "values"
        return f'{{"type":"{kind}","{of}":{canonical(schema[of], space)}}}'
    if "." not in schema["name"]:
        space = schema.get("namespace", space) or ""
    name = _full(schema["name"], space)
    head = f'{{"name":{_text(name)},"type":"{kind}"'
    if kind in {"enum", "fixed"}:
        symbols = ",".join(map(_text, schema.get("symbols", ())))
        return f'{head},"symbols":[{symbols}]}}' if kind == "enum" else f'{head},"size":{int(schema["size"])}}}'
    inner = name.rpartition(".")[0]
    fields = (f'{{"name":{_text(one["name"])},"type":{canonical(one["type"], inner)}}}' for one in schema["fields"])
    return f'{head},"fields":[{",".join(fields)}]}}'


def _full(name: str, space: str) -> str:
    return f"{space}.{name}" if space and "." not in name else name


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _table() -> list[int]:
    table = []
    for value in range(256):
        fingerprint = value
        for _ in range(8):
            fingerprint = (fingerprint >> 1) ^ (_EMPTY & -(fingerprint & 1))
        table.append(fingerprint)
    return table


_TABLE = _table()
