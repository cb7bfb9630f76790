"""Of the rows of one key the newest counts: in memory, for the next instance, and where parts of a log merge."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.state.keyed_log import KeyedLog, KeyedRows, newest
from keyedwm.operators.state.store import LIMITS, MemoryStore, StateLimits, TableLogs
from tests.operators.laws.small import SMALL

BY = [pa.field("k", pa.string())]


@dataclass(frozen=True, slots=True)
class PlaceCounts(KeyedRows):
    """How many there are at a place; none says that the place is forgotten."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("places",)
    places: Ints
    counts: Ints

    def is_alive(self) -> Flags:
        return self.counts > 0


class Bucket:
    """A log over several batches, of which each builds it anew."""

    def __init__(self, limits: StateLimits = LIMITS) -> None:
        self.store, self._facts = MemoryStore(limits=limits), {}

    def batch(self, puts: list[tuple[str, int, int]], *, tidy: bool) -> dict[tuple[str, int], int]:
        tables = TableLogs(self.store, manifest="note", state=self._facts)
        log = KeyedLog(PlaceCounts, BY, tables, "held")
        for key, place, count in puts:
            log.put_rows(PlaceCounts(log.numbers(pa.table({"k": [key]})), np.array([place]), np.array([count])))
        if tidy:
            log.keys.compact([log])
            log.tidy()
        self.store.apply(tables.drain())
        self._facts = tables.state()
        return counts_by_key(log)


def counts_by_key(log: KeyedLog[PlaceCounts]) -> dict[tuple[str, int], int]:
    keys = log.keys.columns(log.rows.keys)[0].to_pylist()
    return dict(zip(zip(keys, log.rows.places.tolist(), strict=True), log.rows.counts.tolist(), strict=True))


@pytest.mark.parametrize("tidy", [False, True])
def test_the_newest_row_of_a_key_counts_whatever_parts_are_merged_and_written_anew(tidy, seed):
    rng, bucket, expected = Random(seed), Bucket(SMALL), {}
    for _ in range(60):
        puts = [(rng.choice("abcd"), rng.randrange(3), rng.randrange(3)) for _ in range(rng.randrange(4))]
        expected |= {(key, place): count for key, place, count in puts}
        expected = {identity: count for identity, count in expected.items() if count}
        assert bucket.batch(puts, tidy=tidy) == expected
    assert bucket.batch([], tidy=tidy) == expected


def test_a_log_of_which_nothing_counts_any_more_is_dropped():
    bucket = Bucket()
    bucket.batch([("a", 1, 2)], tidy=True)
    assert set(bucket.store.blobs) == {"held"}
    bucket.batch([("a", 1, 0)], tidy=True)
    assert set(bucket.store.blobs) == set()


def test_a_change_of_rows_by_their_places_is_read_by_the_next_instance():
    store = MemoryStore()
    tables = TableLogs(store, manifest="note", state={})
    log = KeyedLog(PlaceCounts, BY, tables, "held")
    log.put_rows(PlaceCounts(log.numbers(pa.table({"k": ["b", "a"]})), np.array([1, 1]), np.array([5, 6])))
    log.change(np.array([1]), PlaceCounts(log.rows.keys[1:], np.array([1]), np.array([9])))
    assert counts_by_key(log) == {("b", 1): 5, ("a", 1): 9}
    store.apply(tables.drain())
    again = KeyedLog(PlaceCounts, BY, TableLogs(store, manifest="note", state=tables.state()), "held")
    assert counts_by_key(again) == {("b", 1): 5, ("a", 1): 9}


def test_of_equal_rows_the_last_one_is_the_newest():
    columns = [np.array([2, 1, 2, 1]), np.array([0, 7, 0, 8])]
    assert newest(columns).tolist() == [1, 3, 2]
    assert newest([np.empty(0, np.int64)]).tolist() == []
