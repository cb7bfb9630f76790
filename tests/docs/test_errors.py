"""docs/reference/errors.md: every error of the product with its code and hint, a cause and a cure."""

from __future__ import annotations

import ast
import functools
import pickle
import re
from importlib import import_module
from pathlib import Path

import pytest

from keyedwm.core.error_codes import CODES, code_of
from keyedwm.core.errors import KeyedwmError, OptionError
from tests.system.house.parsing import trees_with

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(KWM-\d{4})` \| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "reference" / "errors.md").read_text())


@functools.cache
def classes() -> dict[str, str]:
    """Name -> module of every class of the product whose bases lead to KeyedwmError."""
    bases: dict[str, tuple[str, set[str]]] = {}
    for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink"):
        for path, tree in trees_with(r"\bclass \w+\(", (ROOT / room).rglob("*.py")):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    base_names = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                    bases[node.name] = (module, base_names)
    errors = {"KeyedwmError"}
    while more := {name for name, (_, base_names) in bases.items() if base_names & errors} - errors:
        errors |= more
    return {name: bases[name][0] for name in errors}


def test_every_error_has_a_code_of_its_own():
    assert set(classes()) == set(CODES)
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("name", sorted(CODES))
def test_the_page_has_the_code_the_hint_a_cause_and_a_cure_of_every_error(name):
    kind = getattr(import_module(classes()[name]), name)
    assert [row[:3] for row in ROWS if row[1] == name] == [(CODES[name], name, kind.advice)]


def test_the_page_has_no_other_rows():
    assert sorted(row[1] for row in ROWS) == sorted(CODES)


def test_a_message_ends_in_its_code_and_hint_also_after_pickling():
    error = pickle.loads(pickle.dumps(OptionError("option a: 'b' is wrong")))  # noqa: S301  our own
    assert str(error) == "option a: 'b' is wrong (KWM-1001) [fix your options]"


def test_an_error_of_a_user_has_the_code_of_its_base():
    class MineError(OptionError):
        pass

    assert code_of(MineError) == MineError("x").code == OptionError("x").code
    assert code_of(KeyedwmError) == "KWM-9001"
