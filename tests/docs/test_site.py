"""The site of the documentation: every page stands in its navigation, once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

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
