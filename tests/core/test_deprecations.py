"""Deprecated names: they work, warn at the user's line, and stay for a major version."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from keyedwm.core.deprecations import DEPRECATIONS


@pytest.mark.parametrize("name", DEPRECATIONS)
def test_a_deprecated_name_works_and_warns_at_the_line_that_uses_it(name):
    module, _, attribute = name.rpartition(".")
    entry = DEPRECATIONS[name]
    replacement, _, successor = entry.instead.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated since keyedwm {entry.since}") as warned:
        value = getattr(import_module(module), attribute)
    assert value is getattr(import_module(replacement), successor)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("name", DEPRECATIONS)
def test_a_deprecated_name_is_removed_by_a_major_version_after_1_0(name):
    entry = DEPRECATIONS[name]
    since, removal = (tuple(map(int, text.split("."))) for text in (entry.since, entry.removal))
    assert removal > since
    assert removal >= (2, 0, 0)
    assert removal[1:] == (0, 0)


def test_the_page_of_promises_lists_the_deprecated_names():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "promises.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| ([\d.]+) \| ([\d.]+) \| `(\S+)` \|$", page, re.MULTILINE)
    assert rows == [(name, one.since, one.removal, one.instead) for name, one in DEPRECATIONS.items()]


def test_another_name_of_the_module_is_missing_as_usual():
    with pytest.raises(AttributeError, match="has no attribute 'Empty'"):
        import_module("keyedwm.windows").Empty  # noqa: B018
