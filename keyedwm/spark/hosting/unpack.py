"""After the buckets: their few rows become real columns, results first, control rows after them.

Rule: pandas never sees a result; a piece is one Arrow table from the bucket to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.control_rows import control_array
from keyedwm.arrow.schema import CONTROL_TYPE, TIMESTAMP, US_PER_MS, with_control_rows
from keyedwm.core.control_row import ControlRow, decode_rows
from keyedwm.core.rows import CONTROL, EVENT_TIME, WATERMARK
from keyedwm.operators.state.blobs import unpacked
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from keyedwm.spark.hosting.bucket_batch import EVENT_MS

COLUMNS = (EVENT_TIME, WATERMARK, CONTROL)


def output_schema(results: pa.Schema) -> pa.Schema:
    """Return the result columns, then those of the source's rows that let results be chained."""
    kinds = {EVENT_TIME: TIMESTAMP, WATERMARK: TIMESTAMP, CONTROL: CONTROL_TYPE}
    return with_control_rows([*results, *(pa.field(name, kinds[name]) for name in COLUMNS)])


@dataclass(frozen=True, slots=True)
class Unpack(VersionChecked):
    """The function of a `mapInArrow` over what the buckets emit."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result rows."""
        for batch in batches:
            for row in batch.select(["results", "control", "watermark_ms"]).to_pylist():
                if row["results"] is not None:
                    yield from self._results(unpacked(row["results"]), row["watermark_ms"])
                control = decode_rows(row["control"])
                if control:
                    yield self._controls(control, row["watermark_ms"])
        freeze_gc()

    def _results(self, results: pa.Table, watermark_ms: int | None) -> Iterator[pa.RecordBatch]:
        """Lay out results; the operator says their event times."""
        event_us = pc.multiply(results.column(EVENT_MS), US_PER_MS)
        columns: dict[str, Any] = {name: results.column(name) for name in results.column_names}
        columns[EVENT_TIME] = event_us.cast(TIMESTAMP)
        columns[WATERMARK] = constant(watermark_ms, results.num_rows)
        columns[CONTROL] = pa.nulls(results.num_rows, CONTROL_TYPE)
        arrays = [columns[field.name].cast(field.type) for field in self.schema]
        yield from pa.Table.from_arrays(arrays, schema=self.schema).to_batches()

    def _controls(self, control: list[ControlRow], watermark_ms: int | None) -> pa.RecordBatch:
        count = len(control)
        arrays = []
        for field in self.schema:
            if field.name == WATERMARK:
                arrays.append(constant(watermark_ms, count))
            elif field.name == CONTROL:
                arrays.append(control_array(control))
            else:
                arrays.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def constant(ms: int | None, count: int) -> pa.Array:
    """A column of one instant, or of nulls."""
    return pa.repeat(pa.scalar(None if ms is None else ms * US_PER_MS, pa.int64()), count).cast(TIMESTAMP)
