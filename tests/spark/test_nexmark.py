"""Nexmark through the source and windows of our own: the golden results, from events that come out of order.

Here each query is read in one way, some in two; `python -m benchmarks.nexmark` checks every way before it measures.
"""

from __future__ import annotations

import pytest

from benchmarks.nexmark import GOLDEN, IN_VECTORS, KEYEDWM, Reading, collected, golden_trouble, load, sides_of
from tests.tools import cluster_at


@pytest.fixture(scope="module")
def reading(kafka) -> Reading:
    load(cluster_at(kafka.bootstrap), "nexmark-golden", GOLDEN)
    return Reading(kafka.bootstrap, "nexmark-golden", GOLDEN.count * 2 // 3)  # two batches


# With JSON or stage one in the source; of a filter, a window and a join the rows are loaded, too.
BY_SOURCE = [(name, sides_of(name)[-1]) for name in (*IN_VECTORS, "q11")]
BY_SPARK = [(name, KEYEDWM) for name in ("q2", "q5", "q8")]


@pytest.mark.parametrize(("name", "side"), [*BY_SOURCE, *BY_SPARK])
def test_the_results_are_the_golden_ones(name, side, reading, spark, one_bucket):
    rows = collected(spark, reading.frame(spark, side, name))
    assert golden_trouble(name, rows) is None
