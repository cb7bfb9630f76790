"""Nexmark through the source and windows of our own: the golden results, from events that come out of order."""

from __future__ import annotations

import pytest

from benchmarks.nexmark import GOLDEN, OURS, Reading, collected, golden_trouble, load
from benchmarks.nexmark_queries import QUERIES
from tests.tools import cluster_at


@pytest.fixture(scope="module")
def reading(kafka) -> Reading:
    load(cluster_at(kafka.bootstrap), "nexmark-golden", GOLDEN)
    return Reading(kafka.bootstrap, "nexmark-golden", GOLDEN.count // 2)


@pytest.mark.parametrize("name", list(QUERIES))
def test_the_results_are_the_golden_ones(name, reading, spark, bucket_conf):
    rows = collected(spark, reading.frame(spark, OURS, name))
    assert golden_trouble(name, rows) is None
