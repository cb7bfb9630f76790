"""The content of rows as one number: of every type, whatever the order and the cut, and no other rows have it."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from keyedwm.arrow.hashing import MODULUS, content_sum, hashed, hashed_rows

COLUMNS = {
    "whole": pa.array([1, None, 3, 4]),
    "small": pa.array([1, 2, None, -4], pa.int8()),
    "float": pa.array([1.5, None, float("nan"), 0.0]),
    "flag": pa.array([True, None, False, True]),
    "text": pa.array(["x", None, "eight by", "longer than eight bytes"]),
    "large text": pa.array(["x", None, "y", ""], pa.large_string()),
    "bytes": pa.array([b"ab", None, b"", b"\0"]),
    "fixed bytes": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "time": pa.array([1, 2, None, 4], pa.timestamp("us", "UTC")),
    "date": pa.array([dt.date(2020, 1, 1), None, None, dt.date(2021, 1, 1)]),
    "decimal": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("3.40"), decimal.Decimal("-1.00")]),
    "list": pa.array([[1, 2], None, [], [2, 1]]),
    "fixed list": pa.array([[1, 2], None, [3, 4], [2, 1]], pa.list_(pa.int8(), 2)),
    "headers": pa.array([[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}], []]),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}, {"a": 4, "b": None}]),
    "map": pa.array([[("k", 1)], None, [("a", None)], []], pa.map_(pa.string(), pa.int32())),
    "words": pa.array(["a", None, "b", "c"]).dictionary_encode(),
}
ROWS = pa.table(COLUMNS)


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 3, 0, 2]])
def test_the_order_of_rows_does_not_matter(order):
    assert content_sum(ROWS.take(order)) == content_sum(ROWS)


@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 2, 3), (0, 3)])
def test_the_cut_into_tables_does_not_matter(cuts):
    parts = [ROWS.slice(start, end - start) for start, end in zip((0, *cuts), (*cuts, 4), strict=True)]
    assert sum(map(content_sum, parts)) % MODULUS == content_sum(ROWS)
    assert content_sum(pa.concat_tables(parts[::-1])) == content_sum(ROWS)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("order", [[0, 0, 2, 3], [0, 1, 2, 2], [1, 1, 2, 3]])
def test_another_value_in_any_column_is_another_content(name, order):
    other = ROWS.set_column(ROWS.column_names.index(name), name, ROWS.column(name).take(order))
    assert content_sum(other) != content_sum(ROWS)


def test_values_that_change_their_rows_are_another_content():
    swapped = ROWS.set_column(0, "whole", ROWS.column("whole").take([2, 1, 0, 3]))
    assert content_sum(swapped) != content_sum(ROWS)


def test_bytes_that_move_over_the_border_of_two_values_are_another_content():
    def pair(left, right):
        return content_sum(pa.table({"a": [left], "b": [right]}))

    assert len({pair("ab", "c"), pair("a", "bc"), pair("", "abc"), pair(None, "abc"), pair("abc", None)}) == 5


def test_nothing_is_nothing():
    assert content_sum(ROWS.slice(0, 0)) == 0
    assert content_sum(pa.table({"n": pa.nulls(2)})) == 2 * content_sum(pa.table({"n": pa.nulls(1)})) % MODULUS


def test_hashes_of_keys_and_of_contents_stay_those_of_0_2_0():
    texts, numbers = pa.array(["a", "Zürich", ""]), pa.array([1, -2])
    assert hashed(texts).tolist() == [6857225946766476583, 11096000129251378253, 14087677454934409008]
    assert hashed(numbers).tolist() == [10451216379200822465, 17519071339639777313]
    assert hashed(pa.array([1.5, 0.0])).tolist() == [15481881892811333770, 16294208416658607535]
    rows = {"k": pa.array(["a", None]), "n": pa.array([1, 2])}
    assert hashed_rows(list(rows.values()), 2).tolist() == [4970742538987414081, 15319343049838170038]
    assert content_sum(pa.table(rows)) == 360104708783647430
