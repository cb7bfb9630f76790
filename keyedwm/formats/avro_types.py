"""The types of an Avro schema, as a tree of values.

Rule: a logical type that the specification ignores (a decimal without a precision, a date that is a string) is None.
A record may contain itself, so records are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias


class Kind(Enum):
    """The types of Avro that contain no other type."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    ENUM = "enum"
    FIXED = "fixed"


class Logical(Enum):
    """The logical types that change how a value is read."""

    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    TIMESTAMP_NANOS = "timestamp-nanos"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    LOCAL_TIMESTAMP_NANOS = "local-timestamp-nanos"
    DECIMAL = "decimal"
    UUID = "uuid"
    DURATION = "duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A type that contains no other.

    name, aliases: the full names of an enum or a fixed. size: the bytes of a fixed. symbols: an enum's; default: the
    symbol that replaces unknown symbols. precision, scale: a decimal's.
    """

    kind: Kind
    logical: Logical | None = None
    name: str = ""
    size: int = 0
    aliases: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    precision: int = 0
    scale: int = 0

    @property
    def text(self) -> str:
        """The type's name in messages."""
        if self.logical is Logical.DECIMAL:
            return f"decimal({self.precision}, {self.scale})"
        return self.kind.value if self.logical is None else f"{self.kind.value} ({self.logical.value})"


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record. default: its JSON in the schema, if `has_default`. aliases: the field's other names."""

    name: str
    type: AvroType
    default: Any = None
    has_default: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Record:
    """A record. aliases: full names. fields: set after the record has a name, since they may refer to the record.

    has_no_bytes: whether values never have a byte; false for a record that contains itself.
    """

    name: str
    aliases: tuple[str, ...] = ()
    fields: tuple[RecordField, ...] = field(default=(), repr=False)
    has_no_bytes: bool = False

    def define(self, fields: tuple[RecordField, ...]) -> None:
        """Add the fields, whose types are known by now, but for records around this one."""
        self.fields = fields
        self.has_no_bytes = all(has_no_bytes(one.type) for one in fields)

    @property
    def text(self) -> str:
        """The type's name in messages."""
        return f"record {self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """An array, or a map, whose keys are strings."""

    items: AvroType
    is_map: bool

    @property
    def text(self) -> str:
        """The type's name in messages."""
        return "map" if self.is_map else "array"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """One of several types, by the branch's number."""

    branches: tuple[AvroType, ...]

    @property
    def text(self) -> str:
        """The type's name in messages."""
        return " or ".join(branch.text for branch in self.branches)


AvroType: TypeAlias = Leaf | Record | Repeated | Union


def has_no_bytes(schema: AvroType) -> bool:
    """Whether a value of a type is always empty."""
    if isinstance(schema, Record):
        return schema.has_no_bytes
    return isinstance(schema, Leaf) and (schema.kind is Kind.NULL or (schema.kind is Kind.FIXED and schema.size == 0))
