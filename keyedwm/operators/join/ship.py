"""What a join sends to its buckets: the rows of both sides, divided by the hash of their keys, and the control rows.

Rule: one row of the shuffle holds a whole table of one side's rows; control rows go to every bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous
from keyedwm.core.control_row import ControlRow, encode_rows
from keyedwm.operators.join.keys import bucket_numbers, key_hashes
from keyedwm.operators.join.plan import JoinSide
from keyedwm.operators.state.blobs import packed

SHIPPED = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("side", pa.int32()),
        pa.field("part", pa.int64()),
        pa.field("rows", pa.binary()),
        pa.field("control", pa.string()),
    ]
)


def ship_side(
    side: JoinSide,
    number: int,
    ids: Sequence[int],
    *,
    task: int,
    events: Iterable[pa.Table],
    control: Sequence[ControlRow],
    first_part: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows to be shuffled (`SHIPPED`).

    number: of the side. ids: of the buckets. task: its number. events: rows with the side's columns and times. control:
    the task's control rows; they may come to light as the events are drawn. first_part: how many tables of the side the
    task has shipped before.
    """
    part = (task << 32) + first_part
    for rows in events:
        if rows.num_rows:
            yield _pieces(side, rows, number, ids, part)
            part += 1
    if control:
        count = len(ids)
        arrays = [pa.array(ids, pa.int32()), *_same(count, number, part), pa.nulls(count, pa.binary())]
        yield pa.RecordBatch.from_arrays([*arrays, pa.repeat(encode_rows(control), count)], schema=SHIPPED)


def staged(side: JoinSide, rows: pa.Table) -> pa.Table:
    """Return rows with the hash of their keys, in the schema that the operator takes."""
    keys = [contiguous(rows[name]) for name in side.on]
    known = np.ones(rows.num_rows, bool)
    for key in keys:
        if key.null_count:
            known &= key.is_valid().to_numpy(zero_copy_only=False)
    hashes = np.zeros(rows.num_rows, np.int64)
    kept = keys if known.all() else [key.filter(pa.array(known)) for key in keys]
    hashes[known] = key_hashes(kept, int(known.sum()))
    hashed = rows.add_column(len(side.schema), "", pa.array(hashes, mask=~known))
    return pa.Table.from_arrays(hashed.columns, schema=side.staged)


def _pieces(side: JoinSide, rows: pa.Table, number: int, ids: Sequence[int], part: int) -> pa.RecordBatch:
    """One row per bucket that has rows."""
    rows = staged(side, rows)
    buckets = _buckets(side, rows, len(ids))
    if len(ids) > 1:
        order = np.argsort(buckets, kind="stable")
        rows, buckets = rows.take(pa.array(order)).combine_chunks(), buckets[order]
    first = np.searchsorted(buckets, np.arange(len(ids) + 1))
    used = [at for at in range(len(ids)) if first[at + 1] > first[at]]
    blobs = [packed(rows.slice(first[at], first[at + 1] - first[at])) for at in used]
    arrays = [pa.array([ids[at] for at in used], pa.int32()), *_same(len(used), number, part)]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array(blobs, pa.binary()), pa.nulls(len(used), pa.string())], schema=SHIPPED
    )


def _buckets(side: JoinSide, rows: pa.Table, count: int) -> Ints:
    """The bucket of each row; rows with a null key match nothing, they are spread by their time."""
    hashes = contiguous(rows.column(len(side.schema)))
    if hashes.null_count:
        times = pc.fill_null(contiguous(rows[side.times[0]]), 0)
        hashes = pc.fill_null(hashes, pc.shift_left_checked(pc.bit_wise_and(times, 2**30 - 1), 32))
    return bucket_numbers(hashes.to_numpy(), count)


def _same(count: int, number: int, part: int) -> list[pa.Array]:
    return [pa.array([number] * count, pa.int32()), pa.array([part] * count, pa.int64())]
