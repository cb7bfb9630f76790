"""Requirements of a Delta table on its writers, by its protocol and columns: the sink meets each, or rejects the table.

Rule: the sink rejects a requirement by name, before a row is written. A feature is accepted if an append needs nothing
for it, or if this sink does what it needs. The sink also rejects a feature if deltalake writes no commit to tables that
have it, even if an append needs nothing for it. Rules of columns (NOT NULL, lengths of texts) are kept row by row
(`tables.row_rules`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake import __version__ as deltalake_version

from keyedwm.core.errors import InputError
from pyspark_wm_sink.tables.row_rules import RowRules, TextLimit
from pyspark_wm_sink.tables.schema_check import never_null_inside

_TEXT = re.compile(r"(char|varchar)\((\d+)\)")

# For constraints, generated columns and mapped names the table's own columns and settings decide, see `_settings`.
_KNOWN = frozenset({
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
    "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview",
})  # fmt: skip
_OLD_VERSION = 6  # asks for identity columns; version 7 names what it asks for
_NEEDS = {
    "rowTracking": "each file needs ids for its rows",
    "identityColumns": "each row needs the next number",
    "inCommitTimestamp": "each commit needs a time of its own",
    "materializePartitionColumns": "files must hold the partition columns",
}
_VARYING = ("char(", "varchar(")
_TEXT_TYPE = "__CHAR_VARCHAR_TYPE_STRING"


def check_features(table: DeltaTable, where: str) -> None:
    """Raise InputError that names the features which the table asks of its writers and this sink lacks."""
    requirements = [*_features(table), *_settings(table)]
    if requirements:
        raise InputError(
            f"{where} asks its writers for features that this sink lacks: {'; '.join(sorted(requirements))}; drop them "
            f"(ALTER TABLE ... DROP FEATURE, DROP CONSTRAINT), or write to another table; nothing was written"
        )


def text_type(metadata: Mapping[str, object]) -> str | None:
    """Return a column's type as Spark declared it, if the type is or holds char(n) or varchar(n)."""
    declared = metadata.get(_TEXT_TYPE)
    return None if declared is None else str(declared).lower()


def _features(table: DeltaTable) -> Iterator[str]:
    protocol = table.protocol()
    features = set(protocol.writer_features or ())
    if protocol.min_writer_version == _OLD_VERSION:
        features = {"identityColumns"}
    for name in sorted(features - _KNOWN):
        yield f"feature {name} ({_NEEDS.get(name, f'deltalake {deltalake_version} does not commit to such tables')})"


def _settings(table: DeltaTable) -> Iterator[str]:
    for name, value in table.metadata().configuration.items():
        if name.startswith("delta.constraints."):
            yield f"CHECK constraint {name.removeprefix('delta.constraints.')} ({value})"
        if name == "delta.columnMapping.mode" and value != "none":
            yield f"{name}={value}"
    schema = json.loads(table.schema().to_json())
    for name, metadata in _columns("", schema):
        yield from _of_column(name, metadata)
    for field in schema["fields"]:  # in a null struct all fields are null, which Arrow takes for a broken NOT NULL
        for name in never_null_inside(field["name"], field["type"]):
            yield f"field {name} is not null"


def _of_column(name: str, metadata: Mapping[str, object]) -> Iterator[str]:
    if "delta.generationExpression" in metadata:
        yield f"column {name} is generated ({metadata['delta.generationExpression']})"
    if any(one.startswith("delta.identity.") for one in metadata):
        yield f"column {name} is an identity column"
    if "delta.invariants" in metadata:
        yield f"column {name} has an invariant ({metadata['delta.invariants']})"
    declared = text_type(metadata)
    if declared is not None and not declared.startswith(_VARYING):
        yield f"column {name} is declared as {declared}, whose lengths are not checked"


def _columns(name: str, kind: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield each field with its metadata, nested ones with dots."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        where = f"{name}.{field['name']}" if name else field["name"]
        yield where, field["metadata"]
        yield from _columns(where, field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _columns(name, kind.get(part))


def row_rules(table: Schema, columns: pa.Schema, partition_by: Sequence[str] = ()) -> RowRules:
    """Return the rules of the table's columns, for the columns that the rows have."""
    fields = [field for field in json.loads(table.to_json())["fields"] if field["name"] in columns.names]
    texts = []
    for field in fields:
        match = _TEXT.fullmatch(text_type(field["metadata"]) or "")
        if match is not None:
            texts.append(TextLimit(column=field["name"], most=int(match[2]), is_padded=match[1] == "char"))
    never_null = tuple(field["name"] for field in fields if not field["nullable"])
    never_empty = tuple(
        name for name in never_null if name in partition_by and pa.types.is_string(columns.field(name).type)
    )
    return RowRules(never_null=never_null, never_empty=never_empty, texts=tuple(texts))
