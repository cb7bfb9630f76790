"""Nexmark through the source and windows of our own: the golden results, from events that come out of order."""

from __future__ import annotations

import pytest

from benchmarks.nexmark import GOLDEN, QUERIES, SPARK, Reading, collected, golden_trouble, load, sides_of
from tests.tools import cluster_at


@pytest.fixture(scope="module")
def reading(kafka) -> Reading:
    load(cluster_at(kafka.bootstrap), "nexmark-golden", GOLDEN)
    return Reading(kafka.bootstrap, "nexmark-golden", GOLDEN.count // 2)


OURS = [(name, side) for name in QUERIES for side in sides_of(name) if side != SPARK]


@pytest.mark.parametrize(("name", "side"), OURS)
def test_the_results_are_the_golden_ones(name, side, reading, spark, bucket_conf):
    rows = collected(spark, reading.frame(spark, side, name))
    assert golden_trouble(name, rows) is None
