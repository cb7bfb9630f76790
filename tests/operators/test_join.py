"""The join against brute force, however the input is cut and wherever a restart falls.

More of it: python -m tests.operators.test_join 10000
"""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest

from keyedwm.operators.join.plan import LEFT
from tests.operators.joins import DrivenJoin, expected, random_plan, random_steps, row_counts, split_steps

SEEDS = 150
EACH = 25


def check(seed: int) -> None:
    """One random join: its rows are those of brute force, and none is behind a watermark that was passed on."""
    rng = random.Random(seed)
    plan = random_plan(rng)
    steps = random_steps(rng, plan, rng.randrange(5, 25))
    expected_rows = expected(plan, steps)
    join = DrivenJoin(plan, restarts=rng.random() < 0.6)
    result_counts: Counter = Counter()
    passed_on: dict[int, int] = {}
    for step in split_steps(rng, steps) if rng.random() < 0.5 else steps:
        rows = row_counts(join.step(step))
        result_counts += rows
        for row in rows:
            row_fields = dict(row)
            for axis, watermark_ms in passed_on.items():
                time_ms = row_fields[f"event_time_{plan.axes[axis].name}"]
                assert time_ms is None or row_fields.get("late") or time_ms >= watermark_ms
        now = join.operator.output_watermarks_ms(None)
        assert all(now[axis] >= before for axis, before in passed_on.items())
        passed_on = now
    assert result_counts + row_counts(join.end()) == expected_rows
    assert not join.operator.buffered_rows(LEFT)


@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
def test_a_join_is_exact_and_never_late_behind_its_own_watermarks(first):
    for seed in range(first, first + EACH):
        check(seed)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        check(number)
    print(f"{sys.argv[1]} joins are as brute force has them")
