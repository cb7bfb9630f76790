from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.rows import RowBuilder, pack, split_control, timestamps
from keyedwm.core.control_row import channel_row
from keyedwm.core.rows import CONTROL, ControlKind


def marked(marks: list[bool], chunk: int) -> pa.Table:
    kinds = pa.array(
        [{"kind": "idle"} if is_control else None for is_control in marks], pa.struct({"kind": pa.string()})
    )
    table = pa.table({"number": list(range(len(marks))), CONTROL: kinds})
    return pa.Table.from_batches(table.to_batches(max_chunksize=chunk), schema=table.schema)


@pytest.mark.parametrize("every", [1, 2, 3, 100, 1_000])
@pytest.mark.parametrize("chunk", [7, 2_000])
def test_events_and_control_rows_part_in_order_whether_these_are_few_or_many(every, chunk):
    for first in range(min(every, 3)):
        marks = [number % every == first for number in range(2_000)]
        events, control = split_control(marked(marks, chunk))
        assert control.column("number").to_pylist() == [n for n, mark in enumerate(marks) if mark]
        assert events.column("number").to_pylist() == [n for n, mark in enumerate(marks) if not mark]


def test_rows_without_control_rows_are_all_events():
    events, control = split_control(marked([False] * 5, 2))
    assert (events.num_rows, control.num_rows) == (5, 0)
    assert [part.num_rows for part in split_control(marked([], 2))] == [0, 0]


def test_rows_of_more_than_two_gib_are_packed_without_losing_one():
    (record,) = pa.table({"value": [b"x" * (16 << 20)]}).to_batches()
    packed = [batch.num_rows for batch in pack(record for _ in range(140))]
    assert sum(packed) == 140


def test_a_packed_batch_is_bounded_by_bytes_unless_one_batch_alone_is_larger():
    def batch(megabytes: int) -> pa.RecordBatch:
        return pa.record_batch({"value": [b"x" * (megabytes << 20)]})

    packed = [batch.num_rows for batch in pack([batch(30), batch(30), batch(30), batch(100), batch(1), batch(1)])]
    assert packed == [2, 1, 1, 2]


def test_an_interleaved_batch_of_many_chunks_stays_one_batch_in_order():
    builder = RowBuilder(pa.schema([("offset", pa.int64())]), {})
    events = pa.record_batch({"offset": list(range(10))})
    rows = [channel_row(ControlKind.IDLE, ("t", 0), 100 + at, "s") for at in (0, 5, 10)]
    batch = builder.interleave(events, rows, [0, 5, 10])
    assert batch.column(0).to_pylist() == [100, 0, 1, 2, 3, 4, 105, 5, 6, 7, 8, 9, 110]


def test_a_record_timestamp_that_no_timestamp_can_hold_is_null_and_never_wraps():
    nanoseconds = 1_731_000_000_000_000_000
    column = timestamps(np.array([5, nanoseconds, -1, -nanoseconds, 2**63 - 1]), None).cast(pa.int64())
    assert column.to_pylist() == [5_000, None, -1_000, None, None]
    both = timestamps(np.array([5, nanoseconds, 7]), np.array([False, True, True]))
    assert both.cast(pa.int64()).to_pylist() == [None, None, 7_000]
