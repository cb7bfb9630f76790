"""Decoding keys or values with a schema into fields, schema ids and faults.

Rule: a schema is compiled once for each id, since an id never changes its schema. A lookup that is not available raises
an error, and never gives a null. An unknown id, or a schema of another kind, is a fault of the value.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import sorted_distinct
from keyedwm.core.errors import InputError
from keyedwm.core.places import schema_path
from keyedwm.core.schemas import RegisteredSchema, SchemaKind, SchemaLookup, UnknownSchemaError
from keyedwm.core.text import MOST_WORDS, shortened
from keyedwm.formats.avro_columns import Linked, decode
from keyedwm.formats.avro_program import Program, compile_program
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.avro_types import AvroType
from keyedwm.formats.columns import Column
from keyedwm.formats.faults import FAULTS, OF_ZLIB, WRONG_HEADER, Fault
from keyedwm.formats.field_requests import Request, Steps
from keyedwm.formats.header_ids import Guids, HeaderIds
from keyedwm.formats.heads import EXPECTED, Bodies, Head, bodies_of, distinct_ids, places_of

_log = logging.getLogger("keyedwm.source")
WITHOUT_ID = np.array([Fault.ABSENT, Fault.NO_HEAD, Fault.WRONG_HEADER], np.uint8)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the values of a schema, or one of their fields, cannot be read. sentence: short, rejected rows repeat it."""

    fault: Fault
    sentence: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", shortened(self.sentence, MOST_WORDS))


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Decoded values: a column for each request, and for each value the id of its schema and its fault (`Fault`).

    problems: schema id → why its values have a fault. head: the format of the values' heads. guids: number → GUID, for
    ids that stand for GUIDs. messages: for Protobuf, the number of each value's message, -1 for none. message_problems:
    number of a message → why its values have a fault.
    """

    columns: Sequence[Column]
    schema_ids: NDArray[np.int64]
    faults: NDArray[np.uint8]
    problems: Mapping[int, Problem]
    head: Head
    guids: Mapping[int, str] = field(default_factory=dict)
    messages: NDArray[np.int32] | None = None
    message_problems: Mapping[int, Problem] = field(default_factory=dict)

    @property
    def bad(self) -> NDArray[np.bool_] | None:
        """Flags of the values with a fault; None if no value has one."""
        bad = self.faults > Fault.ABSENT
        return bad if bad.any() else None

    def ids(self) -> pa.Array:
        """Return the schemas' ids as a column; null for a value without an id, or with a GUID."""
        has_guid = np.isin(self.schema_ids, np.array([*self.guids], np.int64))
        return pa.array(self.schema_ids, mask=np.isin(self.faults, WITHOUT_ID) | has_guid)

    def guid_texts(self) -> pa.Array:
        """Return the schemas' GUIDs as a column; null for a value without a GUID."""
        numbers = pa.array(self.schema_ids, mask=np.isin(self.faults, WITHOUT_ID))
        at = pc.index_in(numbers, pa.array([*self.guids], pa.int64()))
        return pa.array([*self.guids.values()], pa.string()).take(at)

    def names(self) -> dict[int, int | str]:
        """Return value in `schema_ids` → the id or the GUID, for each schema that values name."""
        numbers = np.unique(self.schema_ids[~np.isin(self.faults, WITHOUT_ID)], return_index=True)[0].tolist()
        return {number: self.guids.get(number, number) for number in numbers}

    def called(self, row: int) -> str:
        """Name the schema of a value."""
        schema_id = int(self.schema_ids[row])
        return f"schema {self.guids.get(schema_id, schema_id)}"

    def reason(self, row: int) -> str:
        """Return why a value has a fault, as part of a message."""
        fault = Fault(self.faults[row])
        if fault is Fault.NO_HEAD:
            return f"the value has no head of {self.head.value}: {EXPECTED[self.head]}"
        if fault is Fault.WRONG_HEADER:
            return WRONG_HEADER
        of_message = None if self.messages is None else self.message_problems.get(int(self.messages[row]))
        for problem in (of_message, self.problems.get(int(self.schema_ids[row]))):
            if problem is not None and fault is problem.fault:
                return problem.sentence
        reason = FAULTS.get(fault, "the value has a schema that cannot be used")
        return reason if self.head is Head.NONE else f"{reason} ({self.called(row)})"

    def reason_ids(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an integer for each of these values; values with the same integer have the same `reason`."""
        _, schemas = np.unique(self.schema_ids[rows], return_inverse=True)
        ids = schemas.astype(np.int64)
        if self.messages is not None:
            ids = ids * (len(self.message_problems) + 1) + self._problem_numbers(self.messages[rows])
        return ids * len(Fault) + self.faults[rows]

    def _problem_numbers(self, messages: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return 1 and more for messages with a problem, 0 for others."""
        numbers = np.array([*self.message_problems], np.int64)
        return ((messages[:, None] == numbers) * np.arange(1, len(numbers) + 1)).sum(axis=1)

    def with_unknown(self, unknown: NDArray[np.bool_], problems: Mapping[int, Problem]) -> Decoded:
        """Return a copy in which the flagged values have an unknown schema. problems: schema id → its problem."""
        columns = [_nullified(column, unknown) for column in self.columns]
        faults = np.where(unknown, np.uint8(Fault.UNKNOWN_SCHEMA), self.faults)
        return replace(self, columns=columns, faults=faults, problems={**self.problems, **problems})

    @staticmethod
    def joined(parts: Sequence[Decoded]) -> Decoded:
        """Join the decoded values of consecutive pieces of Avro values."""
        if len(parts) == 1:
            return parts[0]
        columns = [_concatenated(pieces) for pieces in zip(*(part.columns for part in parts), strict=True)]
        ids, faults = (np.concatenate([getattr(part, name) for part in parts]) for name in ("schema_ids", "faults"))
        problems = {schema_id: problem for part in parts for schema_id, problem in part.problems.items()}
        guids = {number: guid for part in parts for number, guid in part.guids.items()}
        return Decoded(columns, ids, faults, problems, parts[0].head, guids)


class Decoder:
    """Decodes Avro values of one head. reader: the schema that gives defaults to fields that other schemas lack."""

    def __init__(
        self, head: Head, requests: Sequence[Request], schemas: SchemaLookup, reader: AvroType | None = None
    ) -> None:
        self._head, self._requests, self._schemas, self._reader = head, tuple(requests), schemas, reader
        self._programs: dict[int, Program] = {}
        self._problems: dict[int, Problem] = {}
        self._linked = Linked(())
        self._guids = Guids()

    def decode(self, values: pa.Array, headers: HeaderIds | None = None) -> Decoded:
        """Decode binary values. headers: the records' headers, which may name the schemas.

        Raises the lookup's UnavailableError.
        """
        parts: list[Decoded] = []
        row = 0
        while row < len(values) or not parts:
            bodies = bodies_of(self._head, values.slice(row), headers, self._guids)
            parts.append(self._decode(bodies))
            row += len(bodies.start)
        return Decoded.joined(parts)

    def _decode(self, bodies: Bodies) -> Decoded:
        ids = distinct_ids(bodies)
        problems = self._learn(ids)
        which = places_of(bodies, [*self._programs])
        columns = decode(self._linked, bodies, which, self._requests)
        for schema_id, problem in problems.items():
            rows = (bodies.ids == schema_id) & (bodies.faults == Fault.NONE)
            bodies.faults[rows] = problem.fault
        # A value that cannot be decompressed names a schema, too, but nobody looks this schema up.
        numbers = {*ids, *sorted_distinct(bodies.ids[np.isin(bodies.faults, OF_ZLIB)]).tolist()}
        guids = {number: guid for number in numbers if (guid := self._guids.text(number)) is not None}
        self._guids.forget(numbers - self._programs.keys() - self._problems.keys())
        return Decoded(columns, bodies.ids, bodies.faults, problems, self._head, guids)

    def _learn(self, ids: Sequence[int]) -> dict[int, Problem]:
        """Compile the schemas of new ids; return the problems of `ids`, also of known ones."""
        problems = {}
        for schema_id in ids:
            if schema_id not in self._programs and schema_id not in self._problems:
                try:
                    self._compile(schema_id, schema_of(self._schemas, self._guids, schema_id))
                except UnknownSchemaError as error:
                    problems[schema_id] = Problem(Fault.UNKNOWN_SCHEMA, error.message)
            if schema_id in self._problems:
                problems[schema_id] = self._problems[schema_id]
        return problems

    def _compile(self, schema_id: int, registered: RegisteredSchema) -> None:
        called = "the schema of option value.schema"
        if self._head is not Head.NONE:
            called = f"schema {self._guids.text(schema_id) or schema_id}"
        if registered.kind is not SchemaKind.AVRO:
            sentence = f"{called} is of the kind {registered.kind.value}, Avro is expected"
            self._problems[schema_id] = Problem(Fault.OTHER_KIND, sentence)
            return
        try:
            schema = parse_avro(registered.text, [one.text for one in registered.references])
            program = compile_program(schema, self._requests, self._reader)
        except InputError as error:
            self._problems[schema_id] = Problem(Fault.WRONG_SCHEMA, f"{called}: {error.message}")
            return
        if program.unreadable:
            self._problems[schema_id] = Problem(Fault.OTHER_TYPE, _unreadable(called, program, self._requests))
        warn_of_misspelt(called, self._requests, program.nearest_paths)
        self._programs[schema_id] = program
        self._linked = Linked([*self._programs.values()])


def _nullified(column: Column, rows: NDArray[np.bool_]) -> Column:
    if isinstance(column, pa.Array):
        return pc.if_else(pa.array(rows), pa.scalar(None, column.type), column)
    ms, valid = column
    return np.where(rows, 0, ms), valid & ~rows


def _concatenated(pieces: Sequence[Column]) -> Column:
    if isinstance(pieces[0], pa.Array):
        return pa.concat_arrays(pieces)
    ms, valid = zip(*pieces, strict=True)
    return np.concatenate(ms), np.concatenate(valid)


def schema_of(schemas: SchemaLookup, guids: Guids, schema_id: int) -> RegisteredSchema:
    """Look up the schema of an id, or of the GUID that the id stands for."""
    guid = guids.text(schema_id)
    return schemas.schema(schema_id) if guid is None else schemas.schema_of_guid(guid)


def warn_of_misspelt(called: str, requests: Sequence[Request], nearest_paths: Mapping[int, Steps]) -> None:
    """Warn of paths that a schema lacks, with the most similar path. nearest_paths: slot → this path."""
    for slot, path in nearest_paths.items():
        _log.warning(
            "%s has no %s, which is null in its records; did you mean %s?",
            shortened(called), requests[slot].text, schema_path(path),
        )  # fmt: skip


def _unreadable(called: str, program: Program, requests: Sequence[Request]) -> str:
    slot, type_name = next(iter(program.unreadable.items()))
    request = requests[slot]
    return f"{called} has {request.text} as {type_name}, which cannot be read as {request.type_name}"
