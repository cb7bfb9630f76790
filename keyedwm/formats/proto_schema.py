"""Protobuf schemas of a registry, linked by Google's runtime: the source of a .proto file, or a descriptor in base64.

Rule: each schema is linked in a pool of its own, so files of two schemas may have the same names. An import that is
neither a reference nor Google's own is an error only if one of its types is used.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from importlib import import_module

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from keyedwm.core.errors import InputError
from keyedwm.core.schemas import RegisteredSchema
from keyedwm.core.text import words_of
from keyedwm.formats.proto_text import parse_proto

_OWN_NAME = "schema.proto"
_GOOGLES = ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")


def link(registered: RegisteredSchema) -> FileDescriptor:
    """Link a schema with all that it refers to; raises InputError for a text that is no schema of Protobuf."""
    pool = DescriptorPool()
    known: set[str] = set()
    for file in _googles_own():
        pool.Add(file)
        known.add(file.name)
    try:
        for reference in registered.references:
            _add(pool, known, _file_of(reference.name, reference.text))
        own = _file_of(_OWN_NAME, registered.text)
        own.name = _OWN_NAME
        _add(pool, known, own)
        return pool.FindFileByName(_OWN_NAME)
    # A type that is not there, a number twice, a number or an escaped character that is too large.
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise InputError(f"the schema of Protobuf cannot be linked: {words_of(error)}") from error


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor | None:
    """Return the message that a head's indexes lead to, first in the file, then in a message; None if there is none."""
    messages = [*file.message_types_by_name.values()]
    message = None
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        message = messages[index]
        messages = [*message.nested_types]
    return message


def _file_of(name: str, text: str) -> FileDescriptorProto:
    """Read either form of a text."""
    try:
        packed = base64.b64decode(text, validate=True)
        file = FileDescriptorProto.FromString(packed)
    except (binascii.Error, ValueError, DecodeError):
        return parse_proto(name, text)
    file.name = name
    return file


def _add(pool: DescriptorPool, known: set[str], file: FileDescriptorProto) -> None:
    if file.name in known:
        return
    imports = [name for name in file.dependency if name in known]
    public = {file.dependency[number] for number in file.public_dependency}
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(imports)
    file.public_dependency.extend(number for number, name in enumerate(imports) if name in public)
    pool.Add(file)
    known.add(file.name)


def _googles_own() -> Iterator[FileDescriptorProto]:
    for name in _GOOGLES:
        file = FileDescriptorProto()
        import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.CopyToProto(file)
        yield file
