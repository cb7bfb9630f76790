"""Delta's statistics of one file, read off the Parquet footer that was just written: nothing is scanned twice.

Rule: a bound may be wide, never tight by mistake. Texts are cut to a prefix and times to the millisecond, outwards.
Parquet's bounds of floats leave NaN out, which Spark takes for the largest number: it would pass over a row group with
NaN. So the footer has none of floats; those for the log are taken while a file is written, and NaN means no bounds. A
file has bounds for every column of a bounded type that holds a value, or for none: deltalake's Arrow reader takes a
bound that is missing in one file and present in another for "no row matches", and would hide rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_INDEXED_COLUMNS = 32
_TEXT_LIMIT = 32
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the text's Z says it
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

Bounds = tuple[object, object]


class FloatBounds:
    """The bounds of one column of floats, taken from its rows as they are written."""

    def __init__(self) -> None:
        self.nulls = 0
        self._low, self._high = math.inf, -math.inf
        self._has_nan = False

    def take(self, column: pa.ChunkedArray) -> None:
        """Look at further rows."""
        self.nulls += column.null_count
        if pc.any(pc.is_nan(column)).as_py():
            self._has_nan = True
        found = pc.min_max(column)
        if found["min"].is_valid:
            self._low, self._high = min(self._low, found["min"].as_py()), max(self._high, found["max"].as_py())

    def bounds(self) -> Bounds | None:
        """Return both bounds, None where there is no safe text for one of them; of two zeros the outer one."""
        if self._has_nan or not (math.isfinite(self._low) and math.isfinite(self._high)):
            return None
        return self._low or -0.0, self._high or 0.0


def float_bounds(schema: pa.Schema) -> dict[str, FloatBounds]:
    """Make an empty one for each column of floats that the log has bounds of."""
    return {of.name: FloatBounds() for of in list(schema)[:_INDEXED_COLUMNS] if pa.types.is_floating(of.type)}


def stats_json(footer: pq.FileMetaData, schema: pa.Schema, floats: Mapping[str, FloatBounds]) -> str:
    """Return Delta's stats text: numRecords, nullCount and, where they are safe, minValues and maxValues."""
    leaves = [_leaves(field.type) for field in schema]
    columns = {field.name: sum(leaves[:i]) for i, field in enumerate(schema)}  # not by path: a.b may be two
    nulls: dict[str, int] = {}
    bounds: dict[str, Bounds | None] = {}
    for field in list(schema)[:_INDEXED_COLUMNS]:
        if pa.types.is_nested(field.type):
            continue
        if field.name in floats:
            nulls[field.name] = floats[field.name].nulls
            if nulls[field.name] != footer.num_rows:
                bounds[field.name] = floats[field.name].bounds()
            continue
        groups = [footer.row_group(g).column(columns[field.name]).statistics for g in range(footer.num_row_groups)]
        if all(group is not None and group.has_null_count for group in groups):
            nulls[field.name] = sum(group.null_count for group in groups)
        if _is_bounded(field.type) and nulls.get(field.name) != footer.num_rows:
            bounds[field.name] = _bounds(groups, field.type)
    value: dict[str, object] = {"numRecords": footer.num_rows, "nullCount": nulls}
    safe = {name: pair for name, pair in bounds.items() if pair is not None}
    if len(safe) == len(bounds):
        value["minValues"] = {name: low for name, (low, _) in safe.items()}
        value["maxValues"] = {name: high for name, (_, high) in safe.items()}
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _leaves(kind: pa.DataType) -> int:
    """In how many columns of a file a type is kept."""
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_list(kind):
        return _leaves(kind.value_type)
    return sum(_leaves(part.type) for part in kind) if pa.types.is_struct(kind) else 1


def _is_bounded(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or (pa.types.is_timestamp(kind) and kind.tz is not None)
    )


def _bounds(groups: Sequence[pq.Statistics | None], kind: pa.DataType) -> Bounds | None:
    """Return both bounds as Delta writes them, None where there is no safe text for one of them."""
    known = [group for group in groups if group is not None and group.has_min_max]
    # A group of nulls alone has no bounds and needs none.
    if any(group is None or (group.num_values and not group.has_min_max) for group in groups) or not known:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _calendar(min(g.min_raw for g in known), max(g.max_raw for g in known), dates=pa.types.is_date(kind))
    try:
        low, high = min(g.min for g in known), max(g.max for g in known)
    except UnicodeDecodeError:  # Spark's texts can hold any bytes: a cast of a binary column checks nothing
        return None
    if pa.types.is_string(kind):
        raised = _truncated_up(high)
        return None if raised is None else (low[:_TEXT_LIMIT], raised)
    return low, high


def _calendar(low: int, high: int, *, dates: bool) -> Bounds | None:
    """Show days or microseconds since the epoch; None beyond the years that a text can hold."""
    try:
        if dates:
            return (_EPOCH + timedelta(low)).date().isoformat(), (_EPOCH + timedelta(high)).date().isoformat()
        return _iso(low // 1_000), _iso(-(-high // 1_000))
    except OverflowError:
        return None


def _iso(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds") + "Z"


def _truncated_up(text: str) -> str | None:
    """Return a short text that is not below `text`: its prefix, the last character that can be raised raised by one."""
    if len(text) <= _TEXT_LIMIT:
        return text
    for end in range(_TEXT_LIMIT, 0, -1):
        following = ord(text[end - 1]) + 1
        if following <= _LAST_CHARACTER:
            return text[: end - 1] + chr(following if following not in _SURROGATES else _SURROGATES.stop)
    return None
