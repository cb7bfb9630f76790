"""The window store's comparison: its answer is that of plain Python, and what it says of bytes holds when small."""

from __future__ import annotations

import json
import statistics

import pytest

from benchmarks import measure, store
from benchmarks.measure import FIRST_MS, PARTITIONS


def test_the_answer_is_that_of_plain_python(monkeypatch):
    monkeypatch.setattr(store, "STREAM", store.Stream(60_000, 60_000, keys=7, per_ms=1))
    store.answer.cache_clear()
    records = 150_000
    found: dict[tuple[int, int], list[int]] = {}
    for number, key in enumerate(store.STREAM.numbers(records).tolist()):
        found.setdefault((key, (FIRST_MS + number) // 60_000 * 60_000), []).append(number // PARTITIONS)
    doubled = {place: int(2 * statistics.median(offsets)) for place, offsets in found.items()}
    checksum = sum(
        (key * store._KEY_FACTOR + start_ms) % store._PLACES * (1 + twice) % store._PRIME
        for (key, start_ms), twice in doubled.items()
    )
    assert store.answer(records) == {
        "results": len(found), "doubled": sum(doubled.values()), "checksum": checksum
    }  # fmt: skip
    store.answer.cache_clear()


@pytest.fixture
def figures(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "RESULTS", tmp_path)

    def of(name: str) -> dict:
        return json.loads((tmp_path / f"{name}.json").read_text())["runs"]["keyedwm"][0]

    return of


def test_a_message_held_takes_little_more_than_in_arrow(figures):
    store.weigh(100_000, 1)
    assert 0.5 < figures("store-bytes")["of_arrow"] <= 1.3


def test_a_late_message_reads_its_slice_and_not_the_store(figures):
    store.late(600_000, 1)
    told = figures("store-late")
    assert told["store_bytes"] > 5 * told["slice_bytes"]
    assert told["slice_bytes"] <= told["read_bytes"]
    assert told["of_slice"] < 1.2
