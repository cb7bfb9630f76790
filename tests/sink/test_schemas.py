"""Records with a schema: which columns are fields, ids that are asked for once, and what is rejected with an error."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.pandas.types import from_arrow_schema

from keyedwm.arrow.schema import row_schema
from keyedwm.core.errors import InputError, OptionError, UnavailableError
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.proto_schema import link
from keyedwm.registry.client import registry_of
from pyspark_wm_sink.kafka.record_values import SideWriter, field_columns, schema_of_side, with_records
from pyspark_wm_sink.kafka.schema_ids import side_writers
from pyspark_wm_sink.options.kafka_target import KafkaTarget
from pyspark_wm_sink.options.record_format import RecordFormats
from pyspark_wm_sink.options.sink_options import SinkOptions
from tests.sink.conftest import records_of
from tests.sink.kafka_sink import Died
from tests.support.fake_registry import FakeRegistry, fake_registry, reply

ORDERS = pa.schema([pa.field("shop", pa.string(), nullable=False), pa.field("amount", pa.int64())])


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running
        registry_of.cache_clear()


def formats(registry: FakeRegistry | str, **options: str) -> RecordFormats:
    settings = {
        "kafka.bootstrap.servers": "localhost:9", "topic": "orders", "value.format": "avro-confluent",
        "schemaRegistry.url": registry if isinstance(registry, str) else registry.url,
        "schemaRegistry.timeout": "20 seconds",
    }  # fmt: skip
    target = SinkOptions.parse(settings | {name.replace("__", "."): value for name, value in options.items()}).target
    assert isinstance(target, KafkaTarget)
    assert target.formats is not None
    return target.formats


def writers_of(record_formats: RecordFormats, columns: pa.Schema, ledger: Path | None) -> tuple[SideWriter, ...]:
    """As a writer makes them when it is started."""
    schema = from_arrow_schema(columns)
    return side_writers(record_formats, [schema_of_side(side, schema) for side in record_formats.sides], ledger)


def plain(writer: SideWriter, value: bytes | None) -> dict | None:
    """A written value, as fastavro reads it."""
    if value is None:
        return None
    assert value[:5] == b"\0" + writer.schema_id.to_bytes(4, "big")
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(writer.schema.text))


def test_the_columns_of_the_source_and_of_the_sink_are_no_fields() -> None:
    rows = row_schema(("",), headers=True, control=True)
    assert field_columns(from_arrow_schema(rows)) == ()
    for name in ("partition", "timestampType", "topic"):  # as people drop them
        rest = rows.remove(rows.get_field_index(name))
        assert field_columns(from_arrow_schema(rest)) == ()
    time_columns = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    assert field_columns(from_arrow_schema(time_columns)) == ("offset", "timestamp")
    own = pa.schema([("offset", pa.string()), ("timestamp", pa.timestamp("us", "UTC")), ("event_time", pa.string())])
    assert field_columns(from_arrow_schema(own)) == ("offset", "timestamp", "event_time")
    (side,) = formats("http://localhost:9").sides
    with pytest.raises(InputError, match=r"the rows have no column that is a field of a record"):
        schema_of_side(side, from_arrow_schema(rows.remove(rows.get_field_index("value"))))
    with pytest.raises(InputError, match=r"column value has type binary, with value.format a struct is expected"):
        schema_of_side(side, from_arrow_schema(rows))


def test_keys_and_values_are_written_with_the_ids_of_their_subjects(registry: FakeRegistry) -> None:
    record_formats = formats(registry, key__format="avro-confluent", value__recordName="shop.Order")
    columns = pa.schema([("key", pa.int64()), ("value", pa.struct([*ORDERS]))])
    writers = writers_of(record_formats, columns, None)
    values = [
        {"shop": "Oslo", "amount": None},
        None,
        {"shop": "Bergen\udc80".encode("utf-8", "replace").decode(), "amount": 4},
    ]
    rows = pa.table({"value": values, "key": [1, 2, None], "topic": ["a", "b", "c"]}, schema=None)
    rows = rows.cast(pa.schema([columns.field("value"), columns.field("key"), ("topic", pa.string())]))
    encoded_rows = with_records(rows, writers, "task 0", 0)
    assert encoded_rows.column_names == ["value", "key", "topic"]
    assert [plain(writers[0], one) for one in encoded_rows["value"].to_pylist()] == values
    assert [plain(writers[1], one) for one in encoded_rows["key"].to_pylist()] == [1, 2, None]
    assert list(registry.subjects) == ["orders-value", "orders-key"]
    assert json.loads(writers[0].schema.text)["namespace"] == "shop"


def test_an_id_is_asked_for_once_and_stands_in_the_ledger(registry: FakeRegistry, tmp_path: Path) -> None:
    record_formats, ledger = formats(registry), tmp_path / "ledger"
    registry.add("other-value", '"string"')
    (first,) = writers_of(record_formats, ORDERS, ledger)
    assert (first.schema_id, registry.requests) == (2, ["POST /subjects/orders-value/versions"])
    registry.rule = lambda _method, _path: reply(503, {"message": "away"})
    registry_of.cache_clear()  # as in another process
    assert writers_of(record_formats, ORDERS, ledger) == (first,)
    wider = ORDERS.append(pa.field("paid", pa.bool_()))
    with pytest.raises(UnavailableError, match=r"503"):
        writers_of(formats(registry, schemaRegistry__timeout="100 milliseconds"), wider, ledger)
    registry.rule = lambda _method, _path: None
    assert [one.schema_id for columns in (wider, ORDERS) for one in writers_of(record_formats, columns, ledger)] == [
        3,
        2,
    ]
    with fake_registry() as another:  # its ids are others
        assert writers_of(formats(another), ORDERS, ledger)[0].schema_id == 1


def test_what_the_registry_does_not_accept_is_one_sentence_with_the_subject(registry: FakeRegistry) -> None:
    body = {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"}
    registry.rule = lambda _method, _path: reply(409, body)
    with pytest.raises(InputError) as error:
        writers_of(formats(registry), ORDERS, None)
    assert error.value.message == (
        "subject orders-value does not take the schema of the value: the schema registry does not accept the schema "
        "(409): Schema being registered is incompatible with an earlier schema; change the columns, or the subject's "
        "compatibility"
    )


def test_a_schema_that_is_only_looked_up_is_not_registered(registry: FakeRegistry) -> None:
    record_formats = formats(registry, schemaRegistry__register="false", value__subject="shared")
    with pytest.raises(InputError, match=r"subject shared lacks the schema of the value, .* \(the subject has no ver"):
        writers_of(record_formats, ORDERS, None)
    registry.add("shared", '"string"')
    with pytest.raises(InputError, match=r"\(the subject has version 1, '\"string\"'\): register it, or set schemaReg"):
        writers_of(record_formats, ORDERS, None)
    (side,) = record_formats.sides
    known = registry.add("shared", schema_of_side(side, from_arrow_schema(ORDERS)).text)
    assert writers_of(record_formats, ORDERS, None)[0].schema_id == known


def test_a_schema_that_is_given_is_checked_against_the_columns(registry: FakeRegistry, tmp_path: Path) -> None:
    text = json.dumps({"type": "record", "name": "o", "fields": [
        {"name": "amount", "type": "double"}, {"name": "shop", "type": "string"}]})  # fmt: skip
    (tmp_path / "o.avsc").write_text(text)
    record_formats = formats(registry, value__schema=f"file:{tmp_path}/o.avsc")
    with pytest.raises(InputError, match=r"column amount has type bigint, and value.schema has the type double there"):
        writers_of(record_formats, ORDERS, None)
    assert registry.requests == []
    columns = pa.schema([("shop", pa.string()), ("amount", pa.int32())])
    (writer,) = writers_of(record_formats, columns, None)
    rows = pa.table({"shop": ["Oslo", None], "amount": pa.array([1, 2], pa.int32())})
    assert plain(writer, with_records(rows.slice(0, 1), [writer], "", 0)["value"][0].as_py())["amount"] == 1.0
    with pytest.raises(InputError, match=r"column shop of row 11 of task 3 is null, and its field takes no null: drop"):
        with_records(rows, [writer], "task 3", 10)
    places = {"topic": ["t", "t"], "partition": pa.array([0, 4], pa.int32()), "offset": [7, 8]}
    with pytest.raises(InputError, match=r"column shop of the row of t-4, offset 8, is null"):
        with_records(pa.table({**dict(zip(rows.column_names, rows.columns, strict=True)), **places}), [writer], "", 0)
    broken = formats(registry, value__schema='{"type":"record"}')
    with pytest.raises(InputError, match=r"value.schema: the Avro schema has a record with the name None,"):
        writers_of(broken, ORDERS, None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"value__format": "avro"}, "option value.format: 'avro' is wrong; one of avro-confluent, prot"),
        ({"value__schema": "file:/none/o.avsc"}, r"o.avsc cannot be read \(No such file or directory\): a file with a"),
        ({"value__recordName": "a-b"}, "option value.recordName: 'a-b' is wrong; a name such as Order"),
        ({"value__schema": "{}", "value__recordName": "a"}, "option value.recordName has no effect with value.schema"),
        ({"key__schema": "{}"}, "option key.schema has no effect without key.format: leave it out, or add key.format"),
        ({"schemaRegistry__register": "maybe"}, "option schemaRegistry.register: 'maybe' is wrong; true or false"),
        ({"schemaRegistry__ulr": "x"}, "option schemaRegistry.ulr is unknown"),
        ({"auto__register__schemas": "x"}, "did you mean schemaRegistry.register?"),
        ({"topic": ""}, "option topic: '' is wrong"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        formats("http://localhost:9", **options)


def test_options_without_a_format_or_a_topic_say_what_is_missing() -> None:
    kafka = {"kafka.bootstrap.servers": "localhost:9"}
    with pytest.raises(OptionError, match=r"option schemaRegistry.url has no effect without value.format"):
        SinkOptions.parse({**kafka, "schemaRegistry.url": "http://localhost:9"})
    registry = {"schemaRegistry.url": "http://localhost:9", "value.format": "avro-confluent"}
    with pytest.raises(OptionError, match=r"option value.subject is missing: without the option topic"):
        SinkOptions.parse(kafka | registry)
    with pytest.raises(OptionError, match=r"option schemaRegistry.url is missing"):
        SinkOptions.parse({**kafka, "topic": "t", "value.format": "avro-confluent"})


@pytest.mark.parametrize("step", ["decide", "seal", "end", "mark_published"])
@pytest.mark.parametrize("after", [False, True])
def test_a_batch_that_is_replayed_without_the_registry_has_the_same_bytes(
    sink, kafka, registry: FakeRegistry, dies_at, monkeypatch, step: str, after: bool
) -> None:
    columns = pa.schema([("name", pa.string())])

    def started() -> None:
        (writer,) = writers_of(formats(registry), columns, sink.ledger)
        schema = writer.schema
        sink.writers = (SideWriter(schema=type(schema)(
            side="value", kind=schema.kind, text=schema.text.replace('"name":"name"', '"name":"value"'),
            called_as="s", columns=("value",)), schema_id=writer.schema_id),)  # fmt: skip

    started()
    sink.write_and_publish(0, "a")
    registry.rule = lambda _method, _path: reply(503, {"message": "away"})
    registry_of.cache_clear()
    with monkeypatch.context():
        dies_at(step, after=after)
        with pytest.raises(Died):
            sink.write_and_publish(1, "b", "c")
        monkeypatch.undo()
    sink.restart()
    started()
    sink.write_and_publish(1, "b", "c")
    sink.write_and_publish(2, "d")
    stored_values = sorted(value for _, _, value, _ in records_of(kafka.bootstrap, sink.topic))
    assert stored_values == [b"\0\0\0\0\1" + b"\2\2" + one for one in (b"a", b"b", b"c", b"d")]


def test_confluents_deserializers_read_every_format(registry: FakeRegistry) -> None:
    columns = pa.schema([*ORDERS, ("at", pa.timestamp("us", "UTC"))])
    rows = pa.table({"shop": ["Oslo"], "amount": [7], "at": [1_700_000_000_000_000]}, schema=columns)
    read = {}
    for name in ("avro", "json", "protobuf"):
        record_formats = formats(registry, value__format=f"{name}-confluent", value__subject=f"{name}-value")
        (writer,) = writers_of(record_formats, columns, None)
        read[name] = writer.schema, with_records(rows, [writer], "", 0)["value"][0].as_py()
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    context = SerializationContext("t", MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        avro = AvroDeserializer(client)(read["avro"][1], context)
        plain_json = JSONDeserializer(None, schema_registry_client=client)(read["json"][1], context)
        file = link(RegisteredSchema(1, SchemaKind.PROTOBUF, read["protobuf"][0].text))
        message = GetMessageClass(file.message_types_by_name["topLevelRecord"])
        proto = ProtobufDeserializer(message, {"use.deprecated.format": False})(read["protobuf"][1], context)
    assert avro == {"shop": "Oslo", "amount": 7, "at": at}
    assert plain_json == {"shop": "Oslo", "amount": 7, "at": "2023-11-14T22:13:20.000000Z"}
    assert (proto.shop, proto.amount, proto.at.ToDatetime(timezone.utc)) == ("Oslo", 7, at)
    with pytest.raises(OptionError, match=r"option value.schema has no effect with value.format=protobuf-confluent"):
        formats(registry, value__format="protobuf-confluent", value__schema="x")
