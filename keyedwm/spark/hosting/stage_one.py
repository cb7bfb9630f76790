"""Stage one, before the shuffle: a task's event rows become partials, cut by bucket; control rows go to every bucket.

Rule: control rows are texts in a column of their own, which costs event rows nearly nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import valid_texts
from keyedwm.arrow.rows import grouped
from keyedwm.core.control_row import ControlRow, decode_rows, joined
from keyedwm.operators.exchange_input import ExchangeInput
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS, shipped
from keyedwm.runtime.worker import VersionChecked, freeze_gc, task_number

# The column behind the plan's columns: the control row as text, null for an event row.
CONTROL_TEXT = "__control"


@dataclass(frozen=True, slots=True)
class StageOne(VersionChecked):
    """The function of a `mapInArrow` over a frame that is one or more inputs; the frame's last column is CONTROL_TEXT.

    inputs: number -> input. ids: the buckets'. has_rejected: whether a column of rejected records is before
    CONTROL_TEXT. places: for each input, the places of its columns; None if the frame is one input.
    """

    inputs: Mapping[int, ExchangeInput]
    ids: Sequence[int]
    has_rejected: bool = False
    places: Sequence[Sequence[int]] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to be shuffled (`EXCHANGE_SCHEMA`)."""
        control: list[ControlRow] = []
        rejected: list[pa.Array] = []
        places = self.places or [range(len(one.columns)) for one in self.inputs.values()]
        events = (
            [_typed(rows, *one) for one in zip(self.inputs.values(), places, strict=True)]
            for rows in _events(batches, control, rejected if self.has_rejected else None)
        )
        yield from shipped(self.inputs, self.ids, task_number(), events, control, rejected=rejected)
        freeze_gc()


def _typed(rows: pa.Table, exchange: ExchangeInput, places: Sequence[int]) -> pa.Table:
    """Return the input's columns, which are at these places."""
    # Spark's timestamps have the session's time zone, those of the input's schema have UTC.
    schema = pa.schema([exchange.schema.field(name) for name in exchange.columns])
    arrays = [rows.column(place) for place in places]
    return valid_texts(pa.Table.from_arrays(arrays, names=schema.names).cast(schema))


def _events(
    batches: Iterable[pa.RecordBatch], control: list[ControlRow], rejected: list[pa.Array] | None
) -> Iterator[pa.Table]:
    """Return the event rows.

    Rows with a control text, in the last column, are added to `control`. Rejected records, in the column before it, are
    added to `rejected`, which is None without such a column.
    """
    for rows in grouped(batches, GROUP_ROWS, GROUP_BYTES):
        texts = rows.column(rows.num_columns - 1)
        control_texts = texts.drop_null().to_pylist()
        control += decode_rows(joined(control_texts))
        events = rows.filter(pc.is_null(texts)) if control_texts else rows
        if rejected is not None:
            records = events.column(rows.num_columns - 2)
            if records.null_count < len(records):
                rejected += records.drop_null().chunks
                events = events.filter(pc.is_null(records))
        yield events
