"""The recorded sequences of the peers, each replayed once however many tests ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.reading import Replayed, Vector, read_all
from conformance.verdict import Outcome

VECTORS = Path(__file__).parent.parent / "vectors"
ORACLE = VECTORS / "oracle"


class Played:
    """The vectors of the oracle files, or all others: read when tests are collected, replayed when they run."""

    def __init__(self, *, is_oracle: bool) -> None:
        folders = [path for path in sorted(VECTORS.iterdir()) if path.is_dir() and (path == ORACLE) == is_oracle]
        self._found: list[Vector] = list(read_all(folders))
        self._replayed: dict[int, Replayed] = {}

    @property
    def every_vector(self) -> pytest.MarkDecorator:
        """Parametrises a test with `index`."""
        names = [f"{vector.path.name.removesuffix('.gz')}:{vector.case}" for vector in self._found]
        return pytest.mark.parametrize("index", range(len(names)), ids=names)

    def at(self, index: int) -> Replayed:
        if index not in self._replayed:
            self._replayed[index] = self._found[index].replay()
        return self._replayed[index]

    def all(self) -> list[Replayed]:
        return [self.at(index) for index in range(len(self._found))]


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
