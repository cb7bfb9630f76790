"""No test changes a constant of the product: limits are passed in, so a test runs the code that users run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.system.house.parsing import trees_with

TESTS = Path(__file__).parents[2]
CONSTANT = re.compile(r"(?:.*\.)?_?[A-Z][A-Z0-9_]+")
# Benchmarks and the tests' own kit are no product.
LEFT_OUT = {"benchmarks"}
OF_THE_KIT = {("testing/test_object_store.py", "_REQUIREMENTS")}
# What no value carries yet: how much text a column holds, the slices of rows that wait, the rows of a group.
STILL = {
    ("operators/test_large_keys.py", "_CHUNK_BYTES"),
    ("operators/test_per_key_process.py", "SLICE_MS"),
    ("spark/test_join_batch.py", "GROUP_ROWS"),
}


def patched(tree: ast.Module) -> Iterator[str]:
    """The constants that code sets by name: with `setattr`, or with `patch` and its kin."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {"setattr", "patch", "object"}:
            texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            yield from (text.rpartition(".")[2] for text in texts if CONSTANT.fullmatch(text))


def test_no_test_patches_a_constant_of_the_product():
    files = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in LEFT_OUT]
    found = {
        (path.relative_to(TESTS).as_posix(), name)
        for path, tree in trees_with(r"\b(?:setattr|patch)\b", files)
        for name in patched(tree)
    }
    assert found == OF_THE_KIT | STILL


def test_each_way_to_patch_one_is_found():
    code = (
        'm.setattr(a, "_MOST", 1)\nm.setattr("a.b.MOST", 1)\nmock.patch("a.MOST", 1)\nmock.patch.object(a, "MOST", 1)\n'
    )
    assert list(patched(ast.parse(code))) == ["_MOST", "MOST", "MOST", "MOST"]
    assert list(patched(ast.parse('m.setattr(a, "Cluster", b)\nm.setattr(os, "access", c)'))) == []
