"""The house rules on files that no other tool checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.system.house.parsing import trees_with

ROOT = Path(__file__).parents[3]
SHIPPED = sorted(
    path
    for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "conformance")
    for path in (ROOT / room).rglob("*.py")
)
FILE_LINES = 400
FUNCTION_LINES = 60


def named(path: Path, where: object) -> str:
    return f"{path.relative_to(ROOT)}: {where}"


def test_the_shipped_files_were_found():
    assert len(SHIPPED) > 10


def test_a_file_is_read_in_one_sitting():
    lines = {path: len(path.read_text().splitlines()) for path in SHIPPED}
    assert [named(path, count) for path, count in lines.items() if count > FILE_LINES] == []


def test_a_function_fits_a_screen():
    long = [
        named(path, node.name)
        for path, tree in trees_with(rf"(?:.*\n){{{FUNCTION_LINES}}}", SHIPPED)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]
    assert long == []


def test_nothing_is_left_to_do():
    assert [named(path, mark) for path in SHIPPED for mark in re.findall(r"TODO|FIXME|XXX", path.read_text())] == []


def test_numbers_are_made_distinct_by_sorting():
    """Without an index or a count, `np.unique` hashes first: ten to sixty times the time of a sort."""
    hashing = [
        named(path, node.lineno)
        for path, tree in trees_with(r"\bunique\b", SHIPPED)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and not node.keywords and ast.unparse(node.func) == "np.unique"
    ]
    assert hashing == []
