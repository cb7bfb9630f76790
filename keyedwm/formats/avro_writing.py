"""Writing Avro out of Arrow columns: an encoder is compiled from a schema and the columns' types.

Rule: promotions without loss are written: int as long, int and float as double, a decimal as one with more digits. A
time is rounded down to the schema's unit. No other type is converted. A field without a column gets its default. A
column that does not fit is an error with the field and both types.
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

_ONE_BYTE = 64  # numbers less than 64 have one byte as a varint
# Unit → (factor, divisor) from microseconds.
_FROM_MICROS = {
    Logical.TIMESTAMP_MILLIS: (1, 1_000), Logical.TIMESTAMP_MICROS: (1, 1), Logical.TIMESTAMP_NANOS: (1_000, 1),
    Logical.LOCAL_TIMESTAMP_MILLIS: (1, 1_000), Logical.LOCAL_TIMESTAMP_MICROS: (1, 1),
    Logical.LOCAL_TIMESTAMP_NANOS: (1_000, 1),
}  # fmt: skip
_LOCAL = {Logical.LOCAL_TIMESTAMP_MILLIS, Logical.LOCAL_TIMESTAMP_MICROS, Logical.LOCAL_TIMESTAMP_NANOS}
_MOST_DIGITS = 38  # of Spark's decimals, and of Arrow's decimal128


def avro_encoder(schema: AvroType, arrow_type: pa.DataType, called_as: str) -> Encoder:
    """Compile the encoder of a column, or of a struct of columns. called_as: the schema's name in messages.

    A null of the column itself is not written: the caller marks its row as not live. Raises InputError for a type that
    does not fit its field.
    """
    return _Compiler(called_as).encoder(schema, arrow_type, ())


class _Compiler:
    def __init__(self, called_as: str) -> None:
        self._called_as = called_as

    def encoder(self, schema: AvroType, arrow_type: pa.DataType, path: tuple[str, ...]) -> Encoder:
        """Return the encoder of values without nulls."""
        if isinstance(schema, Union):
            return self._branch_alone(schema, arrow_type, path)
        encoder = self._of(schema, arrow_type, path)
        if encoder is None:
            raise self._mismatch(schema, arrow_type, path)
        return encoder

    def field(self, schema: AvroType, arrow_type: pa.DataType, path: tuple[str, ...]) -> Encoder:
        """Return the encoder of values that may be null if the schema allows it."""
        if isinstance(schema, Union):
            nulls = [place for place, one in enumerate(schema.branches) if _is_null(one)]
            if pa.types.is_null(arrow_type) and nulls:
                return Literal(varint(nulls[0]))
            place, encoder = self._branch(schema, arrow_type, path)
            coded = varint(place)
            if nulls and len(schema.branches) <= _ONE_BYTE:
                return _Nullable(encoder, varint(nulls[0])[0], coded[0])
            return Required(_Branch(encoder, coded))
        if _is_null(schema) and pa.types.is_null(arrow_type):
            return Literal(b"")
        return Required(self.encoder(schema, arrow_type, path))

    def _branch_alone(self, schema: Union, arrow_type: pa.DataType, path: tuple[str, ...]) -> Encoder:
        place, encoder = self._branch(schema, arrow_type, path)
        return _Branch(encoder, varint(place))

    def _branch(self, schema: Union, arrow_type: pa.DataType, path: tuple[str, ...]) -> tuple[int, Encoder]:
        """Return the number and encoder of the first branch that fits; a better type of numbers goes first."""
        some = [(place, one) for place, one in enumerate(schema.branches) if not _is_null(one)]
        if len(some) == 1:
            return some[0][0], self.encoder(some[0][1], arrow_type, path)
        for place, one in sorted(some, key=lambda each: not _is_exact(each[1], arrow_type)):
            encoder = self._of_branch(one, arrow_type, path)
            if encoder is not None:
                return place, encoder
        raise self._mismatch(schema, arrow_type, path)

    def _of_branch(self, schema: AvroType, arrow_type: pa.DataType, path: tuple[str, ...]) -> Encoder | None:
        try:
            return self._of(schema, arrow_type, path)
        except InputError:  # a field within this branch does not fit; another branch may
            return None

    def _of(self, schema: AvroType, arrow_type: pa.DataType, path: tuple[str, ...]) -> Encoder | None:
        if isinstance(schema, Record):
            return self._record(schema, arrow_type, path) if pa.types.is_struct(arrow_type) else None
        if isinstance(schema, Repeated):
            return self._repeated(schema, arrow_type, path)
        return _leaf(schema, arrow_type) if isinstance(schema, Leaf) else None

    def _record(self, record: Record, arrow_type: pa.DataType, path: tuple[str, ...]) -> Encoder:
        places = {arrow_type.field(place).name: place for place in range(arrow_type.num_fields)}
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
                fields.append((field.name, place, self.field(field.type, arrow_type.field(place).type, inner)))
            elif field.has_default:
                fields.append((field.name, None, Literal(self._default(field.type, field.default, inner))))
            else:
                raise InputError(
                    f"{self._called_as} has the field {'.'.join(inner)} of type {field.type.text} without a default, "
                    f"and the rows have no such column: add the column, or give the field a default"
                )
        return Fields(tuple(fields))

    def _repeated(self, schema: Repeated, arrow_type: pa.DataType, path: tuple[str, ...]) -> Encoder | None:
        if schema.is_map:
            if not pa.types.is_map(arrow_type) or not is_text(arrow_type.key_type):
                return None
            item = self.field(schema.items, arrow_type.item_type, (*path, "[]"))
            return _Blocks(Fields((("key", 0, Required(Spans())), ("value", 1, item))))
        if not pa.types.is_list(arrow_type) and not pa.types.is_large_list(arrow_type):
            return None
        return _Blocks(self.field(schema.items, arrow_type.value_type, (*path, "[]")))

    def _default(self, schema: AvroType, value: Any, path: tuple[str, ...]) -> bytes:
        try:
            return encoded_default(schema, value)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, struct.error):
            raise InputError(
                f"{self._called_as} has the field {'.'.join(path)} of type {schema.text} with the default "
                f"{short_repr(json.dumps(value))}, which is no value of it"
            ) from None

    def _mismatch(self, schema: AvroType, arrow_type: pa.DataType, path: tuple[str, ...]) -> InputError:
        where = _where(path) if path else "the column"
        fit = _spark_type(schema)
        return InputError(
            f"{where} has type {called(arrow_type)}, and {self._called_as} has the type {schema.text} there: "
            + (f"cast it to {fit}" if fit else "change the schema, or the column")
        )


def _where(path: tuple[str, ...]) -> str:
    return f"column {'.'.join(path).replace('.[]', '[]')}"


def _is_null(schema: AvroType) -> bool:
    return isinstance(schema, Leaf) and schema.kind is Kind.NULL


def _is_exact(schema: AvroType, arrow_type: pa.DataType) -> bool:
    """Return False if another type of numbers fits the column better, else True."""
    if not isinstance(schema, Leaf):
        return True
    exact: Mapping[Kind, bool] = {
        Kind.INT: pa.types.is_integer(arrow_type) and arrow_type.bit_width <= 32,
        Kind.LONG: not pa.types.is_int32(arrow_type),
        Kind.FLOAT: pa.types.is_float32(arrow_type), Kind.DOUBLE: pa.types.is_float64(arrow_type),
    }  # fmt: skip
    return exact.get(schema.kind, True)


def _leaf(leaf: Leaf, arrow_type: pa.DataType) -> Encoder | None:  # noqa: PLR0911
    if leaf.logical is Logical.DECIMAL:
        return _decimal(leaf, arrow_type)
    if leaf.logical in _FROM_MICROS:
        if not pa.types.is_timestamp(arrow_type) or (arrow_type.tz is None) is not (leaf.logical in _LOCAL):
            return None
        factor, divisor = _FROM_MICROS[leaf.logical]
        return Numbers(times=factor, per=divisor, called=leaf.logical.value)
    if leaf.logical is Logical.DATE:
        return Numbers() if pa.types.is_date32(arrow_type) else None
    if leaf.kind is Kind.BOOLEAN:
        return Booleans() if pa.types.is_boolean(arrow_type) else None
    if leaf.kind in (Kind.INT, Kind.LONG):
        most = 32 if leaf.kind is Kind.INT else 64
        return Numbers() if pa.types.is_signed_integer(arrow_type) and arrow_type.bit_width <= most else None
    if leaf.kind in (Kind.FLOAT, Kind.DOUBLE):
        return _float(leaf.kind, arrow_type)
    if leaf.kind is Kind.ENUM:
        return _Symbols(leaf.symbols) if is_text(arrow_type) else None
    if leaf.kind is Kind.STRING:
        return Spans() if is_text(arrow_type) else None
    if not pa.types.is_binary(arrow_type) and not pa.types.is_large_binary(arrow_type):
        return None
    return Spans() if leaf.kind is Kind.BYTES else _Fixed(leaf.size) if leaf.kind is Kind.FIXED else None


def _float(target: Kind, arrow_type: pa.DataType) -> Encoder | None:
    if target is Kind.FLOAT:
        return FixedNumbers(pa.float32()) if pa.types.is_float32(arrow_type) else None
    is_exact = pa.types.is_signed_integer(arrow_type) and arrow_type.bit_width <= 32
    return FixedNumbers(pa.float64()) if pa.types.is_floating(arrow_type) or is_exact else None


def _decimal(leaf: Leaf, arrow_type: pa.DataType) -> Encoder | None:
    if not pa.types.is_decimal128(arrow_type) or leaf.precision > _MOST_DIGITS:
        return None
    if leaf.scale < arrow_type.scale or leaf.precision - leaf.scale < arrow_type.precision - arrow_type.scale:
        return None
    if leaf.kind is Kind.FIXED and 10**leaf.precision >= 2 ** (8 * leaf.size - 1):
        return None
    return _Decimals(pa.decimal128(leaf.precision, leaf.scale), leaf.size if leaf.kind is Kind.FIXED else None)


def _spark_type(schema: AvroType) -> str | None:
    """Return the type of Spark that fits best; None if a union has several types, or no type fits."""
    if isinstance(schema, Union):
        some = [one for one in schema.branches if not _is_null(one)]
        return _spark_type(some[0]) if len(some) == 1 else None
    if not isinstance(schema, Leaf):
        return None
    if schema.logical is Logical.DECIMAL:
        precision, scale = schema.precision, schema.scale
        fits = precision <= _MOST_DIGITS and _decimal(schema, pa.decimal128(precision, scale)) is not None
        return f"decimal({precision},{scale})" if fits else None
    if schema.logical in _FROM_MICROS:
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
        """Return the number of items and the items, if there are any, then a zero."""
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
    """Decimals of a type, each in its fewest bytes, or in `size` bytes if that is fixed."""

    def __init__(self, arrow_type: pa.DataType, size: int | None) -> None:
        self._arrow_type, self._size = arrow_type, size

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return signed big-endian numbers."""
        halves: NDArray[np.uint64] = decimal_words(values.cast(self._arrow_type))
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
