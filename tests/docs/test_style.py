"""Pages are read once: sentences and paragraphs are short, and words are the field's (`python -m tests.docs.style`).

`style.json` has the pages that are not there yet, with how many places each has. A count only falls.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.style import ROOT, blocks, pages, places

LEFT = json.loads((Path(__file__).parent / "style.json").read_text())


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_more_places_that_are_read_twice(page):
    name = str(page.relative_to(ROOT))
    assert len(places(page.read_text())) <= LEFT.get(name, 0), f"python -m tests.docs.style {name}"


def test_the_list_names_pages_that_there_are():
    assert set(LEFT) <= {str(page.relative_to(ROOT)) for page in pages()}


def test_long_sentences_long_paragraphs_and_house_words_are_seen_and_code_is_not():
    sentence = "word " * 26
    assert [place.kind for place in places(f"{sentence}.\n")] == ["long sentence"]
    assert [place.kind for place in places("Two words. " * 31)] == ["long paragraph"]
    assert [place.text for place in places("It begins anew.")] == ["It begins anew.", "It begins anew."]
    assert places(f"```\n{sentence}\n```\n\n    {sentence} told\n\n# {sentence}\n") == []
    assert list(blocks("- one\n  more\n- two\n\n| a | b |\n|---|---|\n")) == [
        ("bullet", "one more"), ("bullet", "two"), ("cell", "a"), ("cell", "b")
    ]  # fmt: skip
