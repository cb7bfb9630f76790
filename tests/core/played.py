"""The recorded sequences of the peers, each replayed once however many tests ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.reading import SUFFIXES, Replayed, read_all
from conformance.verdict import Outcome

VECTORS = Path(__file__).parent.parent / "vectors"
ORACLE = VECTORS / "oracle"


class Played:
    """The vectors of the oracle files, or all others: read and replayed once, file by file, when a test asks."""

    def __init__(self, *, is_oracle: bool) -> None:
        folders = [path for path in sorted(VECTORS.iterdir()) if path.is_dir() and (path == ORACLE) == is_oracle]
        files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.name.endswith(SUFFIXES)]
        self._files = {str(path.relative_to(VECTORS)): path for path in files if path.stem != "summary"}
        self._replayed: dict[str, list[Replayed]] = {}

    @property
    def every_file(self) -> pytest.MarkDecorator:
        """Parametrises a test with `name`, of a file."""
        return pytest.mark.parametrize("name", self._files)

    def of(self, name: str) -> list[Replayed]:
        """Return the replayed vectors of a file."""
        if name not in self._replayed:
            self._replayed[name] = [vector.replay() for vector in read_all([self._files[name]])]
        return self._replayed[name]

    def failures(self, name: str) -> list[str]:
        """Return a line for each vector of a file that failed."""
        return [replayed.line() for replayed in self.of(name) if replayed.verdict.outcome is Outcome.FAIL]

    def all(self) -> list[Replayed]:
        """Return all replayed vectors."""
        return [replayed for name in self._files for replayed in self.of(name)]


def otherwise_by_file() -> dict[str, tuple[int, int]]:
    """By oracle file how many lines it has, and how many of them the summary beside it says are decided otherwise."""
    summary = json.loads((ORACLE / "summary.json").read_text())
    vectors = {name: counts["vectors"] for name, counts in sorted(summary.items())}
    return {name: (one["normative"] + one["not_normative"], one["not_normative"]) for name, one in vectors.items()}


def outcomes_of_the_oracle() -> Iterator[tuple[Path, Outcome]]:
    """What each oracle line comes to, as test_oracle_vectors.py proves of the files."""
    for name, (lines, otherwise) in otherwise_by_file().items():
        path = ORACLE / f"{name}.jsonl.gz"
        yield from ((path, Outcome.OTHERWISE) for _ in range(otherwise))
        yield from ((path, Outcome.MATCH) for _ in range(lines - otherwise))
