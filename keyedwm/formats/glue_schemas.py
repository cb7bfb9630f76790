"""The schemas of AWS Glue that a user gives: one text for each id of a schema version.

Rule: a version never changes its schema, so the user gives its text once. AWS is never asked.
"""

from __future__ import annotations

import json
from uuid import UUID

from keyedwm.core.errors import InputError
from keyedwm.core.text import short_repr
from keyedwm.formats.avro_schema import parse_avro

_EXPECTED = (
    'a JSON object from each SchemaVersionId to its SchemaDefinition is expected, as {"6f1c2a50-...": "{...}"}: '
    "aws glue get-schema-version prints both"
)


def glue_schemas(text: str) -> dict[str, str]:
    """Return the text of each schema by the id of its version. Raises InputError in one sentence."""
    try:
        schemas = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{short_repr(text)} is no JSON; {_EXPECTED}") from None
    if not isinstance(schemas, dict) or not schemas:
        raise InputError(_EXPECTED)
    return {_version(version): _schema(version, schema) for version, schema in schemas.items()}


def _version(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InputError(f"{short_repr(text)} is no id of a schema version; {_EXPECTED}") from None


def _schema(version: str, schema: object) -> str:
    """Return the text of a schema, which the user may give as a JSON value."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        parse_avro(text)
    except InputError as error:
        raise InputError(f"the schema of version {version}: {error.message}") from error
    return text
