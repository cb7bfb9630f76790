"""After the buckets of a join: their few rows become real columns, results first, control rows after them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from keyedwm.arrow.control_rows import control_array
from keyedwm.arrow.schema import CONTROL_TYPE, TIMESTAMP, with_control_rows
from keyedwm.core.control_row import decode_rows
from keyedwm.core.rows import CONTROL
from keyedwm.operators.join.plan import JoinPlan
from keyedwm.operators.state.blobs import unpacked
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from keyedwm.spark.hosting.unpack import constant


def output_schema(plan: JoinPlan) -> pa.Schema:
    """Return the result's columns: those of the operator, the watermarks, and `control`."""
    watermarks = [pa.field(name, TIMESTAMP) for name in plan.watermark_columns]
    return with_control_rows([*plan.result_schema, *watermarks, pa.field(CONTROL, CONTROL_TYPE)])


@dataclass(frozen=True, slots=True)
class JoinUnpack(VersionChecked):
    """The function of a `mapInArrow` over what the buckets emit; results: how many of the columns the operator made."""

    schema: pa.Schema
    results: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result rows."""
        for batch in batches:
            for row in batch.select(["results", "control", "watermarks"]).to_pylist():
                watermarks = json.loads(row["watermarks"])
                if row["results"] is not None:
                    made = unpacked(row["results"])
                    columns = [*made.columns, *self._constants(watermarks, made.num_rows)]
                    columns.append(pa.nulls(made.num_rows, CONTROL_TYPE))
                    yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches()
                control = decode_rows(row["control"])
                if control:
                    nothing = [pa.nulls(len(control), field.type) for field in list(self.schema)[: self.results]]
                    columns = [*nothing, *self._constants(watermarks, len(control)), control_array(control)]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
        freeze_gc()

    def _constants(self, watermarks: Sequence[int | None], count: int) -> list[pa.Array]:
        return [constant(ms, count) for ms in watermarks]
