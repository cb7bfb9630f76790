"""Whatever the code, the tests and the pages cite is in this repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "conformance", "tests", "benchmarks", "examples", "docs")
SELF = Path(__file__)
FILES = [
    *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".py", ".md"}),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")),
]
FILES.remove(SELF)
ELSEWHERE = re.compile(r"\bDESIGN\b|\(sections? \d|\bdesign\s+section\s+\d|\.\./shared|\banchors/")
PAGE = re.compile(r"\b(docs/[\w./-]+\.(?:md|py|svg|png))(?:#([\w-]+))?")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#([\w-]+)\)")
RULE = re.compile(r"\b[Rr]ules? (\d+)(?:(?: to |, | and )(\d+))*")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    texts = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text()))
    return {text.strip().replace(" ", "-") for text in texts}


@each_file
def test_nothing_outside_the_repository_is_cited(path):
    assert [line for line in path.read_text().splitlines() if ELSEWHERE.search(line)] == []


@each_file
def test_every_page_that_is_named_exists(path):
    for page, anchor in PAGE.findall(path.read_text()):
        assert (ROOT / page).exists(), f"{path.relative_to(ROOT)} names {page}"
        assert not anchor or anchor in anchors(ROOT / page), f"{path.relative_to(ROOT)} names {page}#{anchor}"


@each_file
def test_every_link_into_a_page_finds_its_heading(path):
    if path.suffix != ".md":
        return
    for page, anchor in LINK.findall(path.read_text()):
        target = path.parent / page if page else path
        assert anchor in anchors(target), f"{path.relative_to(ROOT)} links to {page}#{anchor}"


@each_file
def test_rules_have_the_numbers_1_to_13(path):
    if path.suffix != ".py":
        return
    numbers = [int(number) for found in RULE.finditer(path.read_text()) for number in re.findall(r"\d+", found[0])]
    assert [number for number in numbers if not 1 <= number <= 13] == []


def test_the_rules_page_has_a_heading_for_every_rule():
    found = anchors(ROOT / "docs" / "design" / "rules.md")
    assert {f"rule-{number}" for number in range(1, 14)} <= found
