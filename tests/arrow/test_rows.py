from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.arrow.rows import split_control
from keyedwm.core.rows import CONTROL


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
