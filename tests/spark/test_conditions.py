"""Random conditions over odd values of all types mean what they mean in Spark."""

from __future__ import annotations

from tests.spark.conditions import differences


def test_conditions_are_true_and_fail_where_sparks_own_are_and_do(spark, seed):
    assert list(differences(spark, seed, 50)) == []
