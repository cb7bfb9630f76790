"""What JSON texts of generated Avro values hold: written here from what fastavro reads without logical types."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from keyedwm.core.places import FieldType
from tests.formats.generated_avro import TIMES, logical_of, resolved


@dataclass(frozen=True)
class Single:
    """A number of 32 bits."""

    value: float


def expected_json(schema: Any, tree: Any, raw: Any, types_by_name: dict) -> Any:
    """The JSON of a value. raw: as fastavro reads it without logical types."""
    if isinstance(schema, list):
        return expected_json(schema[tree[0]], tree[1], raw, types_by_name)
    kind, known = resolved(schema, types_by_name)
    if kind == "record":
        some = {
            f["name"]: expected_json(f["type"], tree[f["name"]], raw[f["name"]], types_by_name) for f in known["fields"]
        }
        return {name: one for name, one in some.items() if one is not None or not _may_be_null(known, name)}
    if kind == "array":
        return [expected_json(known["items"], *pair, types_by_name) for pair in zip(tree, raw, strict=True)]
    if kind == "map":
        return {name: expected_json(known["values"], one, raw[name], types_by_name) for name, one in tree.items()}
    return expected_leaf(kind, known, raw)


def _may_be_null(record: dict, name: str) -> bool:
    """Whether a null is left out; a number that is too long for a decimal stands there as null."""
    kind = next(f["type"] for f in record["fields"] if f["name"] == name)
    return isinstance(kind, list) or kind == "null"


def expected_leaf(kind: str, known: Any, raw: Any) -> Any:  # noqa: PLR0911
    logical = logical_of(known)
    if logical in TIMES:
        whole, rest = divmod(raw, TIMES[logical])
        zone = "" if logical.startswith("local") else "Z"
        return f"{_day(whole // 86_400)}T{_clock(whole % 86_400, rest * 10**9 // TIMES[logical])}{zone}"
    if logical == "date":
        return _day(raw)
    if logical in ("time-millis", "time-micros"):
        per_second = 1_000 if logical == "time-millis" else 1_000_000
        return _clock(raw // per_second, raw % per_second * 10**9 // per_second)
    if logical == "decimal":
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-known["scale"])
    if kind == "fixed" and logical == "uuid":
        return str(uuid.UUID(bytes=raw))
    if kind == "fixed" and logical == "duration":
        months, days, ms = struct.unpack("<3I", raw)
        return f"P{months}M{days}DT{ms // 1_000}" + (f".{ms % 1_000:03}S" if ms % 1_000 else "S")
    if kind in ("bytes", "fixed"):
        return base64.b64encode(raw).decode()
    return Single(raw) if kind == "float" else raw


def _day(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days)).isoformat()


def _clock(second: int, nanos: int) -> str:
    text = f"{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}"
    digits = next(many for many in (0, 3, 6, 9) if nanos % 10 ** (9 - many) == 0)
    return text + (f".{nanos // 10 ** (9 - digits):0{digits}}" if digits else "")


def loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_float=Decimal)


def same_json(value: Any, expected: Any) -> bool:
    """Whether JSON that was read is what was expected."""
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and [*value] == [*expected]
            and all(same_json(value[name], one) for name, one in expected.items())
        )
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(same_json, value, expected))
    if isinstance(expected, (float, Single)) and value is not None:
        number = expected.value if isinstance(expected, Single) else expected
        if number in (float("inf"), float("-inf")):
            return value == ("Infinity" if number > 0 else "-Infinity")
        if isinstance(expected, Single):
            return struct.pack("<f", float(value)) == struct.pack("<f", number)
        return float(value) == number
    return type(value) is type(expected) or isinstance(expected, Decimal) if value == expected else False


def part_of(whole: Any, steps: tuple) -> Any:
    """What lies at some steps in JSON, None for nothing."""
    for step in steps:
        is_in = isinstance(whole, dict if isinstance(step, str) else list)
        whole = (whole.get(step) if isinstance(step, str) else [*whole, None][min(step, len(whole))]) if is_in else None
    return whole


def same_part(value: Any, part: Any, as_type: Any) -> bool:
    """Whether a column of a path into a list or a map has what lies there."""
    if part is None or isinstance(part, (dict, list)):
        is_text = part is not None and as_type is FieldType.STRING and value is not None
        return (
            same_json(loaded(value), part)
            if is_text
            else value is None and (part is None or as_type is not FieldType.STRING)
        )
    if as_type is FieldType.STRING:
        text = json.dumps(part) if isinstance(part, bool) else part
        return value == text if value is None or isinstance(text, str) else same_json(_number(value), text)
    if isinstance(part, int) and not isinstance(part, bool):
        return value == (part if as_type is FieldType.BIGINT else float(part))
    return True  # numbers out of texts and fractions are read as in any JSON, which tests of JSON prove


def _number(text: str) -> Any:
    return text if text.endswith("Infinity") or text in ("true", "false") else loaded(text)
