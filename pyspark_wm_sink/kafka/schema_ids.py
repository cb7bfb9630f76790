"""The ids of the schemas that a query writes: requested once, and kept in its ledger.

Rule: an id in the ledger for a schema, its subject and the registry's address is used without a request. So a batch
that is replayed has the same bytes, and a restart needs no registry. A schema that the ledger lacks is registered, or
looked up, before a row is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keyedwm.core.errors import InputError
from keyedwm.core.text import short_repr
from keyedwm.registry.client import Registry, registry_of
from pyspark_wm_sink.kafka.record_values import SideSchema, SideWriter
from pyspark_wm_sink.options.record_format import REGISTER, RecordFormats
from pyspark_wm_sink.places.notes import LedgerDirectory

NOTE = "schemas.json"
_MOST = 100  # schemas that are kept, the newest last


def side_writers(
    formats: RecordFormats, schemas: Sequence[SideSchema], place: Path | str | None
) -> tuple[SideWriter, ...]:
    """Return the writers of the sides. place: the query's ledger, None to ask the registry every time.

    Raises InputError if the registry does not accept a schema, or lacks one that is only looked up; UnavailableError if
    it does not answer.
    """
    if place is None:
        ids = [_ask(formats, number, schema) for number, schema in enumerate(schemas)]
    else:
        directory = LedgerDirectory(place)
        with directory.locked():
            ids = [_id_of(directory, formats, number, schema) for number, schema in enumerate(schemas)]
    return tuple(SideWriter(schema=schema, schema_id=one) for schema, one in zip(schemas, ids, strict=True))


def _id_of(directory: LedgerDirectory, formats: RecordFormats, number: int, schema: SideSchema) -> int:
    """Return the id from the note; without one ask the registry and note the answer."""
    key = {
        "registry": sorted(map(str, formats.registry.addresses)), "subject": formats.sides[number].subject,
        "kind": schema.kind.value, "text": schema.text,
    }  # fmt: skip
    entries = _entries(directory)
    for entry in entries:
        if all(entry.get(name) == value for name, value in key.items()):
            return directory.parsed(NOTE, lambda: int(entry["id"]))  # noqa: B023 - called at once
    schema_id = _ask(formats, number, schema)
    directory.write_note(NOTE, {"schemas": [*entries, {**key, "id": schema_id}][-_MOST:]})
    return schema_id


def _entries(directory: LedgerDirectory) -> list[dict[str, Any]]:
    value = directory.read_note(NOTE)
    return [] if value is None else directory.parsed(NOTE, lambda: [dict(one) for one in value["schemas"]])


def _ask(formats: RecordFormats, number: int, schema: SideSchema) -> int:
    """Register a schema, or look it up."""
    registry, subject = registry_of(formats.registry), formats.sides[number].subject
    if not formats.registers:
        return _look_up(registry, subject, schema)
    try:
        return registry.register(subject, schema.kind, schema.text)
    except InputError as error:
        raise InputError(
            f"subject {subject} does not take {schema.called_as}: {error.message}; change the columns, or the "
            f"subject's compatibility"
        ) from None


def _look_up(registry: Registry, subject: str, schema: SideSchema) -> int:
    schema_id = registry.lookup(subject, schema.kind, schema.text)
    if schema_id is not None:
        return schema_id
    latest = registry.latest(subject)
    newest = "has no versions" if latest is None else f"has version {latest.version}, {short_repr(latest.schema.text)}"
    raise InputError(
        f"subject {subject} lacks {schema.called_as}, which is {schema.text} (the subject {newest}): register it, or "
        f"set {REGISTER}=true, or give the subject's schema by {schema.side}.schema"
    )
