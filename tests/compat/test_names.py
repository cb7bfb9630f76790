"""Names that users hold stay: options and their defaults, columns, functions, metrics, commands and codes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.compat.names import FILE, FIXTURES, KINDS, names

RECORDS = sorted(FIXTURES.glob(f"*/{FILE}"))
# What a changelog announced as changed: the name, and what holds of it now; None if it was removed after a deprecation.
CHANGED: Mapping[str, str | None] = {}


def broken(earlier: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names that are missing or differ, and parameters without a default that are new."""
    differ = [name for name, fact in earlier.items() if now.get(name) != CHANGED.get(name, fact)]
    new = now.keys() - earlier.keys()
    required = [name for name in new if name.partition("(")[0] in earlier and now[name].endswith("required")]
    return sorted(differ + required)


def test_names_are_recorded():
    assert RECORDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.parent.name)
def test_a_name_of_an_earlier_version_is_there_with_the_same_meaning(record, kind):
    earlier = json.loads(record.read_text())[kind]
    assert len(earlier) >= 5
    assert broken(earlier, names(kind)) == []


def test_a_missing_name_another_default_and_a_new_required_parameter_are_seen():
    earlier = {"f": "", "f(a)": "keyword-only, optional", "option": "`1`", "metric": "gauge"}
    now = {
        "f": "", "f(a)": "keyword-only, optional", "f(b)": "keyword-only, required", "option": "`2`",
        "g(c)": "keyword-only, required", "f(d)": "keyword-only, optional",
    }  # fmt: skip
    assert broken(earlier, now) == ["f(b)", "metric", "option"]
