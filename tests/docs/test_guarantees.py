"""Pages name tests: each of them exists where the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "explanation" / "guarantees.md", ROOT / "docs" / "design" / "sink.md"]
TEST_REFERENCE = re.compile(r"`(tests/[\w/]+\.py)`|`(test_\w+)`")


def list_tests(page: Path) -> list[tuple[str, str]]:
    """Every (file, test): a test belongs to the file named last."""
    tests, file = [], ""
    for path, test in TEST_REFERENCE.findall(page.read_text()):
        file = path or file
        if test:
            tests.append((file, test))
    return tests


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_of_the_page_exists(page):
    assert len(list_tests(page)) >= 10
    missing = [(file, test) for file, test in list_tests(page) if f"def {test}(" not in (ROOT / file).read_text()]
    assert missing == []
