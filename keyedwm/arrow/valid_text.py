"""Texts in UTF-8. Spark's own can hold any bytes, since its cast of a binary column to a string checks nothing.

Rule: bytes that are no UTF-8 become U+FFFD, as Java shows them; what is valid stays as it is, uncopied.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def text_of(values: pa.Array) -> pa.Array:
    """Return bytes as texts."""
    kind = pa.large_string() if pa.types.is_large_binary(values.type) else pa.string()
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        coded = values.dictionary_encode()
        texts = [one.decode("utf-8", "replace") for one in coded.dictionary.to_pylist()]
        return pa.array(texts, kind).take(coded.indices)


def valid_texts(rows: pa.Table) -> pa.Table:
    """Return the rows with valid texts in every column, also within structs, lists and maps."""
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if not _is_valid(column):
            rows = rows.set_column(place, field, pa.chunked_array(map(valid_text, column.chunks), field.type))
    return rows


def valid_text(values: pa.Array) -> pa.Array:
    """Return values whose texts are all valid."""
    if _is_valid(values):
        return values
    kind = values.type
    if pa.types.is_dictionary(kind):
        return valid_text(values.dictionary_decode()).dictionary_encode().cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text_of(values.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary()))
    missing = values.is_null()
    if pa.types.is_struct(kind):
        children = [valid_text(values.field(place)) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        values = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    borders, flat = pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), valid_text(pc.list_flatten(values))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(borders, flat.field(0), flat.field(1), type=kind, mask=missing)
    return pa.ListArray.from_arrays(borders, flat, type=kind, mask=missing)


def _is_valid(values: pa.Array | pa.ChunkedArray) -> bool:
    if not _has_text(values.type):
        return True
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(place).type) for place in range(kind.num_fields))
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
