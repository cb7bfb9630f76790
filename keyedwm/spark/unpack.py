"""After the buckets: their few rows become real columns, results first, control rows after them.

Rule: pandas never sees a result; a piece is one Arrow table from the bucket to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.rows import US_PER_MS
from keyedwm.arrow.schema import CONTROL_TYPE, TIMESTAMP
from keyedwm.core.rows import CONTROL, CONTROL_FIELDS, EVENT_TIME, WATERMARK
from keyedwm.windows.plan import WINDOW
from keyedwm.windows.state import unpacked
from keyedwm.worker import settle_worker

COLUMNS = (EVENT_TIME, WATERMARK, CONTROL)


def output_schema(results: pa.Schema) -> pa.Schema:
    """Return the result columns, then those of the source's rows that let results be chained."""
    kinds = {EVENT_TIME: TIMESTAMP, WATERMARK: TIMESTAMP, CONTROL: CONTROL_TYPE}
    return pa.schema([*results, *(pa.field(name, kinds[name]) for name in COLUMNS)])


@dataclass(frozen=True, slots=True)
class Unpack:
    """The function of a `mapInArrow` over what the buckets emit."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result rows."""
        for batch in batches:
            for row in batch.select(["results", "control", "watermark_ms"]).to_pylist():
                if row["results"] is not None:
                    yield from self._results(unpacked(row["results"]), row["watermark_ms"])
                control = json.loads(row["control"])
                if control:
                    yield self._controls(control, row["watermark_ms"])
        settle_worker()

    def _results(self, results: pa.Table, watermark_ms: int | None) -> Iterator[pa.RecordBatch]:
        """A result's event time is the last millisecond of its window, as in Flink: the next window takes it whole."""
        end = pc.struct_field(results.column(WINDOW), "end").cast(pa.int64())
        columns: dict[str, Any] = {name: results.column(name) for name in results.column_names}
        columns[EVENT_TIME] = pc.subtract(end, US_PER_MS).cast(TIMESTAMP)
        columns[WATERMARK] = _constant(watermark_ms, results.num_rows)
        columns[CONTROL] = pa.nulls(results.num_rows, CONTROL_TYPE)
        arrays = [columns[field.name].cast(field.type) for field in self.schema]
        yield from pa.Table.from_arrays(arrays, schema=self.schema).to_batches()

    def _controls(self, control: list[Mapping[str, Any]], watermark_ms: int | None) -> pa.RecordBatch:
        count = len(control)
        arrays = []
        for field in self.schema:
            if field.name == WATERMARK:
                arrays.append(_constant(watermark_ms, count))
            elif field.name == CONTROL:
                arrays.append(pa.array([_struct(row) for row in control], CONTROL_TYPE))
            else:
                arrays.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _constant(ms: int | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(None if ms is None else ms * US_PER_MS, pa.int64()), count).cast(TIMESTAMP)


def _struct(row: Mapping[str, Any]) -> dict[str, Any]:
    watermark_ms = row["watermark_ms"]
    told = {**row, "watermark": None if watermark_ms is None else watermark_ms * US_PER_MS}
    return {name: told[name] for name in CONTROL_FIELDS}
