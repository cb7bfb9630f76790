"""Keys with a schema, ids in headers, and Glue's heads, through the source's reading tasks."""

from __future__ import annotations

import json
import logging
import re
import zlib
from uuid import UUID

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.formats import heads
from keyedwm.formats.header_ids import Guids
from keyedwm.formats.heads import Head, bodies_of
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task import decoding
from pyspark_wm_source.task.scan import decoded_fields, needed_columns
from tests.formats.avro_laws import framed
from tests.formats.generated_avro import number, text
from tests.source.test_avro_values import ORDER, SECOND_MS, _read, ms_of, order, parse, registry  # noqa: F401
from tests.support.fake_registry import FakeRegistry, reply

KEY = json.dumps({"type": "record", "name": "who", "fields": [
    {"name": "shop", "type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]})  # fmt: skip
OTHER = "message Other { string a = 1; }"
PROTO = f'syntax = "proto3"; {OTHER} message Who {{ string shop = 1; int64 at = 2; }}'
GUID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
GUIDS = {"v": b"\1" + GUID.bytes, "index": b"\1" + GUID.bytes + b"\2\2"}
BODY = order(1, 7)[5:]


def who(shop: str, n: int = 0) -> bytes:
    return text(shop.encode()) + number(SECOND_MS + n)


def protobuf_who(shop: str) -> bytes:
    at, digits = SECOND_MS, []
    while at:
        digits.append(at & 127 | (128 if at >> 7 else 0))
        at >>= 7
    return b"\x0a" + bytes([len(shop)]) + shop.encode() + b"\x10" + bytes(digits)


# Format → the options, a key of the shop Oslo, and how its fields are written.
FORMATS = {
    "avro-confluent": ({}, framed(1, who("Oslo")), "key.avro"),
    "avro": ({"key.schema": KEY}, who("Oslo"), "key.avro"),
    "protobuf-confluent": ({}, framed(2, b"\2\2" + protobuf_who("Oslo")), "key.proto"),
    "protobuf": ({"key.schema": PROTO.replace(OTHER, "")}, protobuf_who("Oslo"), "key.proto"),
    "json-confluent": ({}, framed(9, json.dumps({"shop": "Oslo", "at": SECOND_MS}).encode()), "key"),
}  # fmt: skip


def options_of(registry: FakeRegistry, name: str, **options: str) -> SourceOptions:  # noqa: F811
    own = FORMATS[name][0]
    if "-confluent" in name and not name.startswith("json"):
        own = {"schemaRegistry.url": registry.url, "schemaRegistry.cache": "none"}
    return parse(None, **{"key.format": name, **own, **options})


@pytest.mark.parametrize("name", FORMATS)
def test_a_key_with_a_schema_gives_columns_filters_and_event_times(registry, name):  # noqa: F811
    registry.add("orders-key", KEY)
    registry.add("orders-key", PROTO, "PROTOBUF")
    _, key, prefix = FORMATS[name]
    options = options_of(
        registry, name, eventTime=f"{prefix}:$.at", where=f"{prefix}:$.shop = 'Oslo'",
        columns=f"{prefix}:$.shop, {prefix}:$.at::bigint AS ms, offset, event_time",
    )  # fmt: skip
    rows, state = _read(options, [b"x", None, b"y"], keys=[key, key, None])
    assert [(row["shop"], row["ms"], row["offset"], ms_of(row)) for row in rows] == [
        ("Oslo", SECOND_MS, 100, SECOND_MS), ("Oslo", SECOND_MS, 101, SECOND_MS),
    ]  # fmt: skip
    assert state.axes[0].emitted_ms == SECOND_MS
    assert needed_columns({"offset"}, options).key
    assert not needed_columns({"offset"}, options).value


def test_a_bad_key_has_the_same_fate_as_a_bad_value_and_both_formats_stand_side_by_side(registry):  # noqa: F811
    of_key, of_value = registry.add("orders-key", KEY), registry.add("orders-value", ORDER)
    settings = {"key.format": "avro-confluent", "columns": "key.avro:$.shop AS whose, avro:$.id::bigint, offset"}
    good, bad = framed(of_key, who("Oslo")), framed(of_key, b"\x08Os")
    values, keys = [order(of_value, 1), order(of_value, 2), b"{}"], [good, bad, good]
    reason = "the key is cut off, or a length or a number in it is damaged (schema 1)"
    with pytest.raises(InputError) as caught:
        _read(parse(registry, **settings), values[:2], keys=keys[:2])
    assert caught.value.message.startswith(f"orders-3: the key of the record at offset 101 cannot be read: {reason}; ")
    rows = _read(parse(registry, **settings, onBadValue="null"), values, keys=keys)[0]
    assert [(row["whose"], row["id"]) for row in rows] == [("Oslo", 1), (None, 2), ("Oslo", None)]
    back = parse(registry, **settings | {"columns": settings["columns"] + ", rejected"}, onBadValue="reject")
    rows = [row["rejected"] for row in _read(back, values, keys=keys)[0]]
    assert rows[0] is None
    assert [row["reason"].partition(":")[0] for row in rows[1:]] == [reason, "the value has no head of confluent"]
    assert [row["offset"] for row in rows[1:]] == [101, 102]


def test_windows_read_their_keys_out_of_keys_with_a_schema(registry):  # noqa: F811
    from keyedwm.operators.aggregates import functions
    from tests.support.frame_stage import frame_stage

    spec = frame_stage({"shop": "key.avro:$.shop"}, {"n": functions.count()})
    options = options_of(registry, "avro-confluent", emitControl="true", eventTime="key.avro:$.at", **spec.as_options())
    assert {field.text for field in decoded_fields(set(), options)} == {"key.avro:$.shop::string"}
    columns_needed = needed_columns(set(options.stage.columns.names), options)
    assert (columns_needed.key, columns_needed.value) == (True, False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"columns": "key.avro:$.a"}, "key.format must be the format of the keys"),
        ({"eventTime": "key.proto:$.a"}, "key.format must be the format of the keys"),
        ({"value.format": "json-confluent", "columns": "key.avro:$.a"}, "key.format must be the format of the keys"),
        ({"key.format": "avro", "key.schema": '"int"', "columns": "key:$.a"},
         "keys of key.format=avro are Avro: write key.avro:PATH"),
        ({"key.format": "avro", "key.schema": '"int"', "columns": "key.proto:$.a"}, "write key.avro:PATH"),
        ({"key.format": "json-confluent", "where": "key.avro:$.a = 'x'"}, "are JSON: write key:PATH"),
        ({"key.format": "avro", "key.schema": '"int"', "columns": "avro:$.a"}, "value.format must be the format"),
        ({"key.format": "avro"},
         "option key.schema is missing: with key.format=avro it must have the schema of the keys, as text or as file:"),
        ({"key.schema": '"int"'}, "option key.schema has no effect without key.format"),
        ({"key.format": "avro", "key.schema": "{"}, "option key.schema: '{' is no JSON"),
        ({"key.format": "avro-confluent"}, "option schemaRegistry.url is missing"),
        # Heads of Glue name their schema, which only the option has.
        ({"value.format": "avro-glue"},
         "option value.schema is missing: with value.format=avro-glue it must have the schema of the values"),
        ({"value.format": "avro-glue", "value.schema": '"int"'}, "a JSON object from each SchemaVersionId"),
        ({"value.format": "avro-glue", "value.schema": '{"x": "int"}'}, "'x' is no id of a schema version"),
        ({"value.format": "avro-glue", "value.schema": json.dumps({str(GUID): "no"})}, f"version {GUID}: 'no' is no"),
        ({"value.format": "avro-glue", "value.schema": json.dumps({str(GUID): "int"}), "columns": "schema_id"},
         "are UUIDs: write schema_guid"),
        ({"value.format": "avro-single-object", "value.schema": '"int"', "columns": "schema_guid"},
         "are numbers: write schema_id"),
    ],
)  # fmt: skip
def test_what_the_format_of_keys_or_of_glue_does_not_have_is_rejected(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        SourceOptions.parse({"kafka.bootstrap.servers": "localhost:9", "subscribe": "orders", **options})


def header_of(header: bytes | None, name: str = "__value_schema_id") -> list[tuple[str, bytes | None]]:
    return [("trace", b"\1\2"), (name, header)]


def test_an_id_in_a_header_wins_and_its_value_has_no_head(registry):  # noqa: F811
    id_ = registry.add("orders-value", ORDER)
    registry.guids[str(GUID)] = id_
    options = parse(registry, columns="avro:$.id::bigint, schema_id, schema_guid", onBadValue="null")
    headers = [
        header_of(b"\0" + id_.to_bytes(4, "big")),
        header_of(GUIDS["v"]),
        header_of(GUIDS["v"]) + header_of(b"\0\0\0\0\1"),
        None,
        header_of(None),
        header_of(GUIDS["v"], "__key_schema_id"),
        header_of(b"\1\2"),
        header_of(b"\2" + bytes(16)),
        header_of(b""),
        header_of(b"\1" + bytes(16)),
        header_of(GUIDS["v"]),
    ]
    values = [BODY, BODY, BODY, *[order(id_, 7)] * 3, *[BODY] * 4, None]
    rows = _read(options, values, headers=headers)[0]
    assert [(row["id"], row["schema_id"], row["schema_guid"]) for row in rows] == [
        (7, 1, None), (7, None, str(GUID)), (7, 1, None), (7, 1, None), (7, 1, None), (7, 1, None),
        *[(None, None, None)] * 3, (None, None, str(UUID(int=0))), (None, None, None),
    ]  # fmt: skip
    assert registry.requests.count(f"GET /schemas/guids/{GUID}") == 1
    assert needed_columns({"id"}, options).headers
    failing = parse(registry, columns="avro:$.id::bigint")
    with pytest.raises(InputError, match="the header that names the schema is damaged: a zero byte and four bytes"):
        _read(failing, [BODY], headers=[header_of(b"\1\2")])
    with pytest.raises(InputError, match=f"has no schema with the GUID {UUID(int=0)}"):
        _read(failing, [BODY], headers=[header_of(b"\1" + bytes(16))])


def test_ids_in_headers_are_read_for_protobuf_with_the_indexes_and_for_json_and_keys(registry):  # noqa: F811
    registry.guids[str(GUID)] = registry.add("orders-value", PROTO, "PROTOBUF")
    options = parse(registry, **{"value.format": "protobuf-confluent", "columns": "proto:$.shop, schema_guid"})
    plain = framed(1, b"\2\2" + protobuf_who("Rome"))
    rows = _read(
        options, [protobuf_who("Oslo"), plain, None], headers=[header_of(GUIDS["index"]), None, header_of(GUIDS["v"])]
    )[0]
    assert [(row["shop"], row["schema_guid"]) for row in rows] == [("Oslo", str(GUID)), ("Rome", None), (None, None)]
    options = parse(None, **{"key.format": "json-confluent", "columns": "key:$.a"})
    keys, header = [b'{"a": "x"}', framed(1, b'{"a": "y"}')], header_of(GUIDS["v"], "__key_schema_id")
    assert [row["a"] for row in _read(options, [None, None], keys=keys, headers=[header, None])[0]] == ["x", "y"]


def glue(body: bytes, version: UUID = GUID, packed: int = 0) -> bytes:
    return b"\3" + bytes([packed]) + version.bytes + (zlib.compress(body) if packed else body)


def glue_options(**options: str) -> SourceOptions:
    schemas = {str(GUID).upper(): ORDER, str(UUID(int=5)): json.loads(KEY)}
    return parse(None, **{"value.format": "avro-glue", "value.schema": json.dumps(schemas), **options})


def test_values_of_glue_are_read_by_the_versions_that_are_named():
    options = glue_options(columns="avro:$.id::bigint, avro:$.shop, schema_guid", onBadValue="null")
    values = [
        glue(BODY), glue(BODY, packed=5), glue(who("Rome"), UUID(int=5), packed=5), None, glue(BODY, UUID(int=6)),
        BODY, glue(BODY)[:17], glue(BODY, packed=4), glue(BODY, packed=5)[:-2], glue(BODY)[:22],
    ]  # fmt: skip
    rows = _read(options, values)[0]
    assert [(row["id"], row["shop"]) for row in rows] == [
        (7, "Oslo"), (7, "Oslo"), (None, "Rome"), *[(None, None)] * 6, (7, None),
    ]  # fmt: skip
    assert [row["schema_guid"] for row in rows[:5]] == [str(GUID), str(GUID), str(UUID(int=5)), None, str(UUID(int=6))]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            b"\0\0",
            "has no head of Glue: the byte 3, the byte 0 or 5 and 16 bytes of a schema version's id are expected",
        ),
        (glue(BODY, UUID(int=6)), f"option value.schema has no schema of the schema version {UUID(int=6)}"),
        (glue(BODY, packed=5)[:-3], f"is compressed by zlib, and its bytes are damaged or cut off .schema {GUID}."),
        (glue(bytes(heads.MOST_INFLATED_BYTES + 1), packed=5), "has more than 16 MiB once it is decompressed"),
    ],
)
def test_a_bad_value_of_glue_has_its_reason(value, reason):
    for before in ([], [glue(BODY)]):  # the reason depends on the value alone
        with pytest.raises(InputError, match=reason):
            _read(glue_options(columns="avro:$.id::bigint"), [*before, value])


def test_values_that_decompress_to_much_are_read_in_parts():
    large = number(7) + number(1) + text(bytes(15 << 20)) + BODY[-16:]
    values = [
        glue(BODY),
        *[glue(large, packed=5)] * 6,
        glue(BODY, packed=5)[:-2],
        None,
        glue(order(1, 8)[5:], packed=5),
    ]
    options = glue_options(columns="avro:$.id::bigint, avro:$.ts::timestamp AS at, event_time", onBadValue="null",
                           eventTime="avro:$.ts")  # fmt: skip
    first = bodies_of(Head.GLUE, pa.array(values, pa.binary()), guids=Guids())
    assert len(first.start) == 6
    assert len(first.data) < 96 << 20
    rows, state = _read(options, values)
    assert [row["id"] for row in rows] == [*[7] * 7, None, None, 8]
    assert [row["at"] == row["event_time"] for row in rows] == [True] * 10
    assert state.axes[0].emitted_ms == SECOND_MS


def test_the_subject_is_named_in_errors_and_logs_and_never_in_rows(registry, caplog):  # noqa: F811
    id_ = registry.add("orders-value", ORDER)
    decoding._warned.clear()
    sentence = f"schema {id_} has $.shop as string, which cannot be read as double"
    with pytest.raises(InputError, match=rf"{re.escape(sentence)} \(subject orders-value\); onBadValue"):
        _read(parse(registry, columns="avro:$.shop::double"), [order(id_, 1)])
    options = parse(registry, columns="avro:$.shop::double, rejected", onBadValue="reject")
    with caplog.at_level(logging.WARNING):
        rows = _read(options, [order(id_, 1)])[0]
    assert rows[0]["rejected"]["reason"] == sentence
    assert f"{sentence} (subject orders-value)" in caplog.text


def test_without_a_registry_that_knows_the_subject_the_sentence_is_without(registry):  # noqa: F811
    id_ = registry.add("orders-value", ORDER)
    registry.rule = lambda _method, path: reply(500, b"") if path.endswith("/subjects") else None
    options = parse(registry, columns="avro:$.shop::double", schemaRegistry_timeout="20 ms")
    with pytest.raises(InputError, match="cannot be read as double; onBadValue"):
        _read(options, [order(id_, 1)])
