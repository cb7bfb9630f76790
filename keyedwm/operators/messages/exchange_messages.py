"""Whole messages as stage one ships them to an operator that keeps them, divided by some columns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, kw_only=True, slots=True)
class ExchangeMessages:
    """`schema`: of the messages. `by`: the columns by which they are spread. `time`: the one with the event time."""

    schema: pa.Schema
    by: tuple[str, ...]
    time: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are shipped: all of a message's."""
        return tuple(self.schema.names)

    def exchange_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are shipped: all, since one without an event time is given back with the reason."""
        return rows
