"""Writing Avro out of Arrow columns: an encoder is compiled from a schema and the columns' types.

Rule: promotions without loss are written: int as long, int and float as double, a decimal as one with more digits. A
time is rounded down to the schema's unit. No other type is converted. A field without a column is its default. A column
that does not fit is an error with the field and both types.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.core.errors import InputError
from keyedwm.core.text import nearest, short_repr
from keyedwm.formats import writing_kernels as kernels
from keyedwm.formats.avro_types import AvroType, Kind, Leaf, Logical, Record, Repeated, Union
from keyedwm.formats.writing import (
    Booleans,
    Encoder,
    Fields,
    FixedNumbers,
    Items,
    Literal,
    Live,
    Numbers,
    Octets,
    Part,
    Places,
    Required,
    Spans,
    ValueFaultError,
    decimal_words,
    is_valid,
    joined,
    with_length,
)
from keyedwm.formats.writing_types import called, is_text

_ONE_BYTE = 64  # the numbers below have one byte as a varint
# The factor or the divisor from microseconds to the unit; the other is 1.
_OF_US = {
    Logical.TIMESTAMP_MILLIS: (1, 1_000), Logical.TIMESTAMP_MICROS: (1, 1), Logical.TIMESTAMP_NANOS: (1_000, 1),
    Logical.LOCAL_TIMESTAMP_MILLIS: (1, 1_000), Logical.LOCAL_TIMESTAMP_MICROS: (1, 1),
    Logical.LOCAL_TIMESTAMP_NANOS: (1_000, 1),
}  # fmt: skip
_LOCAL = {Logical.LOCAL_TIMESTAMP_MILLIS, Logical.LOCAL_TIMESTAMP_MICROS, Logical.LOCAL_TIMESTAMP_NANOS}
_MOST_DIGITS = 38  # of the decimals that Spark and Arrow have


def avro_encoder(schema: AvroType, kind: pa.DataType, called_as: str) -> Encoder:
    """Compile the encoder of a column, or of a struct of columns. called_as: the schema's name in messages.

    A null value is not written: the caller has no live row for it. Raises InputError for a type that does not fit its
    field.
    """
    return _Compiler(called_as).encoder(schema, kind, ())


class _Compiler:
    def __init__(self, called_as: str) -> None:
        self._called_as = called_as

    def encoder(self, schema: AvroType, kind: pa.DataType, path: tuple[str, ...]) -> Encoder:
        """Return the encoder of values without nulls."""
        if isinstance(schema, Union):
            return self._branch_alone(schema, kind, path)
        encoder = self._of(schema, kind, path)
        if encoder is None:
            raise self._mismatch(schema, kind, path)
        return encoder

    def field(self, schema: AvroType, kind: pa.DataType, path: tuple[str, ...]) -> Encoder:
        """Return the encoder of values that may be null if the schema allows it."""
        if isinstance(schema, Union):
            nulls = [place for place, one in enumerate(schema.branches) if _is_null(one)]
            if pa.types.is_null(kind) and nulls:
                return Literal(varint(nulls[0]))
            place, encoder = self._branch(schema, kind, path)
            coded = varint(place)
            if nulls and len(schema.branches) <= _ONE_BYTE:
                return _Nullable(encoder, varint(nulls[0])[0], coded[0])
            return Required(_Branch(encoder, coded))
        if _is_null(schema) and pa.types.is_null(kind):
            return Literal(b"")
        return Required(self.encoder(schema, kind, path))

    def _branch_alone(self, schema: Union, kind: pa.DataType, path: tuple[str, ...]) -> Encoder:
        place, encoder = self._branch(schema, kind, path)
        return _Branch(encoder, varint(place))

    def _branch(self, schema: Union, kind: pa.DataType, path: tuple[str, ...]) -> tuple[int, Encoder]:
        """Return the number and encoder of the first branch that fits exactly, else of the first with a promotion."""
        some = [(place, one) for place, one in enumerate(schema.branches) if not _is_null(one)]
        if len(some) == 1:
            return some[0][0], self.encoder(some[0][1], kind, path)
        for place, one in sorted(some, key=lambda each: not _is_exact(each[1], kind)):
            encoder = self._of_branch(one, kind, path)
            if encoder is not None:
                return place, encoder
        raise self._mismatch(schema, kind, path)

    def _of_branch(self, schema: AvroType, kind: pa.DataType, path: tuple[str, ...]) -> Encoder | None:
        try:
            return self._of(schema, kind, path)
        except InputError:  # a field within this branch does not fit; another branch may
            return None

    def _of(self, schema: AvroType, kind: pa.DataType, path: tuple[str, ...]) -> Encoder | None:
        if isinstance(schema, Record):
            return self._record(schema, kind, path) if pa.types.is_struct(kind) else None
        if isinstance(schema, Repeated):
            return self._repeated(schema, kind, path)
        return _leaf(schema, kind) if isinstance(schema, Leaf) else None

    def _record(self, record: Record, kind: pa.DataType, path: tuple[str, ...]) -> Encoder:
        places = {kind.field(place).name: place for place in range(kind.num_fields)}
        names = {field.name for field in record.fields}
        for name in places:
            if name not in names:
                near = nearest(name, names)
                raise InputError(
                    f"{_where((*path, name))} is no field of {record.text} in {self._called_as}"
                    + (f", did you mean {near}?" if near else ": drop the column, or add the field")
                )
        fields: list[tuple[str, int | None, Encoder]] = []
        for field in record.fields:
            place, inner = places.get(field.name), (*path, field.name)
            if place is not None:
                fields.append((field.name, place, self.field(field.type, kind.field(place).type, inner)))
            elif field.has_default:
                fields.append((field.name, None, Literal(self._default(field.type, field.default, inner))))
            else:
                raise InputError(
                    f"{self._called_as} has the field {'.'.join(inner)} of type {field.type.text} without a default, "
                    f"and the rows have no such column: add the column, or give the field a default"
                )
        return Fields(tuple(fields))

    def _repeated(self, schema: Repeated, kind: pa.DataType, path: tuple[str, ...]) -> Encoder | None:
        if schema.is_map:
            if not pa.types.is_map(kind) or not is_text(kind.key_type):
                return None
            item = self.field(schema.items, kind.item_type, (*path, "[]"))
            return _Blocks(Fields((("key", 0, Required(Spans())), ("value", 1, item))))
        if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
            return None
        return _Blocks(self.field(schema.items, kind.value_type, (*path, "[]")))

    def _default(self, schema: AvroType, value: Any, path: tuple[str, ...]) -> bytes:
        try:
            return encoded_default(schema, value)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error):
            raise InputError(
                f"{self._called_as} has the field {'.'.join(path)} of type {schema.text} with the default "
                f"{short_repr(json.dumps(value))}, which is no value of it"
            ) from None

    def _mismatch(self, schema: AvroType, kind: pa.DataType, path: tuple[str, ...]) -> InputError:
        where = _where(path) if path else "the column"
        fit = _column_of(schema)
        return InputError(
            f"{where} has type {called(kind)}, and {self._called_as} has the type {schema.text} there: "
            + (f"cast it to {fit}" if fit else "change the schema, or the column")
        )


def _where(path: tuple[str, ...]) -> str:
    return f"column {'.'.join(path).replace('.[]', '[]')}"


def _is_null(schema: AvroType) -> bool:
    return isinstance(schema, Leaf) and schema.kind is Kind.NULL


def _is_exact(schema: AvroType, kind: pa.DataType) -> bool:
    """Whether a column of this type is written without a promotion."""
    if not isinstance(schema, Leaf):
        return True
    exact: Mapping[Kind, bool] = {
        Kind.INT: pa.types.is_integer(kind) and kind.bit_width <= 32, Kind.LONG: not pa.types.is_int32(kind),
        Kind.FLOAT: pa.types.is_float32(kind), Kind.DOUBLE: pa.types.is_float64(kind),
    }  # fmt: skip
    return exact.get(schema.kind, True)


def _leaf(leaf: Leaf, kind: pa.DataType) -> Encoder | None:  # noqa: PLR0911
    if leaf.logical is Logical.DECIMAL:
        return _decimal(leaf, kind)
    if leaf.logical in _OF_US:
        if not pa.types.is_timestamp(kind) or (kind.tz is None) is not (leaf.logical in _LOCAL):
            return None
        times, per = _OF_US[leaf.logical]
        return Numbers(times=times, per=per, called=leaf.logical.value)
    if leaf.logical is Logical.DATE:
        return Numbers() if pa.types.is_date32(kind) else None
    if leaf.kind is Kind.BOOLEAN:
        return Booleans() if pa.types.is_boolean(kind) else None
    if leaf.kind in (Kind.INT, Kind.LONG):
        most = 32 if leaf.kind is Kind.INT else 64
        return Numbers() if pa.types.is_signed_integer(kind) and kind.bit_width <= most else None
    if leaf.kind in (Kind.FLOAT, Kind.DOUBLE):
        return _float(leaf.kind, kind)
    if leaf.kind is Kind.ENUM:
        return _Symbols(leaf.symbols) if is_text(kind) else None
    if leaf.kind is Kind.STRING:
        return Spans() if is_text(kind) else None
    if not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind):
        return None
    return Spans() if leaf.kind is Kind.BYTES else _Fixed(leaf.size) if leaf.kind is Kind.FIXED else None


def _float(number: Kind, kind: pa.DataType) -> Encoder | None:
    if number is Kind.FLOAT:
        return FixedNumbers(pa.float32()) if pa.types.is_float32(kind) else None
    is_exact = pa.types.is_signed_integer(kind) and kind.bit_width <= 32
    return FixedNumbers(pa.float64()) if pa.types.is_floating(kind) or is_exact else None


def _decimal(leaf: Leaf, kind: pa.DataType) -> Encoder | None:
    if not pa.types.is_decimal128(kind) or leaf.precision > _MOST_DIGITS:
        return None
    if leaf.scale < kind.scale or leaf.precision - leaf.scale < kind.precision - kind.scale:
        return None
    if leaf.kind is Kind.FIXED and 10**leaf.precision >= 2 ** (8 * leaf.size - 1):
        return None
    return _Decimals(pa.decimal128(leaf.precision, leaf.scale), leaf.size if leaf.kind is Kind.FIXED else None)


def _column_of(schema: AvroType) -> str | None:
    """Return Spark's type of a column that fits, None if there is more than one, or none."""
    if isinstance(schema, Union):
        some = [one for one in schema.branches if not _is_null(one)]
        return _column_of(some[0]) if len(some) == 1 else None
    if not isinstance(schema, Leaf):
        return None
    if schema.logical is Logical.DECIMAL:
        return f"decimal({schema.precision},{schema.scale})"
    if schema.logical in _OF_US:
        return "timestamp_ntz" if schema.logical in _LOCAL else "timestamp"
    if schema.logical is Logical.DATE:
        return "date"
    plain = {Kind.INT: "int", Kind.LONG: "bigint", Kind.BYTES: "binary", Kind.FIXED: "binary", Kind.ENUM: "string",
             Kind.NULL: None}  # fmt: skip
    return plain.get(schema.kind, schema.kind.value)


class _Branch(Encoder):
    """Values of one branch of a union. coded: the branch's number as a varint."""

    def __init__(self, of: Encoder, coded: bytes) -> None:
        self._of, self._coded = of, Literal(coded)

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the number of the branch, then the value."""
        return joined([self._coded.part(values, live), self._of.part(values, live)], len(live))


class _Nullable(Encoder):
    """Values of a union, or null. null, other: the branch numbers of null and of the values, one byte each."""

    def __init__(self, of: Encoder, null: int, other: int) -> None:
        self._of, self._null, self._other = of, null, other

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return each live row's branch number, then its value unless the value is null."""
        valid = live & is_valid(values) if values.null_count else live
        body = self._of.part(values, valid)

        def write(out: Octets, at: Places) -> None:
            kernels.write_either(valid, live, self._other, self._null, at, out)
            body.write(out, at + 1)

        return Part(body.sizes + live, write)


class _Blocks(Encoder):
    """An array, or a map: its items in one block, then the empty block."""

    def __init__(self, items: Encoder) -> None:
        self._items = items

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the number of items, the items, and a zero."""
        items = Items.of(values, live)
        counts = np.diff(items.ends)
        some = live & (counts > 0)
        count_sizes = np.zeros(len(live), np.int64)
        kernels.number_sizes(counts, some, True, count_sizes)  # noqa: FBT003 - numba takes no names
        count_part = Part(count_sizes, lambda out, at: kernels.write_numbers(counts, some, True, at, out))  # noqa: FBT003
        return joined([count_part, items.part(self._items), Literal(b"\0").part(values, live)], len(live))


class _Symbols(Encoder):
    """Symbols of an enum, written as their numbers."""

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self._symbols = symbols

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the number of each symbol; raises ValueFaultError for a text that is no symbol."""
        texts = values.cast(pa.string())
        places = pc.index_in(texts, pa.array(self._symbols, pa.string()))
        unknown = live & ~is_valid(places)
        if unknown.any():
            row = int(unknown.argmax())
            raise ValueFaultError(
                row, f"is {short_repr(texts[row].as_py())}, one of {', '.join(self._symbols)} is expected"
            )
        return Numbers().part(places, live)


class _Fixed(Encoder):
    """Bytes of a fixed size."""

    def __init__(self, size: int) -> None:
        self._size = size

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the bytes; raises ValueFaultError for those of another size."""
        body = Spans(is_zigzag=None).part(values, live)
        wrong = live & (body.sizes != self._size)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueFaultError(row, f"has {body.sizes[row]} bytes, {self._size} are expected")
        return body


class _Decimals(Encoder):
    """Decimals of a type: each in the bytes of its digits and a sign bit, or all in `size` bytes."""

    def __init__(self, kind: pa.DataType, size: int | None) -> None:
        self._kind, self._size = kind, size

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return signed big-endian numbers."""
        halves: NDArray[np.uint64] = decimal_words(values.cast(self._kind))
        sizes = live * np.int64(self._size or 0)
        if self._size is None:
            kernels.decimal_sizes(halves, live, sizes)
        body = Part(sizes, lambda out, at: kernels.write_decimals(halves, sizes, live, at, out))
        return body if self._size is not None else with_length(body, live, is_zigzag=True)


def varint(number: int) -> bytes:
    """Return a number as a zigzag varint, as Avro writes it."""
    rest, out = (number << 1) ^ (number >> 63), b""
    while rest > 127:
        out += bytes([rest & 127 | 128])
        rest >>= 7
    return out + bytes([rest])


def encoded_default(schema: AvroType, value: Any) -> bytes:  # noqa: PLR0911
    """Return the default of a field as bytes; raises ValueError or others if it is no value of the type."""
    if isinstance(schema, Union):
        return varint(0) + encoded_default(schema.branches[0], value)
    if isinstance(schema, Record):
        return b"".join(
            encoded_default(f.type, value[f.name] if f.name in value or not f.has_default else f.default)
            for f in schema.fields
        )
    if isinstance(schema, Repeated):
        some = value.items() if schema.is_map else [(None, one) for one in value]
        items = [(b"" if key is None else _text(key)) + encoded_default(schema.items, one) for key, one in some]
        return (varint(len(items)) if items else b"") + b"".join(items) + b"\0"
    if schema.kind is Kind.NULL and value is None:
        return b""
    if schema.kind is Kind.BOOLEAN and isinstance(value, bool):
        return bytes([value])
    if schema.kind in (Kind.INT, Kind.LONG) and type(value) is int:
        struct.pack("<i" if schema.kind is Kind.INT else "<q", value)  # raises if it does not fit
        return varint(value)
    if schema.kind in (Kind.FLOAT, Kind.DOUBLE) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return struct.pack("<f" if schema.kind is Kind.FLOAT else "<d", value)
    if schema.kind is Kind.STRING:
        return _text(value)
    if schema.kind is Kind.ENUM:
        return varint(schema.symbols.index(value))
    data = value.encode("latin-1")
    if schema.kind is Kind.FIXED and len(data) == schema.size:
        return data
    if schema.kind is Kind.BYTES:
        return varint(len(data)) + data
    raise ValueError(value)


def _text(value: str) -> bytes:
    data = value.encode()
    return varint(len(data)) + data
