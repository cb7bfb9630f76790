"""An input of an operator as stage one needs it: which columns it reads, which rows it sends, and to which bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from keyedwm.arrow.schema import nullable
from keyedwm.core.errors import OutOfTurnError
from keyedwm.operators.buckets import bucket_of

if TYPE_CHECKING:
    from keyedwm.arrow.columns import Ints


class ExchangeInput(ABC):
    """One input. schema: the columns of its rows. time: the column with the event time, if there is only one.

    kind: the name in its description, from which a reading task builds the input; without a kind the input works only
    on DataFrames.
    """

    kind: ClassVar[str]
    schema: pa.Schema
    time: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: all of the schema."""
        return tuple(self.schema.names)

    @property
    @abstractmethod
    def spread_by(self) -> Sequence[str]:
        """The columns by which the rows are spread over buckets."""

    @abstractmethod
    def exchange_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows, or partials of rows, that are sent to the buckets."""

    def description(self) -> dict[str, Any]:
        """Return the description without the schema, ready for JSON; raise OutOfTurnError if there is none."""
        raise OutOfTurnError(f"{type(self).__name__} runs over DataFrames, not in reading tasks")

    @classmethod
    def of(cls, description: Mapping[str, Any], schema: pa.Schema) -> ExchangeInput:  # noqa: ARG003
        """Return the input of a description, over rows of this schema."""
        raise OutOfTurnError(f"{cls.__name__} runs over DataFrames, not in reading tasks")

    def null_event_times(self, rows: pa.Table) -> int:
        """Return how many rows lack an event time."""
        return rows.column(self.time).null_count

    def rows_without_gap(self, rows: pa.Table) -> int:  # noqa: ARG002
        """Return how many rows lack the gap of their session; 0 if rows have no gaps of their own."""
        return 0

    def buckets(self, rows: pa.Table, count: int) -> Ints:
        """Return the number of the bucket of each row that is sent, out of `count`."""
        return bucket_of([rows.column(name) for name in self.spread_by], rows.num_rows, count)


@dataclass(frozen=True, kw_only=True)
class ExchangeMessages(ExchangeInput):
    """Whole messages, for an operator that keeps them. by: the columns by which they are spread over buckets."""

    kind = "messages"
    schema: pa.Schema
    by: tuple[str, ...]
    time: str

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The columns by which messages are spread."""
        return self.by

    def description(self) -> dict[str, Any]:
        """Return the kind, `by` and `time`; see `ExchangeInput`."""
        return {"kind": self.kind, "by": list(self.by), "time": self.time}

    @classmethod
    def of(cls, description: Mapping[str, Any], schema: pa.Schema) -> ExchangeMessages:
        """Return the input; every column can be null."""
        fields = [nullable(field) for field in schema]
        return cls(schema=pa.schema(fields), by=tuple(description["by"]), time=description["time"])

    def exchange_rows(self, rows: pa.Table) -> pa.Table:
        """Return all rows: the operator rejects a message without an event time, and gives the reason."""
        return rows
