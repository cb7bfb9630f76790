"""What the client asks of a registry, and what it makes of the answers: of ours in this process, and of a real one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from keyedwm.core.errors import InputError
from keyedwm.core.schemas import NamedSchema, SchemaKind, UnknownSchemaError
from keyedwm.registry.client import Registry, Verdict
from keyedwm.registry.options import RegistryConfig
from tests.support.fake_registry import fake_registry

INNER = '{"type":"record","name":"Inner","namespace":"n","fields":[{"name":"x","type":"int"}]}'
OUTER = '{"type":"record","name":"Outer","namespace":"n","fields":[{"name":"a","type":"Inner"}]}'
PROTO = 'syntax = "proto3";\nmessage P {\n  int32 a = 1;\n}\n'
JSON = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'


@pytest.fixture(params=["ours", pytest.param("real", marks=pytest.mark.starts)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "real":
        yield request.getfixturevalue("real_registry")
        return
    with fake_registry() as running:
        yield running.url


@pytest.fixture
def registry(url: str) -> Registry:
    return Registry(RegistryConfig.from_options({"schemaRegistry.url": url, "schemaRegistry.cache": "none"}))


@pytest.fixture
def subject() -> str:
    """A name of its own, with characters that must be quoted in a path."""
    return f"topic/{uuid.uuid4()} ü-value"


def test_a_schema_is_registered_once_and_found_by_id_and_by_subject(registry: Registry, subject: str) -> None:
    assert registry.latest(subject) is None
    assert registry.lookup(subject, SchemaKind.AVRO, INNER) is None
    schema_id = registry.register(subject, SchemaKind.AVRO, INNER)
    assert registry.register(subject, SchemaKind.AVRO, INNER) == schema_id
    assert registry.lookup(subject, SchemaKind.AVRO, INNER) == schema_id
    assert registry.lookup(subject, SchemaKind.AVRO, '"string"') is None
    schema = registry.schema(schema_id)
    assert (schema.schema_id, schema.kind, schema.text, schema.references) == (schema_id, SchemaKind.AVRO, INNER, ())
    newest = registry.latest(subject)
    assert newest is not None
    assert (newest.subject, newest.version, newest.schema) == (subject, 1, schema)
    assert subject in registry.subjects()
    assert subject in registry.subjects_of(schema_id)


@pytest.mark.parametrize(("kind", "text"), [(SchemaKind.PROTOBUF, PROTO), (SchemaKind.JSON, JSON)])
def test_the_other_kinds_are_named_by_the_registry(
    registry: Registry, subject: str, kind: SchemaKind, text: str
) -> None:
    schema = registry.schema(registry.register(subject, kind, text))
    assert (schema.kind, schema.text) == (kind, text)


def test_what_a_schema_refers_to_comes_with_it(registry: Registry, subject: str) -> None:
    registry.register(f"{subject}-inner", SchemaKind.AVRO, INNER)
    reference = NamedSchema("n.Inner", INNER)
    schema_id = registry.register(subject, SchemaKind.AVRO, OUTER, {"n.Inner": (f"{subject}-inner", 1)})
    assert registry.schema(schema_id).references == (reference,)


def test_an_id_that_nobody_registered_is_unknown_and_that_is_final(registry: Registry) -> None:
    with pytest.raises(UnknownSchemaError, match="has no schema with the id 2000000000"):
        registry.schema(2_000_000_000)
    assert registry.subjects_of(2_000_000_000) == ()


def test_a_text_that_is_no_schema_is_refused_with_the_registrys_words(registry: Registry, subject: str) -> None:
    with pytest.raises(InputError, match=r"does not accept the schema \(422\): \w+"):
        registry.register(subject, SchemaKind.AVRO, "nonsense")


def test_the_registry_says_whether_a_schema_may_follow(registry: Registry, subject: str) -> None:
    assert registry.verdict(subject, SchemaKind.AVRO, INNER) == Verdict(compatible=True)
    registry.register(subject, SchemaKind.AVRO, INNER)
    assert registry.verdict(subject, SchemaKind.AVRO, INNER) == Verdict(compatible=True)
    assert not registry.verdict(subject, SchemaKind.AVRO, '"string"').compatible
    assert registry.compatibility(subject) == "NONE"


def test_a_registry_that_answers_is_reached(registry: Registry) -> None:
    registry.reach()
