"""Pages name tests: each of them exists where the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "explanation" / "guarantees.md", ROOT / "docs" / "design" / "sink.md"]
TOLD = re.compile(r"`(tests/[\w/]+\.py)`|`(test_\w+)`")


def named(page: Path) -> list[tuple[str, str]]:
    """Every (file, test): a test belongs to the file named last."""
    found, file = [], ""
    for path, test in TOLD.findall(page.read_text()):
        file = path or file
        if test:
            found.append((file, test))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_of_the_page_exists(page):
    assert len(named(page)) >= 10
    gone = [(file, test) for file, test in named(page) if f"def {test}(" not in (ROOT / file).read_text()]
    assert gone == []
