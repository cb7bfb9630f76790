"""docs/design/rules.md says what the code does: pictures are drawn again, its code runs, its numbers hold."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "design" / "rules.md").read_text()


def drawn() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "figures" / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pictures()


PICTURES = drawn()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_the_core_answers_now(name):
    assert (DOCS / "figures" / name).read_text() == PICTURES[name], "run: python docs/figures/draw.py"
    assert f"](../figures/{name})" in TEXT


def test_every_rule_has_its_section_and_its_picture():
    assert [int(number) for number in re.findall(r"^## Rule (\d+)$", TEXT, re.MULTILINE)] == list(range(1, 14))
    assert len(PICTURES) == 13


def test_the_code_in_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/design/rules.md", "exec"), {})  # noqa: S102  our own page
