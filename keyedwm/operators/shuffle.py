"""Output of stage one to the buckets: partials, divided by bucket, and the control rows, which go to every bucket.
Records that are no events pass through any one of the buckets.

Rule: one row of the shuffle holds a whole table of partials. Stage one knows no watermark and keeps no state between
batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import REJECTED
from keyedwm.operators.exchange_control import pack_control
from keyedwm.operators.exchange_input import ExchangeInput
from keyedwm.operators.state.blobs import packed

# Columns added to every plan: the event time in ms, and the columns that order rows of equal event time.
TIME = "__time"
ORDER = ("topic", "partition", "offset")
EXCHANGE_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("input", pa.int32()),
        pa.field("part", pa.int64()),
        pa.field("partials", pa.binary()),
        pa.field("control", pa.binary()),
        pa.field("null_event_times", pa.int64()),
        pa.field("no_gaps", pa.int64()),
        pa.field("rejected", pa.binary()),
    ]
)
# The most rows and bytes that are combined at once.
GROUP_ROWS = 1 << 20
GROUP_BYTES = 1 << 27


def shipped(
    inputs: Mapping[int, ExchangeInput],
    ids: Sequence[int],
    task: int,
    events: Iterable[Sequence[pa.Table]],
    control: Sequence[ControlRow],
    *,
    rejected: list[pa.Array] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows to be shuffled (`EXCHANGE_SCHEMA`) of inputs that are read together, by their number.

    ids: the ids of the buckets. task: its number. events: the rows of each input, group by group. control: the task's
    control rows. rejected: records that are no events, as values of the column `rejected`. Both lists may grow while
    the events are consumed.
    """
    part = task << 32
    records = [] if rejected is None else rejected
    null_event_times, no_gaps = dict.fromkeys(inputs, 0), dict.fromkeys(inputs, 0)
    for group in events:
        for (number, plan), rows in zip(inputs.items(), group, strict=True):
            null_event_times[number] += plan.null_event_times(rows)
            no_gaps[number] += plan.rows_without_gap(rows)
            partials = plan.exchange_rows(rows)
            if partials.num_rows:
                yield _pieces(partials, plan, ids, part, number)
        yield from _rejected_row(records, ids, part)
        part += 1
    yield from _rejected_row(records, ids, part)
    for number in inputs:
        left_out = (null_event_times[number], no_gaps[number])
        if control or any(left_out):
            yield _control(control, ids, part, left_out, number)


def _rejected_row(rejected: list[pa.Array], ids: Sequence[int], part: int) -> Iterator[pa.RecordBatch]:
    """Yield the rejected records so far, for one bucket after the other."""
    if rejected:
        records = pa.table({REJECTED: pa.chunked_array(rejected)})
        rejected.clear()
        bucket = ids[((part >> 32) + part) % len(ids)]
        yield _rows(buckets=[bucket], input_number=0, part=part, rejected=[packed(records)])


def _pieces(
    partials: pa.Table,
    plan: ExchangeInput,
    ids: Sequence[int],
    part: int,
    input_number: int,
) -> pa.RecordBatch:
    """One row per bucket that has partials."""
    number = plan.buckets(partials, len(ids))
    if len(ids) > 1:
        order = np.argsort(number, kind="stable")
        partials, number = partials.take(pa.array(order)).combine_chunks(), number[order]
    first = np.searchsorted(number, np.arange(len(ids) + 1))
    pieces = [(ids[i], first[i], first[i + 1] - first[i]) for i in range(len(ids))]
    pieces = [piece for piece in pieces if piece[2]]
    return _rows(
        buckets=[bucket for bucket, _, _ in pieces],
        input_number=input_number,
        part=part,
        partials=[packed(partials.slice(at, count)) for _, at, count in pieces],
    )


def _control(
    control: Sequence[ControlRow], ids: Sequence[int], part: int, left_out: tuple[int, int], input_number: int
) -> pa.RecordBatch:
    """One row for each bucket, with all control rows; the first also counts the rows that were dropped.

    left_out: the numbers of rows without an event time, and of rows without a gap.
    """
    null_event_times, no_gaps = ([count if bucket == ids[0] else 0 for bucket in ids] for count in left_out)
    return _rows(
        buckets=list(ids),
        input_number=input_number,
        part=part,
        control=pack_control(control),
        null_event_times=null_event_times,
        no_gaps=no_gaps,
    )


def _rows(
    *,
    buckets: list[int],
    input_number: int,
    part: int,
    partials: list[bytes] | None = None,
    control: bytes | None = None,
    null_event_times: list[int] | None = None,
    no_gaps: list[int] | None = None,
    rejected: list[bytes] | None = None,
) -> pa.RecordBatch:
    count = len(buckets)
    arrays = [
        pa.array(buckets, pa.int32()),
        pa.array([input_number] * count, pa.int32()),
        pa.array([part] * count, pa.int64()),
        pa.nulls(count, pa.binary()) if partials is None else pa.array(partials, pa.binary()),
        pa.array([control] * count, pa.binary()),
        pa.array(null_event_times or [0] * count, pa.int64()),
        pa.array(no_gaps or [0] * count, pa.int64()),
        pa.nulls(count, pa.binary()) if rejected is None else pa.array(rejected, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EXCHANGE_SCHEMA)
