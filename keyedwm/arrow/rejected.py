"""The column of rejected records or messages: which column is one, and one type for those that meet in a result.

Rule: it is a struct that says whence the record is, and why it came back. Any other column called `rejected` is the
user's own.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import InputError
from keyedwm.core.rows import REASON, REJECTED

_SAID = ("topic", "partition", "offset", REASON)


def is_rejected_type(kind: pa.DataType) -> bool:
    """Return whether a column `rejected` of this type holds records that came back."""
    return pa.types.is_struct(kind) and all(kind.get_field_index(name) >= 0 for name in _SAID)


def together(kinds: Iterable[pa.StructType], caller: str) -> pa.StructType | None:
    """Return a type with the fields of all, the reason last; None for none.

    Raises InputError for fields of one name that differ in type.
    """
    found: dict[str, pa.DataType] = {}
    for kind in kinds:
        for field in kind:
            known = found.setdefault(field.name, field.type)
            if known != field.type:
                raise InputError(
                    f"{caller}: {field.name} of the records in column {REJECTED} is {known} on one way in and "
                    f"{field.type} on another: give the column of messages another name, or cast it to {known}"
                )
    if not found:
        return None
    found[REASON] = found.pop(REASON)
    return pa.struct(list(found.items()))


def fitted(records: pa.Array, kind: pa.StructType) -> pa.Array:
    """Return records as ones of a type with more fields, or in which timestamps have another zone."""
    there = {field.name for field in records.type}
    arrays = [
        pc.struct_field(records, field.name).cast(field.type)
        if field.name in there
        else pa.nulls(len(records), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=records.is_null())
