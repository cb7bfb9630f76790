"""The errors that the pages quote are the errors that the code raises."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink")
TABLE = re.compile(r"^\| (?:error|it ends with|it says) \|.*\n\|.*\n((?:\|.*\n)+)", re.MULTILINE)


def templates() -> Iterator[str]:
    """Every text of the product; what an f-string puts in is `...`."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


@functools.cache
def texts() -> str:
    return "\n".join(templates())


def quoted(page: Path) -> list[str]:
    """What the first column of a page's tables of errors quotes."""
    rows = [row for table in TABLE.findall(page.read_text()) for row in table.splitlines()]
    return [quote for row in rows for quote in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize("name", ["how-to/runbook.md", "reference/sink.md"])
def test_an_error_of_the_runbook_is_one_that_the_code_raises(name):
    quotes = quoted(ROOT / "docs" / name)
    assert quotes
    missing = [quote for quote in quotes if not all(part.strip() in texts() for part in quote.split("..."))]
    assert missing == []
