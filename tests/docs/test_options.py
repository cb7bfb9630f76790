"""docs/reference/options.md says what the parsers of the options say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_options_is_what_the_parsers_say():
    spec = importlib.util.spec_from_file_location("options", ROOT / "docs" / "site" / "options.py")
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    text = writer.PAGE.read_text()
    assert writer.page(text) == text, "run: python docs/site/options.py"
    assert text.count("| `") >= 60
