"""Column types with the values that make trouble, how they become Arrow arrays, and what counts as equal.

Rule: NaN is one value, -0.0 is 0.0, bytes that are no UTF-8 are U+FFFD; times and dates are whole numbers here.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NAN = "NaN"


def nan_of(bits: int) -> float:
    """A NaN with these bits: the JVM of x86 makes others than Python."""
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


NANS = tuple(map(nan_of, (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0xFFFFFFFFFFFFFFFF)))
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.1, 1.5, -2.5, 3.0, 1e5, *NANS, float("inf"), float("-inf"), 5e-324, -5e-324,
    2.2250738585072014e-308, 1.7976931348623157e308, -1e300, 1e16, 9007199254740993.0,
)  # fmt: skip
MILD = (0.0, -0.0, 1.0, -1.0, 0.1, 0.25, -0.3, 1e5, -1e5, 3.5, 1e-9, 7.0)
SINGLES = (0.0, -0.0, 1.0, -1.5, 0.25, *NANS, float("inf"), float("-inf"), 2.0**-149, 2.0**127, -(2.0**100), 16777217.0)
TEXTS = tuple(
    one.encode() if isinstance(one, str) else one
    for one in (
        "", " ", "a", "A", "b", "ab", "é", "e\u0301", "ß", "\u0000", "a\u0000b", "\ufeff", "\uffff", "\ufffd",
        "\U0001f600", "\U0010ffff", "İ", "null", "NaN", "a'b", 'a"b', "a\\b", "a\nb", "x" * 40,
        b"\xff", b"\xfe", b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80z",
    )
)  # fmt: skip
BINARIES = (b"", b"\x00", b"\xff", b"\xff\xfe", b"a", b"A", b"a\x00", b"x" * 200, b"NaN")
_DAY_US = 86_400_000_000
STAMPS = (0, 1, -1, 1_000, -1_000_000, _DAY_US, -_DAY_US, 1_760_000_000_123_456, -62_135_596_800_000_000,
          253_402_300_799_999_999, 2**63 - 1, -(2**63) + 1)  # fmt: skip
DATES = (0, 1, -1, 20_000, -719_162, 2_932_896, 106_751_991)


@dataclass(frozen=True)
class Kind:
    """A type: `values` as they are put into Arrow; traits: what can be done with it (`number`, `sum`, `nested`)."""

    name: str
    type: pa.DataType
    values: tuple
    traits: frozenset = frozenset()

    def is_(self, trait: str) -> bool:
        return trait in self.traits


def _kind(name: str, type_: pa.DataType, values: Sequence, traits: str = "") -> Kind:
    return Kind(name, type_, tuple(values), frozenset(traits.split()))


def _whole(bits: int) -> tuple[int, ...]:
    most = 2 ** (bits - 1)
    return (0, 1, -1, 2, 3, 7, 42, most - 1, -most, most - 2)


def _decimals(digits: int, scale: int) -> tuple[Decimal, ...]:
    of = lambda sign, number: Decimal((sign, tuple(map(int, str(number))), -scale))  # noqa: E731
    most = 10**digits - 1
    return (of(0, 0), of(0, 1), of(1, 1), of(0, 25), of(0, most), of(1, most))


_STRUCT = pa.struct([("a", pa.float64()), ("b", pa.string())])
_STRUCTS = ({"a": 1.0, "b": "x"}, {"a": None, "b": None}, {"a": NANS[1], "b": ""}, {"a": -0.0, "b": "é"})
KINDS = (
    _kind("int8", pa.int8(), _whole(8), "number sum"),
    _kind("int16", pa.int16(), _whole(16), "number sum"),
    _kind("int32", pa.int32(), _whole(32), "number sum"),
    _kind("int64", pa.int64(), _whole(64), "number"),
    _kind("small int64", pa.int64(), (*range(-5, 9), 2**53 + 1, -(2**53) - 1), "number sum"),
    _kind("float32", pa.float32(), SINGLES, "number sum float"),
    _kind("float64", pa.float64(), FLOATS, "number sum float"),
    _kind("mild float64", pa.float64(), MILD, "number sum float"),
    _kind("far float64", pa.float64(), (), "number sum float"),
    _kind("decimal(5,2)", pa.decimal128(5, 2), _decimals(5, 2), "number sum"),
    _kind("decimal(18,4)", pa.decimal128(18, 4), _decimals(18, 4), "number sum"),
    _kind("decimal(38,10)", pa.decimal128(38, 10), _decimals(38, 10), "number"),
    _kind("text", pa.string(), TEXTS),
    _kind("plain text", pa.string(), (b"a", b"b", b"c", b"")),
    _kind("binary", pa.binary(), BINARIES),
    _kind("boolean", pa.bool_(), (True, False)),
    _kind("date", pa.date32(), DATES),
    _kind("timestamp", pa.timestamp("us", tz="UTC"), STAMPS),
    _kind("timestamp_ntz", pa.timestamp("us"), STAMPS),
    _kind("duration", pa.duration("us"), STAMPS),
    _kind("struct", _STRUCT, _STRUCTS, "nested"),
    _kind("list", pa.list_(pa.float64()), ([], [1.0, None], [NANS[2], -0.0], [float("inf")] * 3), "nested"),
    _kind("map", pa.map_(pa.string(), pa.float64()), ([], [("a", None)], [("", -0.0), ("é", NANS[3])]), "nested"),
    _kind("list of structs", pa.list_(_STRUCT), ([], list(_STRUCTS), [None]), "nested"),
)
BY_NAME = {kind.name: kind for kind in KINDS}
KEYS = tuple(kind for kind in KINDS if not kind.is_("nested") and kind.values)


def drawn(rng: random.Random, kind: Kind, count: int) -> list:
    """So many values that a column draws from."""
    if kind.values:
        return rng.sample(kind.values, min(count, len(kind.values)))
    far, spread = rng.choice([1e3, 1e8, 1e9, -1e8]), rng.choice([1e-3, 1e-2, 1.0])
    return [far + rng.gauss(0, spread) for _ in range(4 * count)]


def array(kind: pa.DataType, values: Sequence) -> pa.Array:
    """An Arrow array of raw values, also of text that is no UTF-8 and of NaNs of other bits."""
    types = pa.types
    if types.is_string(kind):
        return pa.array(values, pa.binary()).view(kind)
    if types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if types.is_floating(kind):
        numbers = np.array([0.0 if one is None else one for one in values], kind.to_pandas_dtype())
        return pa.array(numbers, kind, mask=np.array([one is None for one in values], bool))
    return pa.array(values, kind)


def canon(value: Any, kind: pa.DataType | None = None) -> Any:
    """The value that stands for all that are equal to it; it can be hashed."""
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124  NaN
            return NAN
        if kind is not None and pa.types.is_float32(kind):
            value = float(np.float32(value))
        return value + 0.0
    if isinstance(value, bytes) and kind is not None and pa.types.is_string(kind):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return tuple(canon(one) for one in value.values())
    if isinstance(value, list | tuple):
        return tuple(canon(one) for one in value)
    return value


def canons(values: pa.Array | pa.ChunkedArray) -> list:
    """The canonical values of an Arrow array."""
    array_ = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    kind, types = array_.type, pa.types
    if types.is_dictionary(kind):
        return canons(array_.dictionary_decode())
    if types.is_string(kind):
        return [None if one is None else canon(one, kind) for one in array_.view(pa.binary()).to_pylist()]
    if types.is_temporal(kind):
        return array_.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    there = array_.is_valid().to_pylist()
    if types.is_struct(kind):
        inner = [canons(one) for one in array_.flatten()]
        return [tuple(column[at] for column in inner) if ok else None for at, ok in enumerate(there)]
    if types.is_list(kind) or types.is_map(kind):
        items = []
        for at, ok in enumerate(there):
            inner = array_.slice(at, 1)
            items.append(tuple(_items(inner)) if ok else None)
        return items
    return [canon(one, kind) for one in array_.to_pylist()]


def _items(one: pa.Array) -> list:
    first, behind = (one.offsets[at].as_py() for at in (0, 1))
    if pa.types.is_map(one.type):
        keys, items = (side.slice(first, behind - first) for side in (one.keys, one.items))
        return list(zip(canons(keys), canons(items), strict=True))
    return canons(one.values.slice(first, behind - first))


def rows_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows with canonical values."""
    columns = [canons(column) for column in table.columns]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
