"""Whatever the code, the tests and the pages cite is in this repository."""

from __future__ import annotations

import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "conformance", "tests", "benchmarks", "examples", "docs")
SELF = Path(__file__)
FILES = [
    *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".py", ".md"}),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")),
]
FILES.remove(SELF)
PAGES = [path for path in FILES if path.suffix == ".md"]
ELSEWHERE = re.compile(r"\bDESIGN\b|\(sections? \d|\bdesign\s+section\s+\d|\.\./shared|\banchors/")
PAGE = re.compile(r"(?<!tests/)\b(docs/[\w./-]+\.(?:md|py|svg|png))(?:#([\w-]+))?")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#([\w-]+)\)")
RULE = re.compile(r"\b[Rr]ules? (\d+)(?:(?: to |, | and )(\d+))*")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    texts = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text()))
    return {text.strip().replace(" ", "-") for text in texts}


def test_the_files_were_found():
    assert len(FILES) > 100


def test_nothing_outside_the_repository_is_cited():
    assert [(path, line) for path in FILES for line in path.read_text().splitlines() if ELSEWHERE.search(line)] == []


def test_every_page_that_is_named_exists():
    named = [(path, page, anchor) for path in FILES for page, anchor in PAGE.findall(path.read_text())]
    assert [one for one in named if not (ROOT / one[1]).exists()] == []
    assert [(path, page, anchor) for path, page, anchor in named if anchor and anchor not in anchors(ROOT / page)] == []


def test_every_link_into_a_page_finds_its_heading():
    links = [(path, page, anchor) for path in PAGES for page, anchor in LINK.findall(path.read_text())]
    wrong = [one for one in links if one[2] not in anchors(one[0].parent / one[1] if one[1] else one[0])]
    assert wrong == []


def test_rules_have_the_numbers_1_to_13():
    found = [(path, cited[0]) for path in FILES if path.suffix == ".py" for cited in RULE.finditer(path.read_text())]
    assert [one for one in found if any(not 1 <= int(number) <= 13 for number in re.findall(r"\d+", one[1]))] == []


def test_the_rules_page_has_a_heading_for_every_rule():
    found = anchors(ROOT / "docs" / "design" / "rules.md")
    assert {f"rule-{number}" for number in range(1, 14)} <= found
