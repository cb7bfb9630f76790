"""The site of the documentation: every page stands in its navigation, once, and old addresses lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIGURATION, _, NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")
# Pages that docs/site/hooks.py makes.
GENERATED_PAGES = {
    "index.md", "changelog.md", "contributing.md", "reference/functions.md", "reference/sentences.md",
    "design/tests-of-the-system.md", "design/window-requirements.md",
}  # fmt: skip
CODE = re.compile(r"^```.*?^```|(?:^ {4}[^\n]*\n)+", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[^\s|]*\w[^\s|]*")
MOST_PAGES = 75
MOST_WORDS = 80_000
WIDEST_CODE = 90


def headings(page: str) -> list[str]:
    """The headings of a page, which the search shows as results of their own."""
    return re.findall(r"^#+ (.*)$", CODE.sub("", (DOCS / page).read_text()), re.MULTILINE)


def anchors(page: str) -> set[str]:
    """The addresses of a page's headings, as Python-Markdown makes them."""
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in headings(page)}


def test_every_page_stands_in_the_navigation_once_under_its_own_title():
    entries = Counter(re.findall(r"- (?:Home: )?(\S+\.md)$", NAVIGATION, re.MULTILINE))
    assert entries == Counter({str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | GENERATED_PAGES)


def word_count(page: Path) -> int:
    """How many words a page has beside its code."""
    return len(WORD.findall(CODE.sub("", page.read_text())))


def test_the_pages_are_no_more_than_a_reader_can_overlook():
    pages = [*DOCS.rglob("*.md")]
    assert len([*pages, ROOT / "README.md"]) <= MOST_PAGES
    assert sum(map(word_count, pages)) <= MOST_WORDS, "say a fact on one page and link it from the others"


@pytest.mark.parametrize("address", re.findall(r"^ {8}\S+\.md: (\S+)$", CONFIGURATION, re.MULTILINE))
def test_the_address_of_a_page_that_moved_leads_to_a_page_and_a_heading(address):
    page, _, anchor = address.partition("#")
    assert (DOCS / page).exists()
    assert not anchor or anchor in anchors(page)


# A word that a newcomer looks for, and the page that has it in a heading.
LOOKED_FOR = {
    "idle": "how-to/choose-lag.md",
    "idle timeout": "how-to/choose-lag.md",
    "lag": "how-to/choose-lag.md",
    "exactly once": "how-to/exactly-once-to-kafka.md",
    "dead letters": "how-to/dead-letters.md",
    "late data": "how-to/dead-letters.md",
    "grafana": "how-to/monitor.md",
    "airflow": "how-to/cluster-managers.md",
    "postgres": "how-to/sinks-without-a-connector.md",
    "clickhouse": "how-to/sinks-without-a-connector.md",
    "elasticsearch": "how-to/sinks-without-a-connector.md",
    "opensearch": "how-to/sinks-without-a-connector.md",
    "foreachbatch": "how-to/sinks-without-a-connector.md",
    "avro": "how-to/schema-registry.md",
    "protobuf": "how-to/schema-registry.md",
    "iceberg": "reference/iceberg.md",
    "emr": "how-to/cluster-managers.md",
    "databricks": "how-to/cluster-managers.md",
    "kubernetes": "how-to/cluster-managers.md",
    "upgrade": "how-to/move-a-query.md",
    "rename": "how-to/move-a-query.md",
    "change a window": "how-to/move-a-query.md",
    "without kafka": "how-to/test-a-pipeline.md",
    "kwm-1001": "reference/errors.md",
    "memory": "how-to/size-a-query.md",
    "disk": "how-to/size-a-query.md",
    "faster": "how-to/speed.md",
    "backfill": "how-to/backfill.md",
    "graceful": "how-to/stop-and-restart.md",
    "upsert": "how-to/late-updates-with-merge.md",
    "retract": "how-to/late-updates-with-merge.md",
    "install": "how-to/install.md",
    "sql": "how-to/sql-and-pipelines.md",
    "declarative pipelines": "how-to/sql-and-pipelines.md",
    "spark connect": "how-to/sparks-own-operators.md",
    "redpanda": "reference/versions.md",
    "quickstart": "tutorial/quickstart.md",
}


@pytest.mark.parametrize(("word", "page"), LOOKED_FOR.items(), ids=LOOKED_FOR)
def test_a_word_that_is_looked_for_stands_in_a_heading(word, page):
    assert any(word in heading.lower() for heading in headings(page))


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_code_is_as_wide_as_the_site_shows_it(page):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    assert [line for line in code.splitlines() if len(line) > WIDEST_CODE] == []


@pytest.mark.parametrize("section", ["tutorial", "how-to", "explanation"])
def test_no_page_of_these_sections_has_more_than_2000_words_beside_its_code(section):
    counts = {page.name: word_count(page) for page in (DOCS / section).glob("*.md")}
    assert {name: count for name, count in counts.items() if count > 2_000} == {}
