"""The client of a schema registry: schemas by id, subjects, registration and compatibility.

Rule: an id never changes its schema, so the client asks for a schema once. A known id works while the registry is away.
A fault of the registry is never an answer: the question is asked again, and at last raises UnavailableError.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from keyedwm.core.errors import KeyedwmError
from keyedwm.core.schemas import NO_ID, NamedSchema, RegisteredSchema, SchemaKind, SchemaLookup, UnknownSchemaError
from keyedwm.core.text import short_repr
from keyedwm.registry.answers import HIGHEST_ID, AbsentError, FaultError, SchemaAnswer, number_of, schema_of
from keyedwm.registry.cache import SchemaCache
from keyedwm.registry.http import MOST_BYTES, Question
from keyedwm.registry.options import RegistryConfig
from keyedwm.registry.transport import Transport, no_answer

_OTHER_FORM = "its answer is of another form: is it a schema registry?"
# An unknown id is asked for again after this time: it may be replicated or restored until then.
UNKNOWN_FOR_S = 60.0
_MOST_UNKNOWN = 10_000
_MOST_REFERENCES = 1_000
_LONGEST_CHAIN = 50  # of references, each in the one before
_MOST_TIMEOUTS = 10  # of one question each, until all that a schema refers to is answered
# How long a process waits until the registry confirms a schema on disk.
_CONFIRM_MS = 2_000
_NONE: Mapping[str, tuple[str, int]] = MappingProxyType({})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject, and its schema."""

    subject: str
    version: int
    schema: RegisteredSchema


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a schema may follow the latest one of its subject. reasons: why not, if the registry gives reasons."""

    compatible: bool
    reasons: tuple[str, ...] = ()


@functools.lru_cache(maxsize=64)
def registry_of(config: RegistryConfig) -> Registry:
    """Return the client of this process: schemas are asked for once, however many tasks need them."""
    return Registry(config)


class Registry(SchemaLookup):
    """A registry with Confluent's API, one in each process (`registry_of`). Looking up schemas is thread-safe."""

    def __init__(self, config: RegistryConfig, transport: Transport | None = None) -> None:
        self.config = config
        self._transport = Transport(config) if transport is None else transport
        self._clock = self._transport.clock
        self._cache = SchemaCache.of(config)
        self._schemas: dict[int, RegisteredSchema] = {}
        self._by_guid: dict[str, RegisteredSchema] = {}
        self._unknown: dict[int | str, float] = {}  # id or GUID -> until when it is not asked for
        self._confirmed_until = float("-inf")
        self._lock = threading.RLock()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id: from memory, from disk, else from the registry.

        Raises UnknownSchemaError, RegistryAccessError, and UnavailableError for faults of the registry.
        """
        registered = self._schemas.get(schema_id)
        if registered is not None:  # without the lock, which another thread keeps while it asks the registry
            return registered
        with self._lock:
            if not may_exist(schema_id) or self._unknown.get(schema_id, float("-inf")) > self._clock():
                raise self.no_schema(schema_id)
            registered = self._schemas.get(schema_id) or self._stored(schema_id)
            if registered is None:
                registered = self._registered(schema_id, self.config.timeout_ms)
                self._cache.write(registered)
            self._schemas[schema_id] = registered
            return registered

    def schema_of_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema of a GUID, as `schema` does of an id. A GUID is made of its schema and names no other."""
        schema = self._by_guid.get(guid)
        if schema is not None:
            return schema
        with self._lock:
            if self._unknown.get(guid, float("-inf")) > self._clock():
                raise self.no_schema(guid)
            schema = self._by_guid.get(guid) or self._cache.read(guid)
            if schema is None:
                schema = self._registered(guid, self.config.timeout_ms)
                self._cache.write(schema, guid)
            self._by_guid[guid] = schema
            return schema

    def subjects_of(self, schema_id: int, timeout_ms: int | None = None) -> tuple[str, ...]:
        """Return the subjects that a schema is registered under."""
        with self._lock:
            return self._names(f"/schemas/ids/{schema_id}/subjects", f"the subjects of schema {schema_id}", timeout_ms)

    def subjects(self) -> tuple[str, ...]:
        """Return all subjects that this login sees."""
        return self._names("/subjects", "its subjects")

    def reach(self) -> None:
        """Ask for something small; raises UnavailableError without an answer, RegistryAccessError for a wrong login."""
        self._transport.ask(Question("GET", "/schemas/types"), "its kinds of schemas")

    def latest(self, subject: str) -> SubjectVersion | None:
        """Return the newest version of a subject, None if there is no such subject."""
        try:
            value = self._transport.ask(Question("GET", f"{_of(subject)}/versions/latest"), f"subject {subject!r}")
            schema = self._resolved(number_of(value, "id"), schema_of(value), self.config.timeout_ms)
            return SubjectVersion(subject, number_of(value, "version"), schema)
        except AbsentError:
            return None
        except FaultError:
            raise no_answer(self.config, f"subject {subject!r}", _OTHER_FORM) from None

    def lookup(self, subject: str, kind: SchemaKind, text: str) -> int | None:
        """Return the id under which a subject has this schema, None if the subject does not have it."""
        try:
            return self._id_of(Question("POST", _of(subject), _body(kind, text)), subject)
        except AbsentError:
            return None

    def register(
        self, subject: str, kind: SchemaKind, text: str, references: Mapping[str, tuple[str, int]] = _NONE
    ) -> int:
        """Register a schema, and return its id. An equal schema has the same id. Raises InputError for a bad schema.

        references: name in the text → subject and version of the schema with this name.
        """
        try:
            return self._id_of(Question("POST", f"{_of(subject)}/versions", _body(kind, text, references)), subject)
        except AbsentError:
            raise no_answer(self.config, f"subject {subject!r}", _OTHER_FORM) from None

    def verdict(self, subject: str, kind: SchemaKind, text: str) -> Verdict:
        """Ask whether a schema may follow the latest one of a subject. It may, if there is no such subject."""
        path = f"/compatibility{_of(subject)}/versions/latest?verbose=true"
        try:
            value = self._transport.ask(Question("POST", path, _body(kind, text)), f"subject {subject!r}")
        except AbsentError:
            return Verdict(compatible=True)
        if not isinstance(value, dict) or not isinstance(value.get("is_compatible"), bool):
            raise no_answer(self.config, f"subject {subject!r}", _OTHER_FORM)
        reasons = value.get("messages")
        return Verdict(value["is_compatible"], tuple(map(str, reasons)) if isinstance(reasons, list) else ())

    def compatibility(self, subject: str) -> str | None:
        """Return the rule that new schemas of a subject must follow, such as `BACKWARD`; None if there is none."""
        try:
            value = self._transport.ask(
                Question("GET", f"/config/{quote(subject, safe='')}?defaultToGlobal=true"), f"the rule of {subject!r}"
            )
        except AbsentError:
            return None
        level = value.get("compatibilityLevel") if isinstance(value, dict) else None
        return level if isinstance(level, str) else None

    def _stored(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema on disk once the registry confirms it: a recreated registry gives ids to other schemas."""
        stored = self._cache.read(schema_id)
        if stored is None or self._clock() < self._confirmed_until:
            return stored
        try:
            confirmed = self._registered(schema_id, min(_CONFIRM_MS, self.config.timeout_ms))
        except UnknownSchemaError:  # one deleted id, or a recreated registry: the next id shows which
            return stored
        except KeyedwmError as error:
            _log.warning("%s; schemas kept on disk are used", error.message)
            self._confirmed_until = self._clock() + UNKNOWN_FOR_S
            return stored
        if confirmed != stored:
            _log.warning("the schema registry at %s was recreated: the schemas kept of it are dropped", self.config)
            self._cache.clear()
            self._cache.write(confirmed)
        self._confirmed_until = float("inf")
        return confirmed

    def _registered(self, name: int | str, timeout_ms: int) -> RegisteredSchema:
        """Ask for the schema of an id or a GUID."""
        object_name, is_id = f"schema {name}", isinstance(name, int)
        try:
            path = f"/schemas/{'ids' if is_id else 'guids'}/{name}"
            value = self._transport.ask(Question("GET", path), object_name, timeout_ms)
            return self._resolved(name if isinstance(name, int) else NO_ID, schema_of(value), timeout_ms)
        except AbsentError as absent:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[name] = self._clock() + UNKNOWN_FOR_S
            raise self.no_schema(name, absent.object_kind) from None
        except FaultError as fault:
            raise no_answer(self.config, object_name, str(fault)) from None

    def _resolved(self, schema_id: int, answer: SchemaAnswer, timeout_ms: int) -> RegisteredSchema:
        """Ask for all schemas that a schema refers to, `timeout_ms` each. Raises FaultError if one is missing."""
        texts: dict[str, str] = {}
        self._resolve(answer, texts, {}, timeout_ms, self._clock() + _MOST_TIMEOUTS * timeout_ms / 1_000)
        references = tuple(NamedSchema(name, text) for name, text in texts.items())
        return RegisteredSchema(schema_id, answer.kind, answer.text, references)

    def _resolve(  # noqa: PLR0917
        self,
        answer: SchemaAnswer,
        texts: dict[str, str],
        sizes: dict[tuple[str, int], int],
        timeout_ms: int,
        deadline_s: float,
        depth: int = 0,
    ) -> None:
        if depth > _LONGEST_CHAIN:
            raise FaultError(f"a schema refers to more than {_LONGEST_CHAIN} others in a chain", again=False)
        for name, subject, version in answer.references:
            if (subject, version) in sizes:
                continue
            sizes[subject, version] = 0
            if len(sizes) > _MOST_REFERENCES:
                raise FaultError(f"a schema refers to more than {_MOST_REFERENCES} others", again=False)
            if self._clock() > deadline_s:
                limit = f"{_MOST_TIMEOUTS} times schemaRegistry.timeout"
                raise FaultError(f"the schemas that it refers to were not all answered in {limit}", again=False)
            object_name = f"version {version} of subject {short_repr(subject)}"
            try:
                # Deleted versions, too: a schema that refers to one is not deleted with it.
                path = f"{_of(subject)}/versions/{version}?deleted=true"
                referred = schema_of(self._transport.ask(Question("GET", path), object_name, timeout_ms))
            except AbsentError:
                absence = f"it has no {object_name}, which is referred to as {short_repr(name)}"
                raise FaultError(absence, again=False) from None
            sizes[subject, version] = len(referred.text)
            if sum(sizes.values()) > MOST_BYTES:
                raise FaultError(f"the schemas that it refers to have more than {MOST_BYTES} characters", again=False)
            self._resolve(referred, texts, sizes, timeout_ms, deadline_s, depth + 1)
            texts.setdefault(name, referred.text)

    def _names(self, path: str, object_name: str, timeout_ms: int | None = None) -> tuple[str, ...]:
        try:
            value = self._transport.ask(Question("GET", path), object_name, timeout_ms)
        except AbsentError:
            return ()
        if not isinstance(value, list):
            raise no_answer(self.config, object_name, _OTHER_FORM)
        return tuple(map(str, value))

    def _id_of(self, question: Question, subject: str) -> int:
        value = self._transport.ask(question, f"subject {subject!r}")
        try:
            return number_of(value, "id")
        except FaultError:
            raise no_answer(self.config, f"subject {subject!r}", _OTHER_FORM) from None

    def no_schema(self, name: int | str, object_name: str = "schema") -> UnknownSchemaError:
        """Return the error for an id or a GUID that no schema has."""
        absence = "has no schema" if object_name == "schema" else f"has a {object_name}"
        kind = "id" if isinstance(name, int) else "GUID"
        return UnknownSchemaError(f"the schema registry at {self.config} {absence} with the {kind} {name}")


def may_exist(schema_id: int) -> bool:
    """Return whether a registry can give this id to a schema."""
    return 0 <= schema_id <= HIGHEST_ID


def _of(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _body(kind: SchemaKind, text: str, references: Mapping[str, tuple[str, int]] = _NONE) -> bytes:
    body: dict[str, Any] = {"schema": text}
    if kind is not SchemaKind.AVRO:  # a registry before 5.5 knows no name of a kind
        body["schemaType"] = kind.value
    if references:
        body["references"] = [
            {"name": name, "subject": subject, "version": version} for name, (subject, version) in references.items()
        ]
    return json.dumps(body).encode()
