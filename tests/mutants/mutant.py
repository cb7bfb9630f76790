"""One rule broken on purpose: the file, the text that stands there, what it becomes, the rule that breaks.

Rule: every text stands exactly once in its file, so that a mutant that no longer applies is noticed.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One change of the code; path: under `conformance`, else under `keyedwm`."""

    path: str
    before: str
    after: str
    breaks: str


def changes(path: str, *texts: tuple[str, str, str]) -> list[Mutant]:
    """Mutants of one file: before, after, the rule that breaks."""
    return [Mutant(path, before, after, breaks) for before, after, breaks in texts]
