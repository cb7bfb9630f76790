"""The step after the buckets: it unpacks their few rows; results come before control rows.

Rule: pandas only passes results on, as bytes: the results in a row are one Arrow table from the bucket to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.control_rows import control_array
from keyedwm.arrow.schema import CONTROL_TYPE, TIMESTAMP, US_PER_MS, fitted, together, with_control_rows
from keyedwm.core.control_row import ControlRow, decode_rows
from keyedwm.core.rows import CONTROL, EVENT_TIME, REJECTED
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.state.blobs import unpacked
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from keyedwm.spark.hosting.bucket_batch import EVENT_MS


@dataclass(frozen=True, slots=True)
class Unpack(VersionChecked):
    """The function of a `mapInArrow` over the rows that the buckets emit.

    schema: the result columns, then the columns of the source's rows that a later operator needs. watermarks: column of
    watermarks -> its axis. rejected: the type of the column of rejected records, None if no input has that column.
    """

    schema: pa.Schema
    watermarks: Mapping[str, int]
    rejected: pa.StructType | None = None

    @classmethod
    def of(cls, plan: OperatorSpec, inputs: Sequence[pa.StructType] = (), who: str = "") -> Unpack:
        """Return the function for the results of a plan. inputs: the types of the inputs' rejected records."""
        added = [pa.field(name, TIMESTAMP) for name in (*plan.time_columns, *plan.watermark_axes)]
        columns = {field.name: field for field in plan.result_schema}
        own = columns.get(REJECTED)  # the messages that a store rejects
        rejected = together([*([] if own is None else [own.type]), *inputs], who)
        if inputs:
            columns[REJECTED] = pa.field(REJECTED, rejected)
        fields = [*columns.values(), *added, pa.field(CONTROL, CONTROL_TYPE)]
        return cls(with_control_rows(fields), plan.watermark_axes, rejected if inputs else None)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result rows."""
        for batch in batches:
            for row in batch.select(["results", "control", "watermarks", "rejected"]).to_pylist():
                watermarks_ms = json.loads(row["watermarks"])
                if row["rejected"] is not None and self.rejected is not None:
                    yield from self._rejected(unpacked(row["rejected"]), watermarks_ms)
                if row["results"] is not None:
                    yield from self._results(unpacked(row["results"]), watermarks_ms)
                control = decode_rows(row["control"])
                if control:
                    yield self._controls(control, watermarks_ms)
        freeze_gc()

    def _results(self, results: pa.Table, watermarks_ms: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        """Yield rows of results. Their event times are in their columns, or else in EVENT_MS."""
        columns: dict[str, Any] = {name: results.column(name) for name in results.column_names}
        if EVENT_MS in columns:
            columns[EVENT_TIME] = pc.multiply(columns[EVENT_MS], US_PER_MS).cast(TIMESTAMP)
        columns |= self._constants(watermarks_ms, results.num_rows)
        columns[CONTROL] = pa.nulls(results.num_rows, CONTROL_TYPE)
        if self.rejected is not None:
            own = columns.get(REJECTED, pa.chunked_array([pa.nulls(results.num_rows, self.rejected)]))
            columns[REJECTED] = fitted(own.combine_chunks(), self.rejected)
        arrays = [columns[field.name].cast(field.type) for field in self.schema]
        yield from pa.Table.from_arrays(arrays, schema=self.schema).to_batches()

    def _rejected(self, records: pa.Table, watermarks_ms: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        """Yield rows of rejected records. All other columns of these rows but watermarks are null."""
        column = fitted(records.column(REJECTED).combine_chunks(), self.rejected)
        yield self._rest_null({**self._constants(watermarks_ms, len(column)), REJECTED: column}, len(column))

    def _controls(self, control: list[ControlRow], watermarks_ms: Mapping[str, int]) -> pa.RecordBatch:
        count = len(control)
        return self._rest_null({**self._constants(watermarks_ms, count), CONTROL: control_array(control)}, count)

    def _rest_null(self, columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constants(self, watermarks_ms: Mapping[str, int], count: int) -> dict[str, pa.Array]:
        return {name: _constant(watermarks_ms.get(str(axis)), count) for name, axis in self.watermarks.items()}


def _constant(ms: int | None, count: int) -> pa.Array:
    """Return a column of one instant, or of nulls."""
    return pa.repeat(pa.scalar(None if ms is None else ms * US_PER_MS, pa.int64()), count).cast(TIMESTAMP)
