"""Sentences in the shipped code that must be read twice: in docstrings, comments and messages.

`python -m tests.system.house.sentences [FOLDER ...]` prints each place; without folders, the count of each room. The
rules are those of the pages (`tests.docs.style`): words of the house, and sentences of more than 25 words. A docstring
that only points elsewhere ("As in X.", "See X.") or that names nothing ("None.") counts, too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from tests.docs.style import Place, places
from tests.system.house.names import count, report

_EMPTY = re.compile(r"^(As in|See|As) [`\w.]+\.$|^(None|Nothing|The same.*|Theirs.*|As (they|it) .*)\.$")
_DOUBLE = re.compile(r"\bdoubles?\b")  # the type
# A string, or a comment as the group: a `#` in a string begins no comment.
_COMMENT = re.compile(
    r"""\"{3}(?:[^"\\]|\\.|"(?!""))*\"{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
    r"""|#(?!\s*(?:noqa|fmt|type|pragma))([^\n]*)""",
    re.DOTALL,
)
_SENTENCE = re.compile(r"\w+(?:\W+\w+){3,}")  # a message has four words or more
# Phrases that pages may still have.
_OF_CODE = re.compile(r"\bnothing else\b|\bno use for\b|\bso far as\b|\bgo(?:es)? on from\b", re.IGNORECASE)
_NAMES = re.compile(r"[a-z.\s]+")  # a list of the properties of Kafka


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the line and text of each docstring, message and comment, and whether a docstring."""
    code = path.read_text()
    docs: set[int] = set()  # of constants that a docstring or an f-string contains
    for node in ast.walk(ast.parse(code)):  # breadth first: a parent before its children
        match node:
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant() as doc), *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant() as doc), *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant() as doc), *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant() as doc), *_])
            ):
                docs.add(id(doc))
                yield doc.lineno, cleandoc(str(doc.value)), True  # indented lines would count as code
            case ast.JoinedStr(values=values):
                docs.update(map(id, values))
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "code" for part in values)
                yield node.lineno, text, False
            case ast.Constant(value=str(value)) if id(node) not in docs:
                yield node.lineno, value, False
    for comment in _COMMENT.finditer(code):
        if comment[1]:
            yield code.count("\n", 0, comment.start()) + 1, comment[1].lstrip("# "), False


def in_file(path: Path) -> list[tuple[int, Place]]:
    """Return the places of a file with their lines."""
    found = []
    for line, text, docstring in texts(path):
        if docstring and _EMPTY.match(text.strip()):
            found.append((line, Place("empty docstring", 0, text.strip())))
        found += [(line, Place("phrase of the house", 0, match[0])) for match in _OF_CODE.finditer(text)]
        if _SENTENCE.search(text) and not ("\n" in text and _NAMES.fullmatch(text)):
            plain = _DOUBLE.sub("float64", text)
            plain = plain if docstring else plain.replace(" [", ". ")  # a cure in brackets is a sentence of its own
            found += [(line, place) for place in places(plain) if place.kind != "long paragraph"]
    return found


def counts() -> dict[str, int]:
    """Return the number of places by room."""
    return count(in_file)


if __name__ == "__main__":
    report(sys.argv[1:], lambda path: [(f"{place.kind}: {place.text[:140]}", line) for line, place in in_file(path)])
