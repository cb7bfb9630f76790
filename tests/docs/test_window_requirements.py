"""tests/operators/README.md: every requirement once, in order, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| W(\d+) \| ([^|]+) \| ([^|]+) \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "tests" / "operators" / "README.md").read_text())
NUMBERS = [
    *range(1, 11), *range(11, 20), *range(20, 26), *range(30, 37), *range(40, 54), *range(60, 67), *range(70, 74),
    *range(80, 87), *range(90, 95), *range(100, 108),
]  # fmt: skip
STATES = {"✓", "other", "partly", "not yet"}


def test_every_requirement_stands_in_the_table_once():
    assert [int(number) for number, *_ in ROWS] == NUMBERS


@pytest.mark.parametrize(
    ("number", "_requirement", "state", "reference", "how"), ROWS, ids=[f"W{row[0]}" for row in ROWS]
)
def test_a_requirement_names_a_test_that_exists_or_is_not_met_yet(number, _requirement, state, reference, how):
    assert state in STATES
    if state == "not yet":
        assert not reference.strip()
        return
    if state != "✓":
        assert how.strip(), f"W{number}: say how, or why not"
    file, _, test = reference.strip().strip("`").partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert not test or test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
