"""Values in Avro through the source's reading tasks: event times, columns, filters, windows' fields, and bad values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.places import FieldColumns
from keyedwm.arrow.rows import RowBuilder
from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.core.axis import Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.errors import InputError, KeyedwmError, OptionError, UnavailableError
from keyedwm.formats.avro_fingerprint import fingerprint
from keyedwm.formats.faults import Fault
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.driver import recover_state
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.reader import arrow_schema
from pyspark_wm_source.task import decoding
from pyspark_wm_source.task.filtering import filtered
from pyspark_wm_source.task.items import lay_out
from pyspark_wm_source.task.scan import _event_run, counted_columns, decoded_fields, needed_columns, policy_run
from pyspark_wm_source.task.unknown_ids import Notes
from pyspark_wm_source.values.offsets import QueryOffset
from pyspark_wm_source.values.ranges import ChannelRange
from tests.formats.avro_laws import framed
from tests.formats.generated_avro import number, text
from tests.support.fake_registry import FakeRegistry, fake_registry, reply

SECOND_MS = 1_700_000_000_000
ORDER = json.dumps({
    "type": "record", "name": "order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "shop", "type": ["null", "string"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "amount", "type": "double"},
    ],
})  # fmt: skip
COLUMNS = "avro:$.id::bigint, avro:$.shop, avro:$.ts::timestamp AS at, schema_id, offset, event_time"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


def order(schema_id: int, id_: int, shop: str | None = "Oslo", ms: int = SECOND_MS) -> bytes:
    shop_ = number(0) if shop is None else number(1) + text(shop.encode())
    return framed(schema_id, number(id_) + shop_ + number(ms * 1_000) + np.float64(id_ / 2).tobytes())


def parse(registry: FakeRegistry | None, **options: str) -> SourceOptions:
    settings = {"kafka.bootstrap.servers": "localhost:9", "subscribe": "orders", "emitControl": "false"}
    if registry is not None:
        settings |= {
            "value.format": "avro-confluent",
            "schemaRegistry.url": registry.url,
            "schemaRegistry.cache": "none",
        }
    return SourceOptions.parse(settings | {name.replace("_", "."): value for name, value in options.items()})


def read(options: SourceOptions, values: list[bytes | None]) -> list[dict]:
    """The rows that a reading task makes of some values, and the counts of its run."""
    return _read(options, values)[0]


def _read(
    options: SourceOptions,
    values: list[bytes | None],
    *,
    keys: list[bytes | None] | None = None,
    headers: list[list[tuple[str, bytes | None]] | None] | None = None,
    recovery: bool = False,
    notes: Notes | None = None,
) -> tuple[list[dict], object]:
    count = len(values)
    headers_column = [
        one and [{"key": name, "value": value} for name, value in one] for one in headers or [None] * count
    ]
    records = Records(
        count, pa.array(keys or [b"k"] * count, pa.binary()), pa.array(values, pa.binary()),
        pa.array(headers_column, HEADERS_TYPE), np.arange(count) + 100,
        np.full(count, SECOND_MS), np.zeros(count, np.int32), 100 + count,
    )  # fmt: skip
    channel = TopicPartition("orders", 3)
    task = ChannelRange(channel=channel, start=100, end=100 + count, counts=Counts(), axes={})
    schema = arrow_schema(options)
    columns = counted_columns(options) if recovery else set(schema.names)
    run = policy_run(task, options, {"": None}, SECOND_MS, {}, columns=columns, notes=notes)
    item = _event_run(task, records, run.observe(records), None)
    run.end()
    if recovery:
        return [], run.result()
    items = iter([item])
    for where in options.where:
        items = filtered(items, where, {"": None})
    fields = FieldColumns(options.selection.fields, schema.names)
    batches = [*lay_out(items, RowBuilder(schema, {"": None}, fields))]
    return pa.Table.from_batches(batches, schema).to_pylist(), run.result()


def ms_of(row: dict) -> int | None:
    return None if row["event_time"] is None else round(row["event_time"].timestamp() * 1_000)


def test_event_time_columns_and_filter_come_out_of_avro(registry):
    id_ = registry.add("orders-value", ORDER)
    options = parse(
        registry, eventTime="avro:$.ts", columns=COLUMNS, where="avro:$.amount::double >= 1 AND schema_id = 1"
    )
    values = [order(id_, n, ms=SECOND_MS + n, shop=None if n == 2 else "Oslo") for n in range(4)]
    rows = read(options, [*values, None])
    assert [(row["id"], row["shop"], row["schema_id"], row["offset"], ms_of(row)) for row in rows] == [
        (2, None, id_, 102, SECOND_MS + 2), (3, "Oslo", id_, 103, SECOND_MS + 3),
    ]  # fmt: skip
    assert rows[0]["at"] == rows[0]["event_time"]
    assert registry.requests == [f"GET /schemas/ids/{id_}"]


def test_lists_and_what_lies_in_them_are_columns_and_filters():
    lists = {"type": "record", "name": "r", "fields": [{"name": "items", "type": {"type": "array", "items": "long"}}]}
    options = parse(
        None, value_format="avro", value_schema=json.dumps(lists), where="avro:$.items[0]::bigint > 1",
        columns="avro:$.items, avro:$.items[1]::bigint AS second",
    )  # fmt: skip
    rows = read(options, [number(2) + number(n) + number(n + 5) + number(0) for n in range(4)])
    assert rows == [{"items": "[2,7]", "second": 7}, {"items": "[3,8]", "second": 8}]


def test_a_newer_schema_needs_no_restart_and_a_tombstone_is_an_event_without_a_time(registry):
    id_ = registry.add("orders-value", ORDER)
    newer = json.loads(ORDER)
    newer["fields"].insert(0, {"name": "note", "type": "string"})
    other = registry.add("orders-value", json.dumps(newer))
    options = parse(registry, eventTime="avro:$.ts", columns=COLUMNS, onBadEventTime="fail")
    rows = read(options, [order(id_, 1), framed(other, text(b"new") + order(other, 2)[5:]), None])
    assert [(row["id"], row["schema_id"], ms_of(row)) for row in rows] == [
        (1, id_, SECOND_MS), (2, other, SECOND_MS), (None, None, None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{}", "the value has no head of confluent: a zero byte and four bytes of a schema's id are expected"),
        (framed(77, b""), "the schema registry at .* has no schema with the id 77"),
        (order(1, 5)[:-1], r"the value is cut off, or a length or a number in it is damaged \(schema 1\)"),
        (framed(1, number(5) + number(9)), r"the value has a branch of a union that its schema does not have"),
    ],
)
def test_a_bad_value_fails_is_null_or_comes_back_with_its_reason(registry, bad, reason):
    id_ = registry.add("orders-value", ORDER)
    settings = {"eventTime": "avro:$.ts", "columns": COLUMNS + ", avro:$.amount::double, rejected"}
    values = [order(id_, 1), bad, order(id_, 3)]
    with pytest.raises(InputError, match=f"^orders-3: the value of the record at offset 101 cannot be read: {reason}"):
        read(parse(registry, **settings | {"columns": COLUMNS + ", avro:$.amount::double"}), values)
    null = settings | {"columns": COLUMNS + ", avro:$.amount::double"}
    rows = read(parse(registry, **null, onBadValue="null"), values)
    assert [row["amount"] for row in rows] == [0.5, None, 1.5]
    rows = read(parse(registry, **settings, onBadValue="reject"), values)
    assert [row["id"] for row in rows] == [1, None, 3]
    assert rows[0]["rejected"] is None
    back = rows[1]["rejected"]
    assert (back["topic"], back["partition"], back["offset"], back["value"]) == ("orders", 3, 101, bad)
    assert re.match(reason, back["reason"])


@pytest.mark.parametrize("on_bad", ["null", "reject"])
def test_a_recovery_read_moves_the_watermark_as_the_task_did(registry, on_bad):
    """A value that is cut behind its event time counts in both, with its reason, though only the field is missing."""
    id_ = registry.add("orders-value", ORDER)
    options = parse(registry, eventTime="avro:$.ts", columns="avro:$.amount::double, rejected, event_time"
                    if on_bad == "reject" else "avro:$.amount::double, event_time", onBadValue=on_bad)  # fmt: skip
    values = [order(id_, 1), order(id_, 2, ms=SECOND_MS + 5_000)[:-1], order(id_, 3)[:8], None, b"{}"]
    rows, state = _read(options, values)
    again = _read(options, values, recovery=True)[1]
    assert state == again
    assert state.axes[0].emitted_ms == SECOND_MS + 5_000
    assert state.counts == Counts(bad=2, bad_values=((Fault.NO_HEAD, 1), (Fault.CUT, 2)))
    assert [row["amount"] for row in rows] == [0.5, None, None, None, None]


def test_the_planner_counts_bad_values_as_the_task_did_where_it_reads_a_range_again(registry, monkeypatch):
    id_ = registry.add("orders-value", ORDER)
    options = parse(registry, eventTime="avro:$.ts", columns="avro:$.amount::double, event_time", onBadValue="null")
    values = [order(id_, 1), order(id_, 2)[:-1], b"{}"]
    _, state = _read(options, values)
    records = Records(
        3, None, pa.array(values, pa.binary()), None, np.arange(3) + 100, np.full(3, SECOND_MS), np.zeros(3, np.int32),
        103,
    )  # fmt: skip
    task = ChannelRange(channel=TopicPartition("orders", 3), start=100, end=103, counts=Counts(), axes={})
    monkeypatch.setattr(recover_state, "fetch", lambda *_: [SimpleNamespace(range_index=0, records=records, done=True)])
    monkeypatch.setattr(recover_state, "_notes", lambda *_: [None])
    end = QueryOffset(batch=0, group="g", state_key="00", now_ms=SECOND_MS, coalesced=CommonState())
    recovery = recover_state.Recovery(None, [task], options, end)
    assert recovery.advance(None)
    assert recovery.results()[task.channel] == state
    assert state.counts.bad_values == ((Fault.NO_HEAD, 1), (Fault.CUT, 1))


def test_a_registry_that_does_not_answer_fails_the_task_and_the_next_read_finds_the_same(registry):
    id_ = registry.add("orders-value", ORDER)
    options = parse(registry, columns=COLUMNS, onBadValue="null", schemaRegistry_timeout="50 ms")
    registry.rule = lambda _method, _path: reply(503, {"error_code": 50301, "message": "busy"})
    with pytest.raises(UnavailableError):
        read(options, [order(id_, 1)])
    registry.rule = lambda _method, _path: None
    assert read(options, [order(id_, 1)])[0]["id"] == 1


def test_a_column_is_called_as_the_last_field_of_its_path_not_as_a_branch():
    options = parse(
        None, value_format="avro", value_schema='"int"', columns="avro:$.u[int]::bigint, avro:$.d::decimal(9, 2)"
    )
    assert [(one.name, one.type) for one in options.selection.schema] == [("u", pa.int64()), ("d", pa.decimal128(9, 2))]


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_registry_that_refuses_is_never_a_null(registry, status):
    id_ = registry.add("orders-value", ORDER)
    options = parse(registry, columns=COLUMNS, onBadValue="null", schemaRegistry_timeout="50 ms")
    registry.rule = lambda _method, _path: reply(status, {"error_code": status, "message": "no"})
    with pytest.raises(KeyedwmError) as error:
        read(options, [order(id_, 1)])
    assert not isinstance(error.value, InputError)


def test_a_known_schema_is_read_while_the_registry_is_away(registry):
    id_ = registry.add("orders-value", ORDER)
    options = parse(registry, columns=COLUMNS, onBadValue="null", schemaRegistry_timeout="50 ms")
    read(options, [order(id_, 1)])
    registry.rule = lambda _method, _path: reply(503, {"message": "away"})
    assert read(options, [order(id_, 2)])[0]["id"] == 2


def test_a_misspelt_path_is_told_once_with_the_one_that_was_meant(registry, caplog):
    id_ = registry.add("orders-value", ORDER)
    options = parse(registry, eventTime="avro:$.tss", columns="avro:$.shp, avro:$.absent, event_time")
    for _ in range(2):
        assert read(options, [order(id_, 1)])[0]["event_time"] is None
    assert [message for message in caplog.messages if "schema" in message] == [
        f"schema {id_} has no $.shp, which is null in its records; did you mean $.shop?",
        f"schema {id_} has no $.tss, which is null in its records; did you mean $.ts?",
        (
            "orders-3: none of the first 1 event times could be read from avro:$.tss (unit ms), so there is no "
            "watermark: check the path against the schema, and eventTimeUnit where the schema has no logical type"
        ),
    ]


def test_values_without_a_head_have_the_schema_of_the_option(tmp_path):
    (tmp_path / "order.avsc").write_text(ORDER)
    options = parse(None, value_format="avro", value_schema=f"file:{tmp_path}/order.avsc", eventTime="avro:$.ts",
                    columns="avro:$.id::bigint, event_time")  # fmt: skip
    rows = read(options, [order(1, 7)[5:]])
    assert [(row["id"], ms_of(row)) for row in rows] == [(7, SECOND_MS)]


def test_a_single_object_names_its_schema_by_the_fingerprint(tmp_path):
    body = order(1, 7)[5:]
    head = b"\xc3\x01" + fingerprint(ORDER).to_bytes(8, "little", signed=True)
    settings = {"value_format": "avro-single-object", "value_schema": ORDER, "columns": "avro:$.id::bigint, schema_id"}
    rows = read(
        parse(None, **settings, onBadValue="null"), [head + body, head[:2] + b"12345678" + body, body, b"\xc3\x01"]
    )
    assert [(row["id"], row["schema_id"]) for row in rows] == [
        (7, fingerprint(ORDER)), (None, int.from_bytes(b"12345678", "little")), (None, None), (None, None)
    ]  # fmt: skip
    with pytest.raises(InputError, match="the value has a schema of the fingerprint 4050765991979987505, option value"):
        read(parse(None, **settings), [head[:2] + b"12345678" + body])


def test_json_behind_the_head_is_read_as_json(caplog):
    decoding._warned.clear()
    columns = "json:$.id::bigint, schema_id, value::string AS text, event_time"
    options = parse(
        None, value_format="json-confluent", eventTime="json:$.ts", where="json:$.id::bigint < 9",
        columns=columns, onBadValue="null",
    )  # fmt: skip
    values = [framed(4, json.dumps({"id": n, "ts": SECOND_MS + n}).encode()) for n in (1, 10)]
    rows = read(options, [*values, b'{"id": 2}'])
    assert [(row["id"], row["schema_id"], row["text"], ms_of(row)) for row in rows] == [
        (1, 4, values[0][5:].decode(), SECOND_MS + 1)
    ]  # fmt: skip
    assert "cannot be read (onBadValue=null): the value has no head" in caplog.text


def test_an_operators_fields_are_read_with_the_schema(registry):
    from keyedwm.operators.aggregates import functions
    from tests.support.frame_stage import frame_stage

    id_ = registry.add("orders-value", ORDER)
    spec = frame_stage({"shop": "avro:$.shop"}, {"sum": functions.sum("avro:$.amount::double")})
    options = parse(registry, emitControl="true", eventTime="avro:$.ts", **spec.as_options())
    stage = options.stage
    assert needed_columns(set(stage.columns.names), options).value
    assert {field.text for field in decoded_fields(set(), options)} == {"avro:$.shop::string", "avro:$.amount::double"}
    values = pa.array([order(id_, 1), order(id_, 3)], pa.binary())
    records = Records(2, None, values, None, np.arange(2), np.full(2, SECOND_MS), np.zeros(2, np.int32), 2)
    task = ChannelRange(channel=TopicPartition("orders", 3), start=0, end=2, counts=Counts(), axes={})
    run = policy_run(task, options, {"": None}, SECOND_MS, {}, columns=set(stage.columns.names))
    events = _event_run(task, records, run.observe(records), None).events
    rows = stage.rows(events, RowBuilder(stage.columns, {"": None})).to_pylist()
    assert [(row["shop"], row["avro:$.amount::double"]) for row in rows] == [("Oslo", 0.5), ("Oslo", 1.5)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"columns": "avro:$.a"}, "value.format must be the format of the values"),
        ({"columns": "schema_id"}, "value.format must be the format of the values"),
        ({"eventTime": "avro:$.a"}, "option eventTime: 'avro:\\$.a' is wrong; value.format must be the format"),
        ({"where": "avro:$.a = 'x'"}, "option where: 'avro:\\$.a::string' is wrong; value.format must be the format"),
        ({"onBadValue": "null"}, "option onBadValue has no effect without value.format"),
        ({"schemaRegistry.url": "http://a:1"}, "option schemaRegistry.url has no effect without value.format"),
        ({"value.format": "avro"},
         "option value.schema is missing: with value.format=avro it must have the schema of the values"),
        ({"value.format": "avro", "value.schema": "{"}, "option value.schema: '{' is no JSON"),
        ({"value.format": "avro", "value.schema": "file:/no/such"},
         "the file of a schema is expected \\(No such file"),
        ({"value.format": "avro", "value.schema": '"int"', "columns": "schema_id"}, "have no id: leave it out"),
        ({"value.format": "avro", "value.schema": '"int"', "schemaRegistry.url": "http://a:1"},
         "reads no schema from a registry: leave it out, or set value.format=avro-confluent, whose"),
        ({"value.format": "avro-confluent"}, "option schemaRegistry.url is missing"),
        ({"value.format": "avro-confluent", "schemaRegistry.url": "http://a:1", "columns": "json:$.a"},
         "values of value.format=avro-confluent are Avro: write avro:PATH"),
        ({"value.format": "avro-confluent", "schemaRegistry.url": "http://a:1", "eventTime": "json:$.a"},
         "values of value.format=avro-confluent are Avro: write avro:PATH"),
        ({"value.format": "json-confluent", "columns": "avro:$.a"}, "are JSON: write json:PATH"),
        ({"value.format": "json-confluent", "value.schema": "{}"}, "value.schema has no effect"),
        ({"value.format": "csv"}, "option value.format: 'csv' is wrong"),
        ({"columns": "avro:$.a[0"}, "a path such as .* is expected"),
        ({"columns": "avro:$.a::int"}, "decimal\\(PRECISION,SCALE\\) is expected; did you mean bigint"),
        ({"columns": "avro:$.a::decimal(50,2)"}, "decimal\\(50,2\\) is no type: 1 to 38 digits"),
        ({"columns": "json:$.a::boolean"}, "one of the types string, bigint, double is expected"),
    ],
)  # fmt: skip
def test_what_a_format_does_not_have_is_refused(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        SourceOptions.parse({"kafka.bootstrap.servers": "localhost:9", "subscribe": "orders", **options})
