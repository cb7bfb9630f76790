"""The house rules on files that no other tool checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SHIPPED = sorted(
    path
    for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "conformance")
    for path in (ROOT / room).rglob("*.py")
)
FILE_LINES = 400
FUNCTION_LINES = 60


def nodes(path: Path, *kinds: type[ast.AST]) -> list[ast.AST]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def named(path: Path, where: object) -> str:
    return f"{path.relative_to(ROOT)}: {where}"


def test_the_shipped_files_were_found():
    assert len(SHIPPED) > 10


def test_a_file_is_read_in_one_sitting():
    lines = {path: len(path.read_text().splitlines()) for path in SHIPPED}
    assert [named(path, count) for path, count in lines.items() if count > FILE_LINES] == []


def test_a_function_fits_a_screen():
    functions = [(path, f) for path in SHIPPED for f in nodes(path, ast.FunctionDef, ast.AsyncFunctionDef)]
    assert [named(path, f.name) for path, f in functions if f.end_lineno - f.lineno >= FUNCTION_LINES] == []


def test_nothing_is_left_to_do():
    assert [named(path, mark) for path in SHIPPED for mark in re.findall(r"TODO|FIXME|XXX", path.read_text())] == []


def test_every_handler_names_what_it_handles():
    handlers = [(path, handler) for path in SHIPPED for handler in nodes(path, ast.ExceptHandler)]
    assert [named(path, handler.lineno) for path, handler in handlers if handler.type is None] == []


def test_numbers_are_made_distinct_by_sorting():
    """Without an index or a count, `np.unique` hashes first: ten to sixty times the time of a sort."""
    calls = [
        (path, call) for path in SHIPPED for call in nodes(path, ast.Call) if ast.unparse(call.func) == "np.unique"
    ]
    assert [named(path, call.lineno) for path, call in calls if not call.keywords] == []
