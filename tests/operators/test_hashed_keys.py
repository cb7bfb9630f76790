"""Keys by their hashes: equal keys have one number, keys of one hash have two, and rows at rest are found unread."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.operators.state import hashed_keys
from keyedwm.operators.state.hashed_keys import HashedKeys, by_hash, hash_of
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns

TYPES = {
    pa.string(): ["a", "b", "", "longer than eight bytes", "longer than eight bytez", "ü", None],
    pa.binary(): [b"a", b"a\x00", b"", None],
    pa.int64(): [0, -1, 2**62, None],
    pa.float64(): [0.0, -0.0, math.nan, 1.5, None],
    pa.bool_(): [True, False, None],
    pa.timestamp("us", "UTC"): [0, 10**15, None],
}


def tables(seed, kinds, count=6):
    rng = random.Random(seed)
    for _ in range(count):
        rows = rng.randrange(40)
        columns = [pa.array([rng.choice(TYPES[kind]) for _ in range(rows)], kind) for kind in kinds]
        yield pa.table(columns, names=[f"k{at}" for at in range(len(kinds))])


@pytest.fixture(params=[None, 0, 3], ids=["hashes of 64 bits", "one hash for all", "four hashes"])
def hashes(request, monkeypatch):
    """Hashes, as they are or so short that many keys have one."""

    def short(columns, rows):
        return hash_of(columns, rows) & request.param

    if request.param is not None:
        monkeypatch.setattr(hashed_keys, "hash_of", short)
    return hash_of if request.param is None else short


@pytest.mark.parametrize("kinds", [*((kind,) for kind in TYPES), (pa.string(), pa.int64())], ids=str)
def test_numbers_are_those_of_a_dictionary_whatever_the_hashes_are(hashes, kinds):
    fields = [pa.field(f"k{at}", kind) for at, kind in enumerate(kinds)]
    plain, keys = KeyDictionary(fields), HashedKeys(fields)
    names, batches = [field.name for field in fields], []
    for table in tables(str(kinds), kinds):
        columns = key_columns(names, table)
        known = keys.count
        numbers = keys.numbers(columns, table.num_rows)
        plain_numbers = plain.numbers(columns, table.num_rows)
        same = {*zip(numbers.tolist(), plain_numbers.tolist(), strict=True)}
        assert len(same) == len({hashed_number for hashed_number, _ in same}) == len({other for _, other in same})
        assert keys.count == plain.count
        for number, row in zip(numbers.tolist(), pa.table(columns, names=names).to_pylist(), strict=True):
            key_values = [column[number].as_py() for column in keys.wide_columns(np.arange(keys.count))]
            assert str(key_values) == str(list(row.values()))
        batches.append((columns, table.num_rows))
        for columns_then, rows in batches:
            for first in (0, known):
                places, known_numbers = keys.find(columns_then, hashes(columns_then, rows), first)
                again = keys.numbers(columns_then, rows)
                assert known_numbers.tolist() == [number for number in again.tolist() if number >= first]
                assert again[places].tolist() == known_numbers.tolist()
    other = HashedKeys(fields)
    other.numbers(*batches[0])
    before = other.count
    for columns_then, rows in batches:
        at_rest = [column.cast(kind) for column, kind in zip(columns_then, kinds, strict=True)]
        places, known_numbers = other.find(at_rest, hashes(columns_then, rows))
        assert other.count == before
        assert known_numbers.tolist() == [
            number for number in other._plain().numbers(columns_then, rows) if number < before
        ]


def test_ranks_are_those_of_the_texts():
    for texts in (
        ["b", "a", "ab", "", "abc"],
        ["device-2", "device-10", "device-1"],
        ["same prefix 1", "same prefix 2"],
    ):
        keys = HashedKeys([pa.field("k", pa.string())])
        numbers = keys.numbers([pa.array(texts, pa.large_string())], len(texts))
        assert np.argsort(keys.ranks(numbers)).tolist() == np.argsort(np.array(texts)).tolist()
    keys = HashedKeys([pa.field("k", pa.binary())])
    texts = [b"a\x00", b"a", b"12345678b", b"12345678a"]
    numbers = keys.numbers([pa.array(texts, pa.large_binary())], len(texts))
    assert np.argsort(keys.ranks(numbers)).tolist() == [3, 2, 1, 0]


def test_rows_of_one_hash_keep_their_order():
    for rows in (10, 500):
        row_order = by_hash(np.arange(rows) % 3 - 1)
        assert row_order.tolist() == sorted(range(rows), key=lambda row: row % 3)
