"""Control rows as values of the `control` column, and back."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.schema import CONTROL_TYPE, US_PER_MS
from keyedwm.core.control_row import ControlRow, control_row
from keyedwm.core.rows import CONTROL, CONTROL_FIELDS


def control_array(rows: Iterable[ControlRow]) -> pa.Array:
    """Return control rows as values of the `control` column."""
    return pa.array([_struct(row) for row in rows], CONTROL_TYPE)


def control_rows(table: pa.Table) -> list[ControlRow]:
    """Read a table that has only control rows. An integer column `offset` gives their offsets.

    Raises InputError for a row that keyedwm never writes.
    """
    if not table.num_rows:
        return []
    structs = table.column(CONTROL)
    present = {field.name for field in structs.type}  # rows of version 1 lack the source
    names = [name for name in CONTROL_FIELDS if name in present and name != "watermark"]
    columns = {name: pc.struct_field(structs, name).to_pylist() for name in names}
    us = pc.struct_field(structs, "watermark").cast(pa.int64()).to_pylist()
    columns["watermark_ms"] = [None if one is None else one // US_PER_MS for one in us]
    # A user's frame may have its own column called offset, of another type.
    if "offset" in table.column_names and pa.types.is_integer(table.schema.field("offset").type):
        columns["offset"] = table.column("offset").to_pylist()
    return [control_row(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def _struct(row: ControlRow) -> dict[str, object]:
    return {
        "kind": row.kind.value,
        "key": row.key,
        "watermark": None if row.watermark_ms is None else row.watermark_ms * US_PER_MS,
        "channel": row.channel,
        "snapshot": row.snapshot,
        "channels": row.channels,
        "source": row.source,
    }
