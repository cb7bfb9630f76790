"""What is proven is what runs: the core holds nothing that no product path uses. Models for tests stand elsewhere.

A static walk: from the modules of the product outside the core, over imports, to every module of the core; and from the
names that those modules use, over the definitions that use other names, to every class and function of the core.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
CORE = "keyedwm.core"
Definition = ast.ClassDef | ast.FunctionDef


@functools.cache
def product() -> dict[str, ast.Module]:
    """Return the tree of each module of the product."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.parent != ROOT / "keyedwm" / "testing"
    }


def is_core(module: str) -> bool:
    return module.startswith(f"{CORE}.")


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules, and names in modules that may be modules themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def named(nodes: Iterable[ast.AST]) -> set[str]:
    """Every name that is read, called, or given as a keyword."""
    found = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def names_in_use(trees: dict[str, ast.Module]) -> tuple[set[str], set[str]]:
    """The names that the product uses, following the core's own definitions; and those of the public definitions."""
    definitions: dict[str, list[Definition]] = {}
    used: set[str] = set()
    for module, tree in trees.items():
        inside = [node for node in tree.body if isinstance(node, Definition)] if is_core(module) else []
        for node in inside:
            definitions.setdefault(node.name, []).append(node)
        used |= named(node for node in tree.body if node not in inside)
    followed: set[str] = set()
    while left := (used & definitions.keys()) - followed:
        for name in left:
            used |= named(definitions[name])
        followed |= left
    return used, {name for name in definitions if not name.startswith("_")}


def reached(trees: dict[str, ast.Module]) -> set[str]:
    """The core's modules that the rest of the product imports, directly or through each other."""
    found: set[str] = set()
    todo = [module for module in trees if not is_core(module)]
    while todo:
        for name in imported(trees[todo.pop()]):
            if is_core(name) and name in trees and name not in found:
                found.add(name)
                todo.append(name)
    return found


def test_every_module_of_the_core_is_reached_by_the_product():
    modules = {module for module in product() if is_core(module)}
    assert len(modules) > 10
    assert modules - reached(product()) == set()


def test_every_public_class_and_function_of_the_core_is_named_in_product_code():
    used, public = names_in_use(product())
    assert len(public) > 40
    assert public - used == set()


def test_a_class_that_only_its_own_module_names_is_found():
    trees = {
        "keyedwm.core.one": ast.parse("class Used:\n  pass\nclass Model:\n  def other(self):\n    return Model()\n"),
        "keyedwm.core.two": ast.parse("def helper():\n  pass\n"),
        "keyedwm.spark.user": ast.parse("from keyedwm.core.one import Used\nUsed()\n"),
    }
    used, public = names_in_use(trees)
    assert public - used == {"Model", "helper"}
    assert reached(trees) == {"keyedwm.core.one"}


def test_nothing_that_ships_imports_the_models():
    assert [
        module for module, tree in product().items() if any(name.startswith("conformance") for name in imported(tree))
    ] == []
