"""docs/design/architecture.md says what the code does: its picture is drawn again, its functions are looked up."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXT = (DOCS / "design" / "architecture.md").read_text()
PAGES = [ROOT / "CONTRIBUTING.md", DOCS / "reference" / "glossary.md", DOCS / "reference" / "promises.md"]
PAGES += sorted((DOCS / "design").glob("*.md"))
PATH_STEP = re.compile(r"`([\w/]+\.py)` `([\w.]+)`")
FOLDERS = "keyedwm|pyspark_wm_source|pyspark_wm_sink|conformance|tests|benchmarks|examples|docs"
FILE = re.compile(rf"`((?:{FOLDERS})(?:/[\w.-]+)*)/?`")


@functools.cache
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packages", DOCS / "figures" / "packages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names(path: str) -> set[str]:
    """The functions, classes and methods of a module, methods as `Class.method`."""
    defined_names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined_names.add(node.name)
        if isinstance(node, ast.ClassDef):
            defined_names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return defined_names


def test_the_picture_shows_the_imports_of_today():
    assert (DOCS / "figures" / "packages.svg").read_text() == drawing().picture(), (
        "run: python docs/figures/packages.py"
    )
    assert "](../figures/packages.svg)" in TEXT


def test_every_room_is_in_the_picture_and_in_the_table_of_drawing():
    packages = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("keyedwm/*/__init__.py")}
    assert packages <= set(drawing().BOXES)
    assert [package for package in drawing().BOXES if f"| `{package}` |" not in TEXT] == []


def test_arrows_point_down():
    places = drawing().PLACES
    edges = [(package, other) for package, others in drawing().direct(drawing().imports()).items() for other in others]
    assert [(package, other) for package, other in edges if places[package][0] > places[other][0]] == []


def test_the_data_paths_pass_functions_that_exist():
    steps = PATH_STEP.findall(TEXT)
    assert len(steps) > 40
    missing = [(path, name) for path, name in steps if not (ROOT / path).exists() or name not in names(path)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_exist(page):
    assert [name for name in FILE.findall(page.read_text()) if not (ROOT / name).exists()] == []
