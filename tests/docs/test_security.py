"""The pages of security name tests: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("explanation/security.md", "how-to/rights-and-secrets.md", "design/attacks.md")


def test_every_test_that_a_page_of_security_names_exists():
    text = "".join((ROOT / "docs" / page).read_text() for page in PAGES)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    test_names = set(re.findall(r"`(test_\w+)`", text))
    assert len(test_names) >= 10
    assert [name for name in sorted(test_names) if f"def {name}(" not in tests] == []
    files = set(re.findall(r"`((?:tests|keyedwm)/[\w/]+(?:\.py)?)`", text))
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
