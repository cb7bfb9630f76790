"""Schemas of a registry as two sides know them: the client that requests them, and the decoders that compile them.

Rule: an id never changes its schema. No decoder sees the registry itself, so any holder of texts can be a lookup.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from keyedwm.core.errors import InputError, OutOfTurnError

# The id of a schema that was requested by another name.
NO_ID = -1


class SchemaKind(Enum):
    """The language of a schema, by the registry's names."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class UnknownSchemaError(InputError):
    """The registry answered that no schema has this id; final for the id, unlike a registry that is away."""

    advice = "fix the producer, or name the registry that it uses"


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema that another schema refers to.

    name: as the referring text writes it: the full name of an Avro type, the path of a .proto file in `import`, the
    `$ref` of a JSON schema.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema under its id; `references` has all schemas that it refers to, directly or not.

    text: as the registry stores it. For Protobuf it is the source of a .proto file, or the base64 of a serialised
    FileDescriptorProto. references: each name once, and before every schema that refers to it.
    """

    schema_id: int
    kind: SchemaKind
    text: str
    references: tuple[NamedSchema, ...] = ()

    def __post_init__(self) -> None:
        names = [reference.name for reference in self.references]
        if len(set(names)) != len(names):
            raise OutOfTurnError(f"schema {self.schema_id} has two references of one name")


class SchemaLookup(Protocol):
    """A holder of schemas by their id, or by their GUID."""

    def schema_of_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema of a GUID, or of a schema version of Glue; its `schema_id` is NO_ID. Raises as `schema`."""
        raise UnknownSchemaError(f"no schema has the GUID {guid}")

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id.

        Raises UnknownSchemaError if there is no such schema, which is final for the id. Raises a kind of
        UnavailableError for every fault of the registry: the same id is then requested again.
        """
