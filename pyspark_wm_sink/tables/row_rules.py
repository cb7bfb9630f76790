"""Rules of a table's columns, checked while rows are staged: no nulls, and no text beyond its length.

Rule: the sink checks each rule of a table on every row, or rejects the table. Texts are written as Spark
writes them: those of char(n) are padded with blanks, and blanks beyond the length of varchar(n) are cut off.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import InputError
from keyedwm.core.rows import channel_name

_OFFSETS = ("topic", "partition", "offset")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextLimit:
    """A column of type char(n) or varchar(n)."""

    column: str
    most: int
    is_padded: bool

    def __str__(self) -> str:
        return f"{'char' if self.is_padded else 'varchar'}({self.most})"


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRules:
    """never_null: columns that are NOT NULL. never_empty: the ones among them whose "" the log writes as null."""

    never_null: tuple[str, ...] = ()
    never_empty: tuple[str, ...] = ()
    texts: tuple[TextLimit, ...] = ()

    def applied(self, rows: pa.Table, *, has_offsets: bool) -> pa.Table:
        """Return the rows as they are written; raises InputError for the first that breaks a rule."""
        for name in self.never_null:
            _check_nulls(rows, name, has_offsets=has_offsets)
        for limit in self.texts:
            column = rows.column(limit.column)
            values = self._limited(rows, column, limit, has_offsets=has_offsets)
            rows = rows.set_column(rows.schema.get_field_index(limit.column), rows.field(limit.column), values)
        for name in self.never_empty:
            _check_empty(rows, name, has_offsets=has_offsets)
        return rows

    @staticmethod
    def _limited(rows: pa.Table, column: pa.ChunkedArray, limit: TextLimit, *, has_offsets: bool) -> pa.ChunkedArray:
        lengths = pc.utf8_length(column)
        longest = pc.max(lengths).as_py()
        if longest is not None and longest > limit.most:
            blanks = pc.utf8_rtrim(column, characters=" ")
            too_long = _true(pc.greater(pc.utf8_length(blanks), limit.most))
            if pc.any(too_long).as_py():
                index = pc.index(too_long, pa.scalar(value=True)).as_py()
                raise InputError(
                    f"column {limit.column} of the table is {limit}, and its text in a row"
                    f"{row_place(rows, index, has_offsets=has_offsets)} has {lengths[index]} characters: cut it "
                    f"(substring), or leave such rows out"
                )
            shortened = pc.utf8_slice_codeunits(column, 0, limit.most)
            column = pc.if_else(_true(pc.greater(lengths, limit.most)), shortened, column)
        return pc.utf8_rpad(column, limit.most, padding=" ") if limit.is_padded else column


def _check_nulls(rows: pa.Table, name: str, *, has_offsets: bool) -> None:
    column = rows.column(name)
    if column.null_count:
        index = pc.index(column.is_null(), pa.scalar(value=True)).as_py()
        raise InputError(
            f"column {name} is null in a row{row_place(rows, index, has_offsets=has_offsets)}, and the table declares "
            f"it NOT NULL: leave such rows out, or give them a value (coalesce)"
        )


def _check_empty(rows: pa.Table, name: str, *, has_offsets: bool) -> None:
    empty = pc.equal(rows.column(name), "")
    if pc.any(empty).as_py():
        index = pc.index(empty, pa.scalar(value=True)).as_py()
        raise InputError(
            f"column {name} is an empty text in a row{row_place(rows, index, has_offsets=has_offsets)}: it partitions "
            f"the table, where Delta's log writes an empty text as null, and the table declares it NOT NULL: leave "
            f"such rows out, or give them another value"
        )


NO_RULES = RowRules()


def _true(flags: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(flags, pa.scalar(value=False))


def row_place(rows: pa.Table, index: int, *, has_offsets: bool) -> str:
    """Return the origin of a row as text to follow "a row"; empty if the rows have no topic, partition and offset."""
    if not has_offsets:
        return ""
    topic, partition, offset = (rows.column(name)[index].as_py() for name in _OFFSETS)
    return "" if topic is None else f" ({channel_name(topic, partition)}, offset {offset})"
