"""What a user reads says in plain words what had to be read twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READ_FIRST = [
    ROOT / "README.md", ROOT / "keyedwm" / "plugin.py",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "design"),
    *sorted((ROOT / "examples").glob("*.py")), *sorted((ROOT / "keyedwm" / "cli").rglob("*.py")),
]  # fmt: skip
# The glossary and the design define "coalesced" and use it; a reader of these pages meets it with its definition.
TWICE = {
    r"\bcoalesces\b": "takes the minimum",
    r"\bin[- ]band\b": "as extra rows",
    r"\brides? in\b": "is stored as commit metadata",
    r"\bleaves? with (its|the) watermark": "is emitted in the batch that closes it",
    r"\bone whole snapshot": "a batch appears entirely or not at all",
    r"\bsnapshot`?: by input": "barrier if the control column exists",
}


@pytest.mark.parametrize(("phrase", "plain"), TWICE.items(), ids=TWICE.values())
def test_a_sentence_that_had_to_be_read_twice_is_said_plainly(phrase, plain):
    pages = [path.name for path in READ_FIRST if re.search(phrase, path.read_text(), re.IGNORECASE)]
    assert not pages, f"say {plain!r}"


@pytest.mark.parametrize(
    ("page", "term"),
    [("README.md", "A watermark is the promise"), ("README.md", "extra rows, called control rows"),
     ("docs/reference/source.md", "the coalesced watermark, the minimum over the active partitions"),
     ("docs/reference/source.md", "A *control row* reports"),
     ("docs/reference/source.md", "a *channel*. Each topic-partition is a channel"),
     ("docs/reference/sink.md", "A *barrier* is a control row"),
     ("docs/tutorial/quickstart.md", "the *watermark*, the promise that")],
)  # fmt: skip
def test_a_page_says_what_its_terms_mean(page, term):
    assert term in " ".join((ROOT / page).read_text().split())
