"""Keys of more text than one Arrow array holds: chunks and blobs have bounds, which are lowered here."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
import pytest

from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.panes import Early
from keyedwm.operators.state import key_dictionary
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns
from keyedwm.operators.state.store import LIMITS, StateLimits
from tests.operators.streams import Event, Restarted, plan_of, rows_of, table

SUM = (("total", agg.sum("n")),)


def rows_and_largest_blob(plan, limits=LIMITS) -> tuple[list[dict], int]:
    """What comes out, and the size of the largest blob."""
    operator, result_rows, largest = Restarted(plan, limits), [], 0
    for step in range(6):
        rows = [
            Event(f"{'long' * (1 + number % 9)}-{number % 160}", 10 * step + number % 17, number, None, None, number)
            for number in range(400)
        ]
        result_rows += rows_of(operator.take(combine_rows(plan, table(rows))))
        result_rows += rows_of(operator.advance(10 * step - 5))
        largest = max(largest, *(len(blob) for name, blob in operator.blobs.items() if name != "note"))
    return [*result_rows, *rows_of(operator.complete())], largest


@pytest.mark.parametrize(
    ("window", "settings"),
    [
        (SlidingWindow(20, 5), {}),
        (SlidingWindow(20, 5), {"early": Early(rows=2), "lateness_ms": 7}),
        (SessionWindow(6), {}),
        (SessionWindow(6), {"lateness_ms": 7}),
    ],
    ids=str,
)
def test_columns_in_chunks_and_blobs_in_pieces_give_the_same(window, settings):
    plan = plan_of(window, aggregates=SUM, **settings)
    expected_rows, whole = rows_and_largest_blob(plan)
    with mock.patch.object(key_dictionary, "_CHUNK_BYTES", whole // 3):
        result_rows, largest = rows_and_largest_blob(plan, StateLimits(blob_bytes=whole // 3))
    assert result_rows == expected_rows
    assert largest < whole


def test_texts_are_known_with_64_bit_offsets_and_leave_in_chunks_of_the_type_that_was_given():
    keys = KeyDictionary([pa.field("k", pa.string())])
    parts = pa.table({"k": pa.chunked_array([["a" * 50], ["b" * 50, None]])})
    columns = key_columns(("k",), parts)
    assert columns[0].type == pa.large_string()
    numbers = keys.numbers(columns, 3)
    with mock.patch.object(key_dictionary, "_CHUNK_BYTES", 60):
        (column,) = keys.columns(numbers)
    assert (column.num_chunks, column.type, column.to_pylist()) == (2, pa.string(), ["a" * 50, "b" * 50, None])
