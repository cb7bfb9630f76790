"""Fields, schema ids and faults of Protobuf values: the counterpart of `decoder` for Avro.

Rule: behind Confluent's id stand the indexes that lead to the message in its file, so a program belongs to an id and
its indexes. An unknown id, a schema of another kind and a missing message are faults of the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FileDescriptor
from numpy.typing import NDArray

from keyedwm.core.errors import InputError
from keyedwm.core.schemas import SchemaKind, SchemaLookup, UnknownSchemaError
from keyedwm.formats.decoder import Decoded, Problem, schema_of, warn_of_misspelt
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.header_ids import Guids, HeaderIds
from keyedwm.formats.heads import Bodies, Head, bodies_of
from keyedwm.formats.proto_columns import LinkedMessages, decode
from keyedwm.formats.proto_kernels import find_programs, past_indexes
from keyedwm.formats.proto_program import Program, compile_message
from keyedwm.formats.proto_schema import link, message_at

_FIRST = b"\0"  # the indexes of the first message of a file


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The program of an id and its indexes. problem: why all their values have a fault, None for none."""

    schema_id: int
    indexes: bytes
    program: Program
    problem: Problem | None = None


class ProtoDecoder:
    """Decodes values of one head: Confluent's, or none. Values without a head are the schema's first message."""

    def __init__(self, head: Head, requests: Sequence[Request], schemas: SchemaLookup) -> None:
        self._head, self._requests, self._schemas = head, tuple(requests), schemas
        self._files: dict[int, FileDescriptor | Problem] = {}
        self._known: list[_Known] = []
        self._linked = LinkedMessages(())
        self._guids = Guids()

    def decode(self, values: pa.Array, headers: HeaderIds | None = None) -> Decoded:
        """Decode binary values. headers: the records' headers, which may name the schemas.

        Raises the lookup's UnavailableError.
        """
        bodies = bodies_of(self._head, values, headers, self._guids, tails=True)
        which = np.full(len(values), -1, np.int32)
        row = self._find(bodies, which, 0)
        problems: dict[int, Problem] = {}
        while row < len(values):
            indexes = _FIRST if self._head is Head.NONE else _indexes_at(bodies, row)
            known = self._learn(int(bodies.ids[row]), indexes)
            if isinstance(known, Problem):  # not kept: values of another format may have any bytes here
                problems[int(bodies.ids[row])] = known
                bodies.faults[row] = known.fault
            else:
                self._known.append(known)
                self._linked = LinkedMessages([one.program for one in self._known])
            row = self._find(bodies, which, row)
        columns = decode(self._linked, bodies, which, self._requests)
        message_problems: dict[int, Problem] = {}
        for number, one in enumerate(self._known):
            rows = which == number
            if one.problem is not None and rows.any():
                bodies.faults[rows] = one.problem.fault
                message_problems[number] = one.problem
        numbers = {one.schema_id for one in self._known} | problems.keys()
        unknown = {number for number, one in problems.items() if one.fault is Fault.UNKNOWN_SCHEMA}
        guids = {number: guid for number in numbers if (guid := self._guids.text(number)) is not None}
        self._guids.forget(unknown)  # an unknown id may be known to the next batch
        return Decoded(columns, bodies.ids, bodies.faults, problems, self._head, guids, which, message_problems)

    def _find(self, bodies: Bodies, which: NDArray[np.int32], row: int) -> int:
        """Find the program of each value from `row` on; return the first row without one, else the number of rows."""
        ids = np.array([one.schema_id for one in self._known], np.int64)
        ends = np.cumsum([0, *(len(one.indexes) for one in self._known)]).astype(np.int64)
        keys = np.frombuffer(b"".join(one.indexes for one in self._known) or _FIRST, np.uint8)
        return int(find_programs(
            bodies.data, bodies.start, bodies.stop, bodies.ids, bodies.faults, self._head is not Head.NONE,
            ids, ends, keys, which, row,
        ))  # fmt: skip

    def _learn(self, schema_id: int, indexes: bytes) -> _Known | Problem:
        """Compile a message, or return why the schema lacks it."""
        called = "the schema of option value.schema"
        if self._head is not Head.NONE:
            called = f"schema {self._guids.text(schema_id) or schema_id}"
        file = self._file(schema_id, called)
        if isinstance(file, Problem):
            return file
        message = message_at(file, _numbers(indexes))
        if message is None:
            return Problem(Fault.WRONG_SCHEMA, f"{called} has no message with the indexes that are in the head")
        program = compile_message(message, self._requests)
        warn_of_misspelt(f"message {message.full_name} of {called}", self._requests, program.nearest_paths)
        return _Known(schema_id, indexes, program, self._unreadable(called, message, program))

    def _file(self, schema_id: int, called: str) -> FileDescriptor | Problem:
        """Return the linked schema of an id, or why there is none."""
        if schema_id not in self._files:
            try:
                registered = schema_of(self._schemas, self._guids, schema_id)
            except UnknownSchemaError as error:
                return Problem(Fault.UNKNOWN_SCHEMA, error.message)
            if registered.kind is not SchemaKind.PROTOBUF:
                sentence = f"{called} is of the kind {registered.kind.value}, Protobuf is expected"
                return Problem(Fault.OTHER_KIND, sentence)
            try:
                self._files[schema_id] = link(registered)
            except InputError as error:
                self._files[schema_id] = Problem(Fault.WRONG_SCHEMA, f"{called}: {error.message}")
        return self._files[schema_id]

    def _unreadable(self, called: str, message: Descriptor, program: Program) -> Problem | None:
        if not program.unreadable:
            return None
        slot, kind = next(iter(program.unreadable.items()))
        request = self._requests[slot]
        problem = f"{called} has {request.text} of {message.full_name} as {kind}"
        return Problem(Fault.OTHER_TYPE, f"{problem}, which cannot be read as {request.type_name}")


def _indexes_at(bodies: Bodies, row: int) -> bytes:
    """The bytes of a value's indexes."""
    at = int(bodies.start[row])
    return bodies.data[at : int(past_indexes(bodies.data, at, bodies.stop[row]))].tobytes()


def _numbers(indexes: bytes) -> list[int]:
    """The indexes as numbers; no indexes stand for the first message."""
    numbers, value, shift = list[int](), 0, 0
    for byte in indexes:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append((value >> 1) ^ -(value & 1))
            value = shift = 0
    return numbers[1:] or [0]
