"""The house rules on files that no other tool checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    path
    for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "conformance")
    for path in (ROOT / room).rglob("*.py")
)
FILE_LINES = 400
FUNCTION_LINES = 60

each_file = pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))


def nodes(path: Path, *kinds: type[ast.AST]) -> list[ast.AST]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def test_the_shipped_files_were_found():
    assert len(SHIPPED) > 10


@each_file
def test_a_file_is_read_in_one_sitting(path):
    assert len(path.read_text().splitlines()) <= FILE_LINES


@each_file
def test_a_function_fits_a_screen(path):
    functions = nodes(path, ast.FunctionDef, ast.AsyncFunctionDef)
    assert [f.name for f in functions if f.end_lineno - f.lineno >= FUNCTION_LINES] == []


@each_file
def test_nothing_is_left_to_do(path):
    assert re.findall(r"TODO|FIXME|XXX", path.read_text()) == []


@each_file
def test_every_handler_names_what_it_handles(path):
    assert [handler.lineno for handler in nodes(path, ast.ExceptHandler) if handler.type is None] == []
