"""The recorded sequences of the peers, each replayed once however many tests ask."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from conformance.reading import SUFFIXES, Replayed, read_all
from conformance.verdict import Outcome
from tests.conftest import base_seed
from tests.seeds import TIMES

T = TypeVar("T")

VECTORS = Path(__file__).parent.parent / "vectors"
ORACLE = VECTORS / "oracle"
# Each line of these plays a whole operator: a run plays one line in four. KEYEDWM_SEEDS=4 plays all of them, and
# `python -m conformance.replay tests/vectors/oracle`, too.
OF_OPERATORS = {"flink-sessions", "flink-windows", "jet-session", "jet-sliding"}
STEP = max(1, 4 // TIMES)


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
            path = self._files[name]
            self._replayed[name] = [vector.replay() for vector in played_lines(path, list(read_all([path])))]
        return self._replayed[name]

    def failures(self, name: str) -> list[str]:
        """Return a line for each vector of a file that failed."""
        return [replayed.line() for replayed in self.of(name) if replayed.verdict.outcome is Outcome.FAIL]

    def all(self) -> list[Replayed]:
        """Return all replayed vectors."""
        return [replayed for name in self._files for replayed in self.of(name)]


def played_lines(path: Path, lines: list[T]) -> list[T]:
    """Return the lines of a file that a run plays; other seeds choose others."""
    return lines[base_seed() % STEP :: STEP] if path.name.partition(".")[0] in OF_OPERATORS else lines


def recorded_outcomes(path: Path) -> tuple[Counter[Outcome], Counter[Outcome]]:
    """Return the outcomes that an oracle file records: of all its lines, and of the lines that a run plays."""
    with gzip.open(path, "rt") as stream:
        outcomes = [Outcome.MATCH if json.loads(line)["normative"] else Outcome.OTHERWISE for line in stream]
    return Counter(outcomes), Counter(played_lines(path, outcomes))


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
