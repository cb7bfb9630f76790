"""Delta's statistics of one file, read off the Parquet footer that was just written: nothing is scanned twice.

Rule: a bound may be wide, never tight by mistake: a time's minimum is floored and its maximum raised to the millisecond
that Delta stores; where that cannot be promised (long texts, NaN, binary, nested) the bound is left out.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq

_INDEXED_COLUMNS = 32
_TEXT_LIMIT = 32
_MS = timedelta(milliseconds=1)


def stats_json(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return Delta's stats text: numRecords, and minValues, maxValues, nullCount of the leading flat columns."""
    lows: dict[str, object] = {}
    highs: dict[str, object] = {}
    nulls: dict[str, int] = {}
    columns = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    for field in list(schema)[:_INDEXED_COLUMNS]:
        if field.name not in columns or pa.types.is_nested(field.type):
            continue
        groups = [footer.row_group(g).column(columns[field.name]).statistics for g in range(footer.num_row_groups)]
        if any(g is None or not g.has_null_count for g in groups):
            continue
        nulls[field.name] = sum(g.null_count for g in groups)
        ranged = [g for g in groups if g.has_min_max]
        if len(ranged) < sum(1 for g in groups if g.num_values):
            continue
        low, high = _bounds([g.min for g in ranged], [g.max for g in ranged], field.type)
        if low is not None and high is not None:
            lows[field.name], highs[field.name] = low, high
    value = {"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _bounds(lows: list, highs: list, kind: pa.DataType) -> tuple[object, object]:
    """Return both bounds as Delta writes them, or None for a type or value that it has no safe text for."""
    if not lows:
        return None, None
    low, high = min(lows), max(highs)
    if pa.types.is_timestamp(kind) and kind.tz:
        return _iso(low, raised=False), _iso(high, raised=True)
    if pa.types.is_date(kind):
        return low.isoformat(), high.isoformat()
    exact = (
        pa.types.is_integer(kind)
        or (pa.types.is_floating(kind) and math.isfinite(low) and math.isfinite(high))
        or (pa.types.is_string(kind) and max(len(low), len(high)) <= _TEXT_LIMIT)
    )
    return (low, high) if exact else (None, None)


def _iso(at: datetime, *, raised: bool) -> str:
    at = at.astimezone(timezone.utc)
    cut = at.replace(microsecond=at.microsecond // 1_000 * 1_000)
    if raised and cut < at:
        cut += _MS
    return cut.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
