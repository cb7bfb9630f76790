"""What Confluent's own serializers register and write: the head leads to a schema that the client gives."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from keyedwm.core.schemas import SchemaKind
from keyedwm.registry.client import Registry
from keyedwm.registry.options import RegistryConfig
from tests.support.fake_registry import fake_registry

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}]}'
JSON = '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object"}'
Serialize = Callable[[SchemaRegistryClient], bytes]


def avro(client: SchemaRegistryClient) -> bytes:
    return AvroSerializer(client, AVRO)({"shop": "Oslo"}, SerializationContext("avro", MessageField.VALUE))


def json_schema(client: SchemaRegistryClient) -> bytes:
    return JSONSerializer(JSON, client)({"shop": "Oslo"}, SerializationContext("json", MessageField.VALUE))


def protobuf(client: SchemaRegistryClient) -> bytes:
    serializer = ProtobufSerializer(Timestamp, client, {"use.deprecated.format": False})
    return serializer(Timestamp(seconds=7), SerializationContext("protobuf", MessageField.VALUE))


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
