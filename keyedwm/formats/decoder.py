"""Fields, schema ids and faults of the keys or values of records that have a schema.

Rule: a schema is compiled once for each id, which never changes its schema. What the schemas' owner cannot answer is an
error and never a null; an id that it does not know, or a schema of another kind, is a fault of the value.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.core.errors import InputError
from keyedwm.core.places import schema_path
from keyedwm.core.schemas import RegisteredSchema, SchemaKind, SchemaLookup, UnknownSchemaError
from keyedwm.formats.avro_columns import Linked, decode
from keyedwm.formats.avro_program import Program, compile_program
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.avro_types import AvroType
from keyedwm.formats.columns import Column
from keyedwm.formats.faults import FAULTS, Fault
from keyedwm.formats.heads import EXPECTED, Head, bodies_of, distinct_ids, places_of
from keyedwm.formats.requests import Request

_log = logging.getLogger("keyedwm.source")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why no value of a schema can be read, or not a field of it."""

    fault: Fault
    sentence: str


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What some values hold: a column for each request, the ids of their schemas and their faults, as numbers.

    problems: id → why the values of a schema have a fault. head: of the values.
    """

    columns: Sequence[Column]
    schema_ids: NDArray[np.int64]
    faults: NDArray[np.uint8]
    problems: Mapping[int, Problem]
    head: Head

    @property
    def bad(self) -> NDArray[np.bool_] | None:
        """Mark the values with a fault, None for none."""
        bad = self.faults > Fault.ABSENT
        return bad if bad.any() else None

    def ids(self) -> pa.Array:
        """Return the schemas' ids as a column; null where there is none."""
        return pa.array(self.schema_ids, mask=(self.faults == Fault.ABSENT) | (self.faults == Fault.NO_HEAD))

    def reason(self, row: int) -> str:
        """Say why a value has a fault."""
        fault = Fault(self.faults[row])
        if fault is Fault.NO_HEAD:
            return f"the value has no head of {self.head.value}: {EXPECTED[self.head]}"
        schema_id = int(self.schema_ids[row])
        if schema_id in self.problems and fault is self.problems[schema_id].fault:
            return self.problems[schema_id].sentence
        return FAULTS[fault] if self.head is Head.NONE else f"{FAULTS[fault]} (schema {schema_id})"


class Decoder:
    """Decodes values of one head. reader: the schema whose defaults stand for fields that writers do not have."""

    def __init__(
        self, head: Head, requests: Sequence[Request], schemas: SchemaLookup, reader: AvroType | None = None
    ) -> None:
        self._head, self._requests, self._schemas, self._reader = head, tuple(requests), schemas, reader
        self._programs: dict[int, Program] = {}
        self._problems: dict[int, Problem] = {}
        self._linked = Linked(())

    def decode(self, values: pa.Array) -> Decoded:
        """Decode binary values. Raises the lookup's UnavailableError."""
        bodies = bodies_of(self._head, values)
        problems = self._learn(distinct_ids(bodies))
        which = places_of(bodies, [*self._programs])
        columns = decode(self._linked, bodies, which, self._requests)
        for schema_id, problem in problems.items():
            rows = (bodies.ids == schema_id) & (bodies.faults == Fault.NONE)
            bodies.faults[rows] = problem.fault
        return Decoded(columns, bodies.ids, bodies.faults, problems, self._head)

    def _learn(self, ids: Sequence[int]) -> dict[int, Problem]:
        """Compile the schemas of new ids; return the problems of these ids."""
        problems = {}
        for schema_id in ids:
            if schema_id not in self._programs and schema_id not in self._problems:
                try:
                    self._compile(self._schemas.schema(schema_id))
                except UnknownSchemaError as error:
                    problems[schema_id] = Problem(Fault.UNKNOWN_SCHEMA, error.message)
            if schema_id in self._problems:
                problems[schema_id] = self._problems[schema_id]
        return problems

    def _compile(self, registered: RegisteredSchema) -> None:
        schema_id = registered.schema_id
        called = "the schema of option value.schema" if self._head is Head.NONE else f"schema {schema_id}"
        if registered.kind is not SchemaKind.AVRO:
            sentence = f"{called} is of the kind {registered.kind.value}, Avro is expected"
            self._problems[schema_id] = Problem(Fault.OTHER_KIND, sentence)
            return
        try:
            schema = parse_avro(registered.text, [one.text for one in registered.references])
        except InputError as error:
            self._problems[schema_id] = Problem(Fault.WRONG_SCHEMA, f"{called}: {error.message}")
            return
        program = compile_program(schema, self._requests, self._reader)
        if program.unreadable:
            self._problems[schema_id] = Problem(Fault.OTHER_TYPE, _unreadable(called, program, self._requests))
        for slot, path in program.meant.items():
            request = self._requests[slot]
            _log.warning(
                "%s has no %s, which is null in its records; did you mean %s?", called, request.text, schema_path(path)
            )
        self._programs[schema_id] = program
        self._linked = Linked([*self._programs.values()])


def _unreadable(called: str, program: Program, requests: Sequence[Request]) -> str:
    slot, found = next(iter(program.unreadable.items()))
    request = requests[slot]
    return f"{called} has {request.text} as {found}, which cannot be read as {request.called}"
