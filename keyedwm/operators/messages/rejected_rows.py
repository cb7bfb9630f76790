"""Messages that no window took, beside the results of one operator: what becomes of them (`late`).

Rule: with `late="emit"` they have a column of their own, so that both leave in the same snapshot. A row of the one kind
has nulls in the columns of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.results import Output, no_times


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """results: the columns of results; rejected: those of a message that is given back, with its reason."""

    late: LatePolicy
    results: pa.Schema
    rejected: pa.Schema

    def __post_init__(self) -> None:
        taken = [name for name in self.results.names if name.lower() == REJECTED]  # Spark does not tell case apart
        if self.late is LatePolicy.EMIT and taken:
            raise OptionError(
                f"a result column cannot be called {taken[0]!r}: with late='emit' that is the column of the messages "
                "that no window takes"
            )

    @property
    def schema(self) -> pa.Schema:
        """Of all rows that leave."""
        return pa.schema([*self.results, self._column]) if self.late is LatePolicy.EMIT else self.results

    def result(self, made: Output) -> Output:
        """Return results as rows that leave."""
        if self.late is not LatePolicy.EMIT:
            return made
        nothing = pa.nulls(made.rows.num_rows, self._column.type)
        return Output(made.rows.append_column(self._column, nothing), made.event_ms)

    def row(self, rejected: pa.Table) -> Output:
        """Return messages as rows that leave; they have no event time, so that no watermark is behind them."""
        count, kind = rejected.num_rows, self._column.type
        whole = rejected.to_struct_array().combine_chunks() if count else pa.array([], kind)
        columns = [pa.nulls(count, one.type) for one in self.results]
        return Output(pa.Table.from_arrays([*columns, whole.cast(kind)], schema=self.schema), no_times(count))

    def check(self, late_rows: int) -> None:
        """Refuse messages that came too late, if there are any."""
        if late_rows and self.late is LatePolicy.FAIL:
            raise InputError(
                f"{late_rows} messages came when all windows that hold them were gone: allow a longer retention "
                "or a longer watermark lag, or choose late='drop' or late='emit'"
            )

    @property
    def _column(self) -> pa.Field:
        return pa.field(REJECTED, pa.struct(list(self.rejected)))
