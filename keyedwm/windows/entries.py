"""Entries: what is held of many keys, as columns, in memory and as a table.

Rule: entries are values. A table of entries holds the by columns themselves, so it can be read without the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.windows.additive import IntegerSum
from keyedwm.windows.columns import Column, Ints, concat, contiguous, empty, from_arrow, ints, take, to_arrow
from keyedwm.windows.keys import Keys
from keyedwm.windows.kinds import Groups, Rows, Spans
from keyedwm.windows.plan import ROWS, Plan


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys by number, how many events each entry stands for, and the accumulators of each aggregate."""

    keys: Ints
    rows: Ints
    accumulators: tuple[tuple[Column, ...], ...]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, places: Ints) -> Entries:
        """The entries at these places."""
        return Entries(
            self.keys[places],
            self.rows[places],
            tuple(tuple(take(column, places) for column in columns) for columns in self.accumulators),
        )

    def columns(self) -> list[Column]:
        """Rows and accumulators, as in the schema of partials."""
        return [self.rows, *(column for columns in self.accumulators for column in columns)]


def read_entries(plan: Plan, keys: Ints, table: pa.Table) -> Entries:
    """The entries of partials whose keys are these."""
    outer = iter(plan.accumulator_fields)
    accumulators = tuple(
        tuple(from_arrow(field, table[field.name]) for _, field in zip(kind.fields, outer, strict=False))
        for kind in plan.kinds
    )
    return Entries(keys, ints(contiguous(table[ROWS])), accumulators)


def no_entries(plan: Plan) -> Entries:
    """None."""
    return Entries(
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        tuple(tuple(empty(inner) for inner in kind.fields) for kind in plan.kinds),
    )


def joined(pieces: Sequence[Entries]) -> Entries:
    """All entries of some pieces, in order."""
    if len(pieces) == 1:
        return pieces[0]
    return Entries(
        np.concatenate([piece.keys for piece in pieces]),
        np.concatenate([piece.rows for piece in pieces]),
        tuple(
            tuple(concat(list(columns)) for columns in zip(*parts, strict=True))
            for parts in zip(*(piece.accumulators for piece in pieces), strict=True)
        ),
    )


def merged(plan: Plan, entries: Entries, groups: Groups, keys: Ints) -> Entries:
    """One entry for each group; `keys` are the groups' keys."""
    accumulators = tuple(
        tuple(kind.merge(columns, groups)) for kind, columns in zip(plan.kinds, entries.accumulators, strict=True)
    )
    return Entries(keys, _ROWS.merge([entries.rows], groups)[0], accumulators)


def over_spans(plan: Plan, entries: Entries, spans: Spans) -> Entries:
    """One entry for each run of entries of one key."""
    accumulators = tuple(
        tuple(kind.spans(columns, spans)) for kind, columns in zip(plan.kinds, entries.accumulators, strict=True)
    )
    return Entries(entries.keys[spans.first], _ROWS.spans([entries.rows], spans)[0], accumulators)


def finished(plan: Plan, entries: Entries) -> list[pa.Array]:
    """The aggregates' results."""
    return [kind.finish(columns, entries.rows) for kind, columns in zip(plan.kinds, entries.accumulators, strict=True)]


_ROWS = IntegerSum("the row count")


def table_of(plan: Plan, keys: Keys, entries: Entries) -> pa.Table:
    """Entries as a table: by columns, rows, accumulators."""
    schema = pa.schema([*plan.key_fields, pa.field(ROWS, pa.int64()), *plan.accumulator_fields])
    columns = [*keys.columns(entries.keys), *(to_arrow(column) for column in entries.columns())]
    return pa.Table.from_arrays(columns, schema=schema)


def neutral(plan: Plan, keys: Ints) -> Entries:
    """Entries of these keys that stand for no event."""
    rows = Rows(np.zeros(len(keys), np.int64), tuple(pa.nulls(len(keys), inner.type) for inner in plan.order_fields))
    accumulators = tuple(
        tuple(kind.lift(None if spec.column is None else pa.nulls(len(keys), plan.type_of(spec.column)), rows))
        for (_, spec), kind in zip(plan.aggregates, plan.kinds, strict=True)
    )
    return Entries(keys, np.zeros(len(keys), np.int64), accumulators)
