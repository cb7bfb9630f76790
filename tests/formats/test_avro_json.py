"""Arrays, maps and whole records of Avro as JSON text: its forms, its limits, and paths into it."""

from __future__ import annotations

import json
import struct
from decimal import Decimal

import numpy as np
import pytest

from keyedwm.core.errors import InputError
from keyedwm.core.places import FieldType, Unit
from keyedwm.formats import avro_json, json_kernels
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.faults import Fault
from keyedwm.formats.json_kernels import MOST_BYTES
from tests.formats.generated_avro import number, text
from tests.formats.test_avro_values import read, record

ITEM = record(("sku", "string"), ("many", ["null", "int"]), ("price", "double"), name="item")
ORDER = record(
    ("items", {"type": "array", "items": ITEM}), ("tags", {"type": "map", "values": "long"}), ("shop", "string")
)
ORDER_BODY = (
    number(2) + text(b'a"1') + number(1) + number(3) + struct.pack("<d", 1.5)
    + text("ü".encode()) + number(0) + struct.pack("<d", float("nan")) + number(0)
    + number(1) + text(b"x y") + number(-7) + number(0) + text(b"Oslo")
)  # fmt: skip
ITEMS = '[{"sku":"a\\"1","many":3,"price":1.5},{"sku":"ü","price":"NaN"}]'


def logical(kind: object, name: str, **more: object) -> dict:
    return {"type": kind, "logicalType": name, **more} if isinstance(kind, str) else {**kind, "logicalType": name}


def fixed(size: int) -> dict:
    return {"type": "fixed", "name": f"f{size}", "size": size}


def test_lists_maps_and_records_are_json_text_and_fields_beside_them_are_read() -> None:
    types_by_path = {"items": FieldType.STRING, "tags": FieldType.STRING, "shop": FieldType.STRING}
    assert read(ORDER, ORDER_BODY, types_by_path)[0] == [ITEMS, '{"x y":-7}', "Oslo"]
    outer = record(("order", ["null", ORDER]), ("id", "int"), name="outer")
    types_by_path = {"order": FieldType.STRING, ("order", "shop"): FieldType.STRING, "id": FieldType.BIGINT}
    whole = f'{{"items":{ITEMS},"tags":{{"x y":-7}},"shop":"Oslo"}}'
    assert read(outer, number(1) + ORDER_BODY + number(4), types_by_path)[0] == [whole, "Oslo", 4]
    assert read(outer, number(0) + number(4), types_by_path)[0] == [None, None, 4]


def test_a_path_leads_into_lists_and_maps() -> None:
    types_by_path = {
        ("items", 0, "sku"): FieldType.STRING, ("items", 0, "many"): FieldType.BIGINT, ("items", 1): FieldType.STRING,
        ("items", 2, "sku"): FieldType.STRING, ("items", 0, "price"): FieldType.DOUBLE,
        ("tags", "x y"): FieldType.BIGINT, ("tags", "none"): FieldType.BIGINT,
    }  # fmt: skip
    assert read(ORDER, ORDER_BODY, types_by_path)[0] == ['a"1', 3, '{"sku":"ü","price":"NaN"}', None, 1.5, -7, None]


def test_the_room_of_texts_ends_at_what_a_column_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = []

    def write_texts(*arguments: object) -> None:
        rooms.append(len(arguments[8]))
        json_kernels.write_texts(*arguments)

    monkeypatch.setattr(avro_json, "write_texts", write_texts)
    texts = avro_json.AvroTexts(parse_avro(json.dumps({"type": "array", "items": "null"})), most_bytes=20_000)
    data = np.frombuffer(number(100_000) + number(0), np.uint8)
    with pytest.raises(InputError, match="texts of 1 records have more than 20000 bytes together"):
        texts.write(data, *np.array([[0], [len(data)]]), np.ones(1, np.uint8), np.zeros(1, np.uint8))
    assert max(rooms) <= 2 * 20_000


@pytest.mark.parametrize(
    ("path", "as_type", "kind"),
    [
        (("items", "sku"), FieldType.STRING, "array"), (("tags", 0), FieldType.STRING, "map"),
        (("items", 0), FieldType.TIMESTAMP, "array"), (("items",), FieldType.BIGINT, "array"),
        (("items", 0, "at"), Unit.MILLISECONDS, "array"), (("items", 0, "[item]"), FieldType.STRING, "array"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_of_a_list_or_map_is_named(path: tuple, as_type: object, kind: str) -> None:
    values, decoded = read(ORDER, ORDER_BODY, {path: as_type})
    assert (values, decoded.faults.tolist()) == ([None], [Fault.OTHER_TYPE])
    assert f"as {kind}, which cannot be read as" in decoded.reason(0)


@pytest.mark.parametrize(
    ("type_", "body", "json_text"),
    [
        ("bytes", text(b"\0\1\2\3"), '"AAECAw=="'),
        ("boolean", b"\1", "true"),
        ("long", number(-(2**63)), "-9223372036854775808"),
        ("float", struct.pack("<f", 0.1), "0.1"),
        (logical("int", "date"), number(-719_162), '"0001-01-01"'),
        (logical("int", "date"), number(2_932_897), "null"),
        (logical("int", "date"), number(11_016), '"2000-02-29"'),
        (logical("long", "timestamp-millis"), number(-1), '"1969-12-31T23:59:59.999Z"'),
        (logical("long", "local-timestamp-micros"), number(1), '"1970-01-01T00:00:00.000001"'),
        (logical("long", "timestamp-nanos"), number(10**9), '"1970-01-01T00:00:01Z"'),
        (logical("long", "timestamp-millis"), number(2**62), "null"),
        (logical("int", "time-millis"), number(45_296_070), '"12:34:56.070"'),
        (logical("long", "time-micros"), number(86_400_000_000), "null"),
        (logical(fixed(16), "uuid"), bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        (logical(fixed(12), "duration"), struct.pack("<3I", 14, 3, 1_500), '"P14M3DT1.500S"'),
        (logical("bytes", "decimal", precision=38, scale=3), text(b"\xff"), "-0.001"),
        (logical("bytes", "decimal", precision=38, scale=0), text((10**38 - 1).to_bytes(16, "big")), "9" * 38),
        (logical("bytes", "decimal", precision=38, scale=38), text((-(10**38) + 1).to_bytes(20, "big", signed=True)),
         "-0." + "9" * 38),
        (logical("bytes", "decimal", precision=38, scale=2), text((10**38).to_bytes(16, "big")), "null"),
        (logical("bytes", "decimal", precision=38, scale=2), text((2**127).to_bytes(17, "big")), "null"),
        (logical("bytes", "decimal", precision=9, scale=2), text(b""), "0.00"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, number(1), '"B"'),
        (["null", "string"], number(0), "null"),
        (["null", "string"], number(1) + text(b"\x1f\\"), '"\\u001f\\\\"'),
    ],
)  # fmt: skip
def test_each_type_has_its_form_in_json(type_: object, body: bytes, json_text: str) -> None:
    schema = record(("a", {"type": "array", "items": type_}))
    values, decoded = read(schema, number(-1) + number(len(body)) + body + number(0), {"a": FieldType.STRING})
    assert (values, decoded.bad) == ([f"[{json_text}]"], None)
    json.loads(values[0], parse_float=Decimal)


@pytest.mark.parametrize(
    ("type_", "body", "json_text"),
    [
        (logical("int", "time-millis"), number(1), "00:00:00.001"),
        (logical(fixed(16), "uuid"), bytes(16), "00000000-0000-0000-0000-000000000000"),
        (["null", logical(fixed(12), "duration")], number(1) + bytes(12), "P0M0DT0S"),
    ],
)
def test_a_type_that_is_no_text_has_a_text_without_quotes(type_: object, body: bytes, json_text: str) -> None:
    assert read(record(("a", type_)), body, {"a": FieldType.STRING})[0] == [json_text]


def test_bytes_of_a_text_that_are_no_utf_8_are_replaced() -> None:
    schema = record(("a", {"type": "array", "items": "string"}))
    assert read(schema, number(1) + text(b"a\xffb") + number(0), {"a": FieldType.STRING})[0] == ['["a\ufffdb"]']


def test_a_text_far_longer_than_its_value_finds_room() -> None:
    schema = record(("a", {"type": "array", "items": {"type": "map", "values": ["double", "string"]}}))
    escaped, many = b"\1" * 50_000, 5_000
    values = b"".join(number(1) + text(b"k") + number(0) + struct.pack("<d", n / 7) + number(0) for n in range(many))
    body = number(many + 1) + number(1) + text(b"s") + number(1) + text(escaped) + number(0) + values + number(0)
    items = json.loads(read(schema, body, {"a": FieldType.STRING})[0][0])
    assert items == [{"s": "\1" * 50_000}, *({"k": n / 7} for n in range(many))]


def test_a_text_beyond_all_measure_is_a_fault() -> None:
    schema = record(("n", {"type": "array", "items": "null"}))
    few = read(schema, number(3) + number(0), {"n": FieldType.STRING})[0]
    values, decoded = read(schema, number(2**62) + number(0), {"n": FieldType.STRING})
    assert (few, values, decoded.faults.tolist()) == (["[null,null,null]"], [None], [Fault.TOO_LONG])
    assert f"longer than {MOST_BYTES >> 20} MiB" in decoded.reason(0)


@pytest.mark.parametrize(
    ("items", "block", "fault"),
    [
        (["int", "null"], number(5), Fault.WRONG_BRANCH), ("string", number(9), Fault.CUT), ("double", b"1", Fault.CUT),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, number(1), Fault.WRONG_SYMBOL),
    ],
)  # fmt: skip
def test_damage_in_a_block_that_skipping_passes_by_its_size_is_a_fault(
    items: object, block: bytes, fault: Fault
) -> None:
    schema = record(("a", {"type": "array", "items": items}))
    body = number(-1) + number(len(block)) + block + number(0)
    values, decoded = read(schema, body, {"a": FieldType.STRING})
    assert (values, decoded.faults.tolist()) == ([None], [fault])


def test_of_a_union_a_text_comes_before_json_and_a_step_names_a_branch() -> None:
    inner = record(("x", "int"), name="inner")
    schema = record(("u", ["string", inner]), ("v", ["int", "inner", {"type": "array", "items": "int"}]))
    types_by_path = {"u": FieldType.STRING, ("u", "[inner]"): FieldType.STRING, "v": FieldType.STRING}
    for body, expected_values in (
        (number(0) + text(b"s") + number(0) + number(4), ["s", None, None]),
        (number(1) + number(5) + number(1) + number(6), [None, '{"x":5}', '{"x":6}']),
        (number(1) + number(5) + number(2) + number(0), [None, '{"x":5}', "[]"]),
    ):
        assert read(schema, body, types_by_path)[0] == expected_values
