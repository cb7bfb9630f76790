"""The site of the documentation: every page stands in its navigation, once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
# Pages that docs/site/hooks.py makes.
MADE = {
    "index.md", "changelog.md", "contributing.md", "reference/functions.md", "reference/sentences.md",
    "design/tests-of-the-system.md",
}  # fmt: skip


def test_every_page_stands_in_the_navigation_once():
    named = Counter(re.findall(r": (\S+\.md)$", NAVIGATION, re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert named == Counter(pages | MADE)


# A word that a newcomer looks for, and the page whose title has it.
LOOKED_FOR = {
    "idle": "explanation/idleness.md",
    "idle timeout": "how-to/choose-lag.md",
    "lag": "how-to/choose-lag.md",
    "exactly once": "how-to/exactly-once-to-kafka.md",
    "dead letters": "how-to/dead-letters.md",
    "grafana": "how-to/monitor.md",
    "airflow": "how-to/airflow.md",
    "postgres": "how-to/postgres.md",
    "avro": "how-to/schema-registry.md",
    "iceberg": "reference/iceberg.md",
    "emr": "how-to/run-on-yarn.md",
    "upgrade": "how-to/move-a-query.md",
    "without kafka": "how-to/test-a-pipeline.md",
    "kwm-1001": "reference/errors.md",
    "kubernetes": "how-to/run-on-kubernetes.md",
    "rename": "how-to/move-a-query.md",
    "memory": "explanation/open-state.md",
    "faster": "how-to/speed.md",
    "backfill": "how-to/backfill.md",
    "graceful": "how-to/stop-and-restart.md",
    "upsert": "how-to/late-updates-with-merge.md",
    "install": "how-to/install.md",
    "disk": "how-to/size-a-query.md",
}


@pytest.mark.parametrize(("word", "page"), LOOKED_FOR.items(), ids=LOOKED_FOR)
def test_a_word_that_is_looked_for_stands_in_a_title(word, page):
    assert word in (ROOT / "docs" / page).read_text().partition("\n")[0].lower()


@pytest.mark.parametrize("section", ["tutorial", "how-to", "explanation"])
def test_no_page_of_these_sections_is_longer_than_2000_words(section):
    pages = sorted((ROOT / "docs" / section).glob("*.md"))
    assert [page.name for page in pages if len(page.read_text().split()) > 2_000] == []
