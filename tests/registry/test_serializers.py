"""What Confluent's own serializers register and write: the head leads to a schema that the client gives."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.core.schemas import SchemaKind
from keyedwm.formats.faults import Fault
from keyedwm.formats.header_ids import Guids, header_ids
from keyedwm.formats.heads import Head, bodies_of
from keyedwm.registry.client import Registry
from keyedwm.registry.options import RegistryConfig
from tests.support.fake_registry import fake_registry

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}]}'
JSON = '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object"}'
Headers = list[tuple[str, bytes]]
Serialize = Callable[..., bytes]


def context(topic: str, headers: Headers | None = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def avro(client: SchemaRegistryClient, headers: Headers | None = None, **conf: object) -> bytes:
    return AvroSerializer(client, AVRO, conf=conf)({"shop": "Oslo"}, context("avro", headers))


def json_schema(client: SchemaRegistryClient, headers: Headers | None = None, **conf: object) -> bytes:
    return JSONSerializer(JSON, client, conf=conf)({"shop": "Oslo"}, context("json", headers))


def protobuf(client: SchemaRegistryClient, headers: Headers | None = None, **conf: object) -> bytes:
    serializer = ProtobufSerializer(Timestamp, client, {"use.deprecated.format": False, **conf})
    return serializer(Timestamp(seconds=7), context("protobuf", headers))


@pytest.fixture(params=["ours", pytest.param("real", marks=pytest.mark.starts)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "real":
        yield request.getfixturevalue("real_registry")
        return
    with fake_registry() as running:
        yield running.url


@pytest.mark.parametrize(
    ("serialize", "kind", "body"),
    [
        (avro, SchemaKind.AVRO, b"\x08Oslo"),
        (json_schema, SchemaKind.JSON, b'{"shop":"Oslo"}'),
        (protobuf, SchemaKind.PROTOBUF, b"\x00\x08\x07"),
    ],
)
def test_the_head_of_a_value_leads_to_its_schema(url: str, serialize: Serialize, kind: SchemaKind, body: bytes) -> None:
    with SchemaRegistryClient({"url": url}) as client:
        value = serialize(client)
    magic, schema_id = struct.unpack(">bI", value[:5])
    found = Registry(RegistryConfig.from_options({"schemaRegistry.url": url, "schemaRegistry.cache": "none"}))
    schema = found.schema(schema_id)
    assert (magic, schema.kind, value[5:]) == (0, kind, body)
    assert schema.text


@pytest.mark.parametrize(
    ("serialize", "tails", "body"),
    [(avro, False, b"\x08Oslo"), (json_schema, False, b'{"shop":"Oslo"}'), (protobuf, True, b"\x00\x08\x07")],
)
def test_the_header_of_a_record_leads_to_its_schema(serialize: Serialize, tails: bool, body: bytes) -> None:
    headers: Headers = []
    with SchemaRegistryClient.new_client({"url": "mock://heads"}) as client:
        value = serialize(client, headers, **{"schema.id.serializer": header_schema_id_serializer})
        guids = Guids()
        header_column = pa.array([[{"key": name, "value": header} for name, header in headers]], HEADERS_TYPE)
        ids = header_ids(header_column, "__value_schema_id")
        bodies = bodies_of(Head.CONFLUENT, pa.array([value], pa.binary()), ids, guids, tails=tails)
        assert client.get_schema_by_guid(guids.text(int(bodies.ids[0]))).schema_str
    assert bodies.faults.tolist() == [Fault.NONE]
    assert bodies.data[bodies.start[0] : bodies.stop[0]].tobytes() == body
