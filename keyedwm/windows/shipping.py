"""What stage one ships to the buckets: partials cut by bucket, and the control rows, which go to every bucket.

Rule: only whole tables leave it: one row of the shuffle holds all that a task has for a bucket. It knows no watermark
and keeps nothing between batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from keyedwm.windows.buckets import bucket_of
from keyedwm.windows.partials import combine_rows
from keyedwm.windows.plan import Plan
from keyedwm.windows.state import packed

# Columns of a plan that no user named: event time in ms, and what orders rows of the same time.
TIME = "__time"
ORDER = ("topic", "partition", "offset")
# What the text of a control row tells.
CONTROL_TOLD = ("kind", "key", "watermark_ms", "channel", "snapshot", "channels", "offset")
SHIPPED = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("part", pa.int64()),
        pa.field("partials", pa.binary()),
        pa.field("control", pa.string()),
        pa.field("timeless", pa.int64()),
    ]
)
# Rows and bytes that are worth being combined at once.
GROUP_ROWS = 1 << 20
GROUP_BYTES = 1 << 27


def shipped(
    plan: Plan, ids: Sequence[int], task: int, events: Iterable[pa.Table], control: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows to be shuffled (`SHIPPED`).

    ids: of the buckets. task: its number. events: rows with the plan's columns. control: the task's control rows as
    JSON texts; they may come to light as the events are drawn.
    """
    part, timeless = task << 32, 0
    for rows in events:
        timeless += rows.column(plan.time).null_count
        partials = combine_rows(plan, rows)
        if partials.num_rows:
            yield _pieces(partials, plan, ids, part)
            part += 1
    if control or timeless:
        yield _told(control, ids, part, timeless)


def _pieces(partials: pa.Table, plan: Plan, ids: Sequence[int], part: int) -> pa.RecordBatch:
    """One row per bucket that has partials."""
    number = bucket_of([partials.column(name) for name in plan.by], partials.num_rows, len(ids))
    if len(ids) > 1:
        order = np.argsort(number, kind="stable")
        partials, number = partials.take(pa.array(order)).combine_chunks(), number[order]
    first = np.searchsorted(number, np.arange(len(ids) + 1))
    pieces = [(ids[i], first[i], first[i + 1] - first[i]) for i in range(len(ids))]
    pieces = [piece for piece in pieces if piece[2]]
    return _rows(
        buckets=[bucket for bucket, _, _ in pieces],
        part=part,
        partials=[packed(partials.slice(at, count)) for _, at, count in pieces],
    )


def _told(control: Sequence[str], ids: Sequence[int], part: int, timeless: int) -> pa.RecordBatch:
    """One row for each bucket, with all control rows; the first also counts the rows without an event time."""
    text = "[" + ",".join(control) + "]"
    counts = [timeless if bucket == ids[0] else 0 for bucket in ids]
    return _rows(buckets=list(ids), part=part, control=text, timeless=counts)


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
