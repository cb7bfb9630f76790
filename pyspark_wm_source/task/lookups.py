"""The schemas of formats that have them in an option, not in a registry."""

from __future__ import annotations

from keyedwm.core.places import Place
from keyedwm.core.schemas import NO_ID, RegisteredSchema, SchemaKind, SchemaLookup, UnknownSchemaError
from keyedwm.formats.avro_fingerprint import fingerprint
from keyedwm.formats.glue_schemas import glue_schemas
from keyedwm.registry.client import registry_of
from pyspark_wm_source.options.value_format import ColumnFormat, FormatName


class OneSchema(SchemaLookup):
    """The schema of an option, for values that do not name their schema."""

    def __init__(self, kind: SchemaKind, text: str) -> None:
        self._kind, self._text = kind, text

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema, whatever the id."""
        return RegisteredSchema(schema_id, self._kind, self._text)


class FingerprintedSchema(SchemaLookup):
    """The schema of an option, for values that name their schema by its fingerprint."""

    def __init__(self, text: str) -> None:
        self._text, self._fingerprint = text, fingerprint(text)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema. Raises UnknownSchemaError for another fingerprint."""
        if schema_id != self._fingerprint:
            raise UnknownSchemaError(
                f"the value has a schema of the fingerprint {schema_id}, option value.schema one of {self._fingerprint}"
            )
        return RegisteredSchema(schema_id, SchemaKind.AVRO, self._text)


class GlueSchemas(SchemaLookup):
    """The schemas of Glue that an option names, by the ids of their versions."""

    def __init__(self, option: str, text: str) -> None:
        self._option, self._schemas = option, glue_schemas(text)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Raise UnknownSchemaError: Glue names schemas by UUID, not by number."""
        raise UnknownSchemaError(f"option {self._option} has no schema of the id {schema_id}")

    def schema_of_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema of a version. Raises UnknownSchemaError if the option does not have it."""
        if guid not in self._schemas:
            raise UnknownSchemaError(f"option {self._option} has no schema of the schema version {guid}")
        return RegisteredSchema(NO_ID, SchemaKind.AVRO, self._schemas[guid])


def lookup_of(value_format: ColumnFormat) -> SchemaLookup:
    """Return the lookup of schemas for a format that needs them."""
    text = value_format.schema or ""
    if value_format.registry is not None:
        return registry_of(value_format.registry)
    if value_format.name is FormatName.AVRO_SINGLE_OBJECT:
        return FingerprintedSchema(text)
    if value_format.name is FormatName.AVRO_GLUE:
        return GlueSchemas(value_format.schema_option, text)
    is_avro = value_format.name.language is Place.AVRO
    return OneSchema(SchemaKind.AVRO if is_avro else SchemaKind.PROTOBUF, text)
