"""Compiling a message of a schema and the requested fields to a program of `proto_kernels`.

Rule: a field that the message lacks is null. A field with presence that is not written is null, too, unless the schema
gives it a default. `unreadable` has the fields that cannot be read as the requested type.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from keyedwm.core.places import DecimalType, FieldType, Unit
from keyedwm.core.text import nearest
from keyedwm.formats.field_requests import TO_MS, Layout, Request, Stored
from keyedwm.formats.proto_json import WRAPPERS, ProtoTexts, text_steps
from keyedwm.formats.proto_kernels import Op, Wire

_TIMESTAMP = "google.protobuf.Timestamp"
# The wire type of an integer, and the op that reads it.
_NUMBERS = {
    FieldDescriptor.TYPE_INT64: (Wire.VARINT, Op.SIGNED), FieldDescriptor.TYPE_UINT64: (Wire.VARINT, Op.UNSIGNED),
    FieldDescriptor.TYPE_INT32: (Wire.VARINT, Op.SIGNED_32), FieldDescriptor.TYPE_UINT32: (Wire.VARINT, Op.UNSIGNED_32),
    FieldDescriptor.TYPE_SINT64: (Wire.VARINT, Op.ZIGZAG), FieldDescriptor.TYPE_SINT32: (Wire.VARINT, Op.ZIGZAG_32),
    FieldDescriptor.TYPE_FIXED64: (Wire.FIXED64, Op.UNSIGNED), FieldDescriptor.TYPE_SFIXED64: (Wire.FIXED64, Op.SIGNED),
    FieldDescriptor.TYPE_FIXED32: (Wire.FIXED32, Op.UNSIGNED_32),
    FieldDescriptor.TYPE_SFIXED32: (Wire.FIXED32, Op.SIGNED_32),
}  # fmt: skip
_FRACTIONS = {
    FieldDescriptor.TYPE_DOUBLE: (Wire.FIXED64, Op.DOUBLE), FieldDescriptor.TYPE_FLOAT: (Wire.FIXED32, Op.FLOAT),
}  # fmt: skip
_MOST = 2**63 - 1
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


@dataclass(frozen=True, slots=True)
class Start:
    """The value of a field that is not written: a number, or the text `word`."""

    slot: int
    value: int = 0
    word: bytes | None = None


@dataclass(slots=True)
class Level:
    """The requested fields of a message: entries of the loop, and start values."""

    entries: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)


@dataclass(slots=True)
class Program:
    """One message, compiled. symbols: (number, name) of all enums. layouts: slot → how its value is stored.

    unreadable: slot → the field's type, which cannot be read as the requested type. nearest_paths: slot → the path of
    the message that is most similar to a missing path. depth: the most messages within each other.
    """

    levels: list[Level] = field(default_factory=list)
    symbols: list[tuple[int, bytes]] = field(default_factory=list)
    layouts: dict[int, Layout] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    nearest_paths: dict[int, tuple[str | int, ...]] = field(default_factory=dict)
    depth: int = 1


_Path = tuple[int, Request, tuple[str | int, ...]]  # a slot, its request, and the remaining steps of the request's path


def compile_message(message: Descriptor, requests: Sequence[Request]) -> Program:
    """Compile a message. requests: the fields, by slot."""
    program = Program()
    paths = [(slot, request, request.path) for slot, request in enumerate(requests)]
    _Compiler(program, message).level(message, paths, 1)
    return program


class _Compiler:
    """Writes the levels of a program."""

    def __init__(self, program: Program, message: Descriptor) -> None:
        self._program, self._message = program, message
        self._enums: dict[str, int] = {}

    def level(self, message: Descriptor, paths: Sequence[_Path], depth: int) -> tuple[int, list[int]]:
        """Write a message's level; return its number, and the slots that are read in it and below."""
        program = self._program
        level, number = Level(), len(program.levels)
        program.levels.append(level)
        program.depth = max(program.depth, depth)
        slots: list[int] = []
        by_field: dict[str | int, list[_Path]] = {}
        for slot, request, steps in paths:
            by_field.setdefault(steps[0], []).append((slot, request, steps[1:]))
        for name, of_field in by_field.items():
            member = message.fields_by_name.get(name)
            if member is None:
                self._missing(message, name, of_field)
                continue
            below = self._field(level, member, of_field, depth)
            slots += below
            if member.containing_oneof is not None:
                self._clear_others(level, member, below)
        return number, slots

    def _field(self, level: Level, member: FieldDescriptor, paths: Sequence[_Path], depth: int) -> list[int]:
        """Write the requests for one field; return the slots that it is read into."""
        paths = [one for one in paths if not self._parts(member, *one)]
        if member.is_repeated or member.type == FieldDescriptor.TYPE_GROUP:
            return self._refuse(paths, _text_of(member))
        message = member.message_type
        if message is None:
            leaves = [path for path in paths if not path[2]]
            self._refuse([path for path in paths if path[2]], _text_of(member))
            return [slot for slot, request, _ in leaves if self._leaf(level, member, slot, request)]
        if message.full_name in WRAPPERS:
            paths = [(slot, request, steps or ("value",)) for slot, request, steps in paths]
        whole = [path for path in paths if not path[2]]
        times = [path for path in whole if message.full_name == _TIMESTAMP and _is_time(path[1])]
        self._refuse([path for path in whole if path not in times], _text_of(member))
        inner = [path for path in paths if path[2]]
        if not times and not inner:
            return []
        number, slots = self.level(message, inner, depth + 1)
        level.entries.append((member.number, Wire.BYTES, Op.MESSAGE, -1, number, 0))
        for slot, _, _ in times:
            self._time(self._program.levels[number], slot)
        return [*slots, *(slot for slot, _, _ in times)]

    def _missing(self, message: Descriptor, name: str | int, paths: Sequence[_Path]) -> None:
        """Note in `nearest_paths` the field that a path most likely means."""
        near = nearest(name, message.fields_by_name) if isinstance(name, str) else None
        if near is not None:
            for slot, request, rest in paths:
                before = request.path[: len(request.path) - len(rest) - 1]
                self._program.nearest_paths[slot] = (*before, near, *rest)

    def _parts(self, descriptor: FieldDescriptor, slot: int, request: Request, rest: Sequence[str | int]) -> bool:
        """Whether a request is for JSON text. If so, add its layout: the loop has no entry for it."""
        is_text, steps = text_steps(descriptor, request, rest)
        if is_text:
            parents = [str(step) for step in request.path[: len(request.path) - len(rest) - 1]]
            writer = ProtoTexts(self._message, parents, descriptor)
            self._program.layouts[slot] = Layout(Stored.PARTS, writer=writer, steps=steps)
        return is_text

    def _time(self, level: Level, slot: int) -> None:
        """Read seconds and nanoseconds into one slot."""
        level.entries.append((1, Wire.VARINT, Op.SECONDS, slot, 0, 0))
        level.entries.append((2, Wire.VARINT, Op.NANOS, slot, 0, 0))
        level.starts.append(Start(slot))
        self._program.layouts[slot] = Layout(Stored.SECONDS)

    def _leaf(self, level: Level, member: FieldDescriptor, slot: int, request: Request) -> bool:
        """Write the entry of a field without parts; return whether it can be read as the requested type."""
        target = request.type
        reading = self._reading(member, target)
        if reading is None:
            self._refuse([(slot, request, ())], _text_of(member))
            return False
        wire, op, argument, count, stored = reading
        level.entries.append((member.number, wire, op, slot, argument, count))
        self._program.layouts[slot] = Layout(stored, to_ms=TO_MS[target] if isinstance(target, Unit) else (1, 1))
        # A default that needs 64 unsigned bits is null, as such a value is.
        if (not member.has_presence or member.has_default_value) and not _is_wide(member, stored):
            level.starts.append(_start(member, slot, stored))
        return True

    def _reading(
        self, member: FieldDescriptor, target: FieldType | DecimalType | Unit
    ) -> tuple[int, int, int, int, Stored] | None:
        """Return wire type, op, argument, count and what is stored, None if the field cannot be read as `target`."""
        kind = member.type
        as_double = target is FieldType.DOUBLE
        is_number = as_double or target is FieldType.BIGINT or (isinstance(target, Unit) and target is not Unit.ISO)
        if kind in _NUMBERS and is_number:
            return *_NUMBERS[kind], int(as_double), 0, Stored.DOUBLE if as_double else Stored.NUMBER
        if kind in _FRACTIONS and is_number and target is not FieldType.BIGINT:
            return *_FRACTIONS[kind], 0, 0, Stored.DOUBLE
        if kind == FieldDescriptor.TYPE_BOOL and target is FieldType.BOOLEAN:
            return Wire.VARINT, Op.FLAG, 0, 0, Stored.NUMBER
        is_time = isinstance(target, Unit) and kind == FieldDescriptor.TYPE_STRING
        if kind in _TEXTS and (target in {FieldType.STRING, FieldType.BINARY} or is_time):
            return Wire.BYTES, Op.SPAN, 0, 0, Stored.SPAN
        if kind == FieldDescriptor.TYPE_ENUM and target is FieldType.STRING:
            op = Op.CLOSED_SYMBOL if member.enum_type.is_closed else Op.SYMBOL
            return Wire.VARINT, op, self._enum(member.enum_type), len(member.enum_type.values), Stored.SPAN
        return None

    def _enum(self, enum: EnumDescriptor) -> int:
        """Return the place of an enum's first name in `symbols`. Of names with one number the first counts."""
        if enum.full_name not in self._enums:
            self._enums[enum.full_name] = len(self._program.symbols)
            self._program.symbols += [(value.number, value.name.encode()) for value in enum.values]
        return self._enums[enum.full_name]

    def _clear_others(self, level: Level, member: FieldDescriptor, slots: Sequence[int]) -> None:
        """Let the other members of a oneof clear the slots of this member."""
        for other in member.containing_oneof.fields:
            if other.number == member.number:
                continue
            enum = other.enum_type
            is_closed = enum is not None and enum.is_closed
            place, count = (self._enum(enum), len(enum.values)) if is_closed else (0, 0)
            level.entries += [(other.number, _wire_of(other), Op.CLEAR, slot, place, count) for slot in slots]

    def _refuse(self, paths: Sequence[_Path], kind: str) -> list[int]:
        self._program.unreadable |= {slot: kind for slot, _, _ in paths}
        return []


def _wire_of(member: FieldDescriptor) -> int:
    if member.type == FieldDescriptor.TYPE_GROUP:
        return Wire.GROUP
    if member.type in _NUMBERS:
        return _NUMBERS[member.type][0]
    if member.type in _FRACTIONS:
        return _FRACTIONS[member.type][0]
    is_short = member.type in {FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM}
    return Wire.VARINT if is_short else Wire.BYTES


def _start(member: FieldDescriptor, slot: int, stored: Stored) -> Start:
    """The start value of a field: its default, else empty, 0 or the first symbol."""
    default = member.default_value
    if member.type == FieldDescriptor.TYPE_ENUM:
        return Start(slot, word=member.enum_type.values_by_number[default].name.encode())
    if stored is Stored.SPAN:
        return Start(slot, word=default if isinstance(default, bytes) else default.encode())
    if stored is Stored.DOUBLE:
        return Start(slot, struct.unpack("<q", struct.pack("<d", default))[0])
    return Start(slot, int(default))


def _is_wide(member: FieldDescriptor, stored: Stored) -> bool:
    return stored is Stored.NUMBER and member.default_value > _MOST


def _is_time(request: Request) -> bool:
    return request.type is FieldType.TIMESTAMP or isinstance(request.type, Unit)


def _text_of(member: FieldDescriptor) -> str:
    """The type of a field in messages."""
    kinds = {number: name.removeprefix("TYPE_").lower() for name, number in vars(FieldDescriptor).items()
             if name.startswith("TYPE_")}  # fmt: skip
    kind = member.message_type or member.enum_type
    name = kind.full_name if kind is not None else kinds[member.type]
    return f"repeated {name}" if member.is_repeated else name
