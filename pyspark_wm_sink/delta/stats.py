"""Delta's statistics of one file, from the Parquet footer that was just written: no row is read twice.

Rule: a bound may be wide, never tight by mistake. Texts are cut to a prefix and times to the millisecond, outwards.
Parquet's bounds of floats ignore NaN, the largest number for Spark, so Spark would skip a row group with NaN. Therefore
the footer has no bounds of floats. The bounds for the log are collected while a file is written; a column with NaN has
none. A file has bounds for all columns with a value in which the table's readers look for bounds, or for none:
deltalake's Arrow reader takes a missing bound for "no row matches", and would hide rows. A struct has empty bounds,
which this reader ignores.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_INDEXED_COLUMNS = 32
_COUNT, _NAMES = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^,`]*))\s*(?:,|$)")
_PART = "(?:`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*)"
_PATH = rf" *{_PART}(?:[.]{_PART})* *"
_NAMES_READ_ALIKE = re.compile(f"{_PATH}(?:,{_PATH})*")
_COUNT_READ_ALIKE = re.compile("[0-9]{1,9}")
_TEXT_LIMIT = 32
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the text's Z says it
_CUT_MARK = "\U0010ffff"  # the last character that there is: Delta's mark of an upper bound that was cut

Bounds = tuple[str, str]  # the lower and the upper one, as JSON


class FloatBounds:
    """The bounds of one column of floats, taken from its rows as they are written."""

    def __init__(self) -> None:
        self.nulls = 0
        self._low, self._high = math.inf, -math.inf
        self._has_nan = False

    def add(self, column: pa.ChunkedArray) -> None:
        """Look at further rows."""
        self.nulls += column.null_count
        if pc.any(pc.is_nan(column)).as_py():
            self._has_nan = True
        bounds = pc.min_max(column)
        if bounds["min"].is_valid:
            self._low, self._high = min(self._low, bounds["min"].as_py()), max(self._high, bounds["max"].as_py())

    def bounds(self) -> Bounds | None:
        """Return both bounds, None if one has no safe text. A zero gets the sign that widens the bounds."""
        if self._has_nan or not (math.isfinite(self._low) and math.isfinite(self._high)):
            return None
        return _json(self._low or -0.0), _json(self._high or 0.0)


def indexed_columns(columns: pa.Schema, partition_by: Sequence[str], configuration: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a table whose bounds and counts of nulls its readers may look for in the log.

    configuration: the table's properties, which can ask for more or fewer than the first 32. If a property can be read
    in several ways, the result has all columns. It has all structs, since readers count them differently.
    """
    names = [name for name in columns.names if name not in partition_by]
    names_text, count = configuration.get(_NAMES), configuration.get(_COUNT, str(_INDEXED_COLUMNS))
    if names_text is not None:
        if _NAMES_READ_ALIKE.fullmatch(names_text):
            listed_names = {quoted.replace("``", "`") or plain.strip() for quoted, plain in _NAME.findall(names_text)}
            names = [name for name in names if name in listed_names]
    elif _COUNT_READ_ALIKE.fullmatch(count):
        names = names[: int(count)]
    return pa.schema(
        field
        for field in columns
        if _has_bounded_fields(field.type) or (field.name in names and not pa.types.is_nested(field.type))
    )


def float_bounds(schema: pa.Schema, indexed: pa.Schema) -> dict[str, FloatBounds]:
    """Return empty bounds for each column of floats whose bounds are in the log."""
    return {of.name: FloatBounds() for of in schema if of.name in indexed.names and pa.types.is_floating(of.type)}


def stats_json(
    footer: pq.FileMetaData, schema: pa.Schema, indexed: pa.Schema, floats: Mapping[str, FloatBounds]
) -> str:
    """Return Delta's stats text: numRecords, nullCount and, if they are safe, minValues and maxValues.

    indexed: the columns whose statistics it has, null if the file lacks a column. floats: the result of `float_bounds`,
    after all rows were added.
    """
    leaves = [_leaves(field.type) for field in schema]
    columns = {field.name: sum(leaves[:i]) for i, field in enumerate(schema)}  # not by path: a.b may be two
    structs = {field.name: "{}" for field in indexed if _has_bounded_fields(field.type)}
    nulls = {name: footer.num_rows for name in indexed.names if name not in columns and name not in structs}
    bounds: dict[str, Bounds | None] = {}
    for field in schema:
        if field.name not in indexed.names or field.name in structs:
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
    parts = {"numRecords": str(footer.num_rows), "nullCount": _json(nulls)}
    safe = {name: pair for name, pair in bounds.items() if pair is not None}
    if len(safe) == len(bounds):
        parts["minValues"] = _object({name: low for name, (low, _) in safe.items()} | structs)
        parts["maxValues"] = _object({name: high for name, (_, high) in safe.items()} | structs)
    return _object(parts)


def _object(parts: Mapping[str, str]) -> str:
    """Return a JSON object of texts that are JSON: `json` would write a decimal as a float, which may be tighter."""
    return "{" + ",".join(f"{_json(name)}:{text}" for name, text in parts.items()) + "}"


def _json(value: object) -> str:
    """Write characters without escapes: Rust's Arrow misreads the escapes of many characters above U+1FFFF."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _leaves(kind: pa.DataType) -> int:
    """Return the number of columns of a file that a type occupies."""
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_list(kind):
        return _leaves(kind.value_type)
    return sum(_leaves(part.type) for part in kind) if pa.types.is_struct(kind) else 1


def _has_bounded_fields(kind: pa.DataType) -> bool:
    """Whether readers look for bounds of its fields: a struct, but no variant (in Arrow a struct of binaries)."""
    return pa.types.is_struct(kind) and any(
        _is_bounded(part.type) or pa.types.is_floating(part.type) or _has_bounded_fields(part.type) for part in kind
    )


def _is_bounded(kind: pa.DataType) -> bool:
    is_one_of = (
        pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_string, pa.types.is_date,
        pa.types.is_timestamp,
    )  # fmt: skip
    return any(is_kind(kind) for is_kind in is_one_of)


def _bounds(groups: Sequence[pq.Statistics | None], kind: pa.DataType) -> Bounds | None:
    """Return both bounds as Delta writes them, None if one has no safe text."""
    known = [group for group in groups if group is not None and group.has_min_max]
    # A group of nulls alone has no bounds and needs none.
    if any(group is None or (group.num_values and not group.has_min_max) for group in groups) or not known:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _calendar(min(g.min_raw for g in known), max(g.max_raw for g in known), kind)
    try:
        low, high = min(g.min for g in known), max(g.max for g in known)
    except UnicodeDecodeError:  # Spark's texts can hold any bytes: a cast of a binary column checks nothing
        return None
    if pa.types.is_decimal(kind):
        return format(low, "f"), format(high, "f")
    if pa.types.is_string(kind):
        high = _cut_up(high)
        low = low[:_TEXT_LIMIT]
    return None if high is None else (_json(low), _json(high))


def _calendar(low: int, high: int, kind: pa.DataType) -> Bounds | None:
    """Show days or microseconds since the epoch; None beyond the years that a text can hold."""
    try:
        if pa.types.is_date(kind):
            days = (_EPOCH + timedelta(low)).date(), (_EPOCH + timedelta(high)).date()
            return _json(days[0].isoformat()), _json(days[1].isoformat())
        zone = "Z" if kind.tz is not None else ""
        return _json(_iso(low // 1_000) + zone), _json(_iso(-(-high // 1_000)) + zone)
    except OverflowError:
        return None


def _iso(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def _cut_up(text: str) -> str | None:
    """Return a short text that is not below `text`: a prefix and the mark; None if only the mark would be left."""
    for end in range(_TEXT_LIMIT, min(len(text), 2 * _TEXT_LIMIT)):
        if text[end] != _CUT_MARK:
            return text[:end] + _CUT_MARK
    return text if len(text) <= 2 * _TEXT_LIMIT else None
