"""JSON and Protobuf that are written out of columns, read back: `python -m tests.formats.other_writing 10000 [FIRST]`.

JSON is read by Python and checked against its schema, Protobuf by Google's runtime from the .proto text.
"""

from __future__ import annotations

import base64
import json
import math
import random
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.json_writing import json_encoder, json_schema_of
from keyedwm.formats.proto_schema import link
from keyedwm.formats.proto_writing import proto_encoder, proto_schema_of
from keyedwm.formats.writing import encode
from tests.formats.avro_writing import Columns

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_ROWS = 15
_DAY_US = 86_400_000_000


def check_json(seed: int) -> None:
    """What Python reads is the rows, and the schema takes it."""
    kind, _, make = _Json(random.Random(f"{seed} json"), is_made=True).record(0)
    rows = pa.array([make()[0] for _ in range(_ROWS)], kind)
    schema = json.loads(json_schema_of(kind, "a.Order"))
    for row, coded in zip(rows.to_pylist(), encode(json_encoder(kind), rows, b"").to_pylist(), strict=True):
        value = json.loads(coded, parse_float=Decimal)
        assert value == _as_json(kind, row), (seed, row, coded)
        jsonschema.validate(json.loads(coded), schema)


class _Json(Columns):
    """Types that JSON has, and times that Python has."""

    def _float(self) -> tuple[pa.DataType, Any, Any]:
        kind, schema, make = super()._float()

        def value() -> tuple[Any, Any]:
            number, _ = make()
            return (number, number) if math.isfinite(number) else (0.0, 0.0)

        return kind, schema, value

    def _time(self) -> tuple[pa.DataType, Any, Any]:
        kind, schema, _ = super()._time()
        return kind, schema, self._same([_FIRST_US + _DAY_US, 0, -1, 1_700_000_000_123_456, _LAST_US - _DAY_US])

    def _date(self) -> tuple[pa.DataType, Any, Any]:
        return pa.date32(), None, self._same([0, -719_162, 19_000])


def _as_json(kind: pa.DataType, value: Any) -> Any:  # noqa: PLR0911
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _as_json(field.type, value[field.name]) for field in kind}
    if pa.types.is_map(kind):
        return {key: _as_json(kind.item_type, one) for key, one in value}
    if pa.types.is_list(kind):
        return [_as_json(kind.value_type, one) for one in value]
    if pa.types.is_binary(kind):
        return base64.b64encode(value).decode()
    if pa.types.is_timestamp(kind):
        utc = value if kind.tz is None else value.astimezone(timezone.utc).replace(tzinfo=None)
        return utc.isoformat(timespec="microseconds") + ("" if kind.tz is None else "Z")
    if pa.types.is_floating(kind):
        return Decimal(str(np.float32(value) if pa.types.is_float32(kind) else np.float64(value)))
    return value.isoformat() if isinstance(value, date) else value


def check_protobuf(seed: int) -> None:
    """What Google's runtime reads is the rows, and what it would write has as many bytes."""
    kind, _, make = _Proto(random.Random(f"{seed} protobuf"), is_made=True).record(0)
    rows = pa.array([make()[0] for _ in range(_ROWS)], kind)
    text = proto_schema_of(kind, "shop.Order")
    message = GetMessageClass(link(RegisteredSchema(1, SchemaKind.PROTOBUF, text)).message_types_by_name["Order"])
    for row, coded in zip(rows.to_pylist(), encode(proto_encoder(kind), rows, b"").to_pylist(), strict=True):
        read = message()
        read.ParseFromString(coded)
        _check_message(kind, read, row, (seed, text, row, coded))
        assert len(read.SerializeToString()) == len(coded), (seed, text, row, coded)


class _Proto(_Json):
    """Types that Protobuf has."""

    def column(self, depth: int) -> tuple[pa.DataType, Any, Any]:
        scalars = [self._whole, self._float, self._text, self._octets, self._boolean, self._instant]
        roll = self.chance.random()
        if roll < 0.6 or depth > 3:
            return self.chance.choice(scalars)()
        if roll < 0.75:
            return self.record(depth)
        kind, _, make = self.record(depth + 1) if roll < 0.85 else self.chance.choice(scalars)()
        is_map = self.chance.random() < 0.4

        def value() -> tuple[Any, Any]:
            some = [make()[0] for _ in range(self.chance.choice([0, 0, 1, 3, 70]))]
            return ([(f"k{n}", one) for n, one in enumerate(some)] if is_map else some), None

        if is_map:
            return pa.map_(pa.string(), pa.field("value", kind, nullable=False)), None, value
        return pa.list_(pa.field("element", kind, nullable=False)), None, value

    def _instant(self) -> tuple[pa.DataType, Any, Any]:
        some = [_FIRST_US, 0, -1, 5, 1_700_000_000_000_000, _LAST_US]
        return pa.timestamp("us", "UTC"), None, self._same(some)


def _check_message(kind: pa.DataType, message: Any, row: dict, context: object) -> None:
    for field in kind:
        value, read = row[field.name], getattr(message, field.name)
        if pa.types.is_map(field.type):
            items = dict(value or [])
            assert set(read) == set(items), context
            for key, one in items.items():
                _check(field.type.item_type, read[key], one, context)
        elif pa.types.is_list(field.type):
            assert len(read) == len(value or []), context
            for one, other in zip(read, value or [], strict=True):
                _check(field.type.value_type, one, other, context)
        elif value is None:
            assert not message.HasField(field.name), context
        else:
            is_implicit = not field.nullable and not pa.types.is_struct(field.type)
            assert is_implicit or message.HasField(field.name), context
            _check(field.type, read, value, context)


def _check(kind: pa.DataType, read: Any, value: Any, context: object) -> None:
    if pa.types.is_struct(kind):
        _check_message(kind, read, value, context)
    elif pa.types.is_timestamp(kind):
        us = (value - _EPOCH) // timedelta(microseconds=1)
        assert (read.seconds, read.nanos) == (us // 1_000_000, us % 1_000_000 * 1_000), context
    else:
        assert read == value, context


def main(count: int, first: int = 0) -> None:
    for seed in range(first, first + count):
        check_json(seed)
        check_protobuf(seed)
        if seed % 500 == 499:
            print(f"{seed + 1 - first} of {count}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
