"""The types of columns, as messages name them.

Rule: names are Spark's.
"""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.bool_(): "boolean", pa.string(): "string", pa.large_string(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.date32(): "date", pa.null(): "void",
}  # fmt: skip


def called(kind: pa.DataType) -> str:
    """Return the name of a type in Spark."""
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{called(kind.key_type)},{called(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{called(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{one.name}:{called(one.type)}' for one in kind)}>"
    return _NAMES.get(kind, str(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
