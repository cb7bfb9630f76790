"""Stage one, before the shuffle: a task's event rows become partials, cut by bucket; control rows go to every bucket.

Rule: it knows no watermark and keeps nothing between batches. Only whole tables leave it: one row of the shuffle holds
all that a task has for a bucket.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.rows import grouped
from keyedwm.core.rows import Kind
from keyedwm.spark.buckets import bucket_of
from keyedwm.spark.inbox import Control
from keyedwm.windows.partials import combine_rows
from keyedwm.windows.plan import Plan
from keyedwm.windows.state import packed
from keyedwm.worker import settle_worker

# What is staged beside the columns of the plan: the control row as JSON, null for an event row.
CONTROL_TEXT = "__control"
_FIELDS = ("kind", "key", "watermark_ms", "channel", "snapshot", "channels", "offset")
SHIPPED = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("part", pa.int64()),
        pa.field("partials", pa.binary()),
        pa.field("control", pa.string()),
        pa.field("timeless", pa.int64()),
    ]
)
_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 1 << 27


@dataclass(frozen=True, slots=True)
class StageOne:
    """The function of a `mapInArrow` over the staged columns; `ids`: the buckets' ids."""

    plan: Plan
    ids: Sequence[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to be shuffled (`SHIPPED`)."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = (context.partitionId() if context is not None else 0) << 32
        # Spark gives timestamps in the session's time zone, the plan knows them in UTC.
        wanted = pa.schema([self.plan.schema.field(name) for name in self.plan.columns])
        control: list[str] = []
        timeless = 0
        for rows in grouped(batches, _GROUP_ROWS, _GROUP_BYTES):
            texts = rows.column(CONTROL_TEXT)
            told = texts.drop_null().to_pylist()
            control += told
            events = rows.filter(pc.is_null(texts)) if told else rows
            timeless += events.column(self.plan.time).null_count
            partials = combine_rows(self.plan, events.select(wanted.names).cast(wanted))
            if partials.num_rows:
                yield self._shipped(partials, part)
                part += 1
        if control or timeless:
            yield self._told(control, part, timeless)
        settle_worker()

    def _shipped(self, partials: pa.Table, part: int) -> pa.RecordBatch:
        """One row per bucket that has partials."""
        number = bucket_of([partials.column(name) for name in self.plan.by], partials.num_rows, len(self.ids))
        if len(self.ids) > 1:
            order = np.argsort(number, kind="stable")
            partials, number = partials.take(pa.array(order)).combine_chunks(), number[order]
        first = np.searchsorted(number, np.arange(len(self.ids) + 1))
        pieces = [(self.ids[i], first[i], first[i + 1] - first[i]) for i in range(len(self.ids))]
        pieces = [piece for piece in pieces if piece[2]]
        return _rows(
            buckets=[bucket for bucket, _, _ in pieces],
            part=part,
            partials=[packed(partials.slice(at, count)) for _, at, count in pieces],
        )

    def _told(self, control: Sequence[str], part: int, timeless: int) -> pa.RecordBatch:
        """One row for each bucket, with all control rows; the first also counts the rows without an event time."""
        text = "[" + ",".join(control) + "]"
        counts = [timeless if bucket == self.ids[0] else 0 for bucket in self.ids]
        return _rows(buckets=list(self.ids), part=part, control=text, timeless=counts)


def control_rows(text: str) -> list[Control]:
    """Read what `_told` wrote."""
    return [
        Control(**{**{name: row.get(name) for name in _FIELDS}, "kind": Kind(row["kind"])}) for row in json.loads(text)
    ]


def _rows(
    *,
    buckets: list[int],
    part: int,
    partials: list[bytes] | None = None,
    control: str | None = None,
    timeless: list[int] | None = None,
) -> pa.RecordBatch:
    count = len(buckets)
    arrays = [
        pa.array(buckets, pa.int32()),
        pa.array([part] * count, pa.int64()),
        pa.nulls(count, pa.binary()) if partials is None else pa.array(partials, pa.binary()),
        pa.array([control] * count, pa.string()),
        pa.array(timeless or [0] * count, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SHIPPED)
