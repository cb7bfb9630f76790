"""Sentences in the shipped code that must be read twice: in docstrings, comments and messages.

`python -m tests.system.house.sentences [FOLDER ...]` prints each place; without folders, the count of each room. The
rules are those of the pages (`tests.docs.style`): words of the house, and sentences of more than 25 words. A docstring
that only points elsewhere ("As in X.", "See X.") or that names nothing ("None.") counts, too.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.docs.style import Place, places
from tests.system.house.names import ROOT, room, shipped

_EMPTY = re.compile(r"^(As in|See|As) [`\w.]+\.$|^(None|Nothing|The same.*|Theirs.*|As (they|it) .*)\.$")
_DOUBLE = re.compile(r"\bdoubles?\b")  # the type
_SENTENCE = re.compile(r"\w+(?:\W+\w+){3,}")  # a message has four words or more


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the line and text of each docstring, message and comment, and whether a docstring."""
    code = path.read_text()
    tree = ast.parse(code)
    docs = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docs.add(id(first.value))
                yield first.lineno, str(first.value.value), True
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "code" for part in node.values]
            docs.update(id(part) for part in node.values)
            yield node.lineno, "".join(map(str, parts)), False
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value, False
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|fmt|type|pragma)", token.string):
            yield token.start[0], token.string.lstrip("# "), False


def in_file(path: Path) -> list[tuple[int, Place]]:
    """Return the places of a file with their lines."""
    found = []
    for line, text, docstring in texts(path):
        if docstring and _EMPTY.match(text.strip()):
            found.append((line, Place("empty docstring", 0, text.strip())))
        if _SENTENCE.search(text):
            found += [(line, place) for place in places(_DOUBLE.sub("float64", text)) if place.kind != "long paragraph"]
    return found


def counts() -> dict[str, int]:
    """Return the number of places by room; rooms without any are left out."""
    of_rooms = Counter(room(path) for path in shipped() for _ in in_file(path))
    return dict(sorted(of_rooms.items()))


def main(folders: list[str]) -> None:
    """Print the places of the folders, or the count of each room."""
    if not folders:
        for name, count in counts().items():
            print(f"{count:5} {name}")
        print(f"{sum(counts().values()):5} in all")
    for path in shipped():
        if any(path.is_relative_to(ROOT / folder) for folder in folders):
            for line, place in in_file(path):
                print(f"{path.relative_to(ROOT)}:{line}: {place.kind}: {place.text[:140]}")


if __name__ == "__main__":
    main(sys.argv[1:])
