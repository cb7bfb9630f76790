"""Syntax trees of the files that can matter to a rule: parsing every file takes seconds of a processor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path


def trees_with(pattern: str, files: Iterable[Path]) -> Iterator[tuple[Path, ast.Module]]:
    """Yield path and tree of each file whose text matches a regular expression."""
    for path in files:
        text = path.read_text()
        if re.search(pattern, text):
            yield path, ast.parse(text)
