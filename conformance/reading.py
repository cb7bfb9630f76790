"""Vectors out of files and folders: the formats of the Jet, Flink, oracle and window vectors, gzip-compressed or not.

Rule: what is in a file is never trusted. A file that cannot be read as vectors, a format that is not known, and a
vector that breaks the replay are failures of that file or vector, and the next one is tried.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from conformance import flink, jet, oracle, windows
from conformance.verdict import Outcome, Verdict, fail
from keyedwm.core.errors import InputError

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
KNOWN = "Jet components, Flink wm-vectors/1, oracle lines, keyedwm.windows.vector/1"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One vector: where it stands, and what replaying it says."""

    path: Path
    case: str
    verdict: Verdict

    def line(self) -> str:
        """One line: outcome, file, case, step, what was expected and what came, why."""
        verdict = self.verdict
        where = f"{self.path} {self.case}" + ("" if verdict.step is None else f" step {verdict.step}")
        if verdict.outcome is Outcome.FAIL and (verdict.expected is not None or verdict.actual is not None):
            return f"FAIL {where}: expected {_brief(verdict.expected)}, got {_brief(verdict.actual)} ({verdict.reason})"
        return f"{verdict.outcome.value.upper()} {where}: {verdict.reason or 'as recorded'}"


@dataclass(frozen=True, slots=True)
class Vector:
    """One vector that was read and not replayed yet."""

    path: Path
    case: str
    play: Callable[[], Verdict]

    def replay(self) -> Replayed:
        """Replay it; a vector that breaks the replay is a failure."""
        try:
            verdict = self.play()
        except Exception as error:  # noqa: BLE001  a vector nobody has seen must not stop the others
            verdict = fail(f"cannot be replayed: {type(error).__name__}: {error}")
        return Replayed(self.path, self.case, verdict)


def replay_all(paths: Iterable[Path]) -> Iterator[Replayed]:
    """Replay every vector under these files and folders, in order of path."""
    return (vector.replay() for vector in read_all(paths))


def read_all(paths: Iterable[Path]) -> Iterator[Vector]:
    """Read every vector under these files and folders, in order of path; a file that is not readable is one failure."""
    for root in paths:
        files = list(_files(root))
        if not files:
            raise InputError(f"{root} holds no vectors, they are in files ending in {', '.join(SUFFIXES)}")
        for path in files:
            yield from _read_file(path)


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    if not root.is_dir():
        raise InputError(f"{root} is neither a file nor a folder of vectors")
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name.endswith(SUFFIXES):
            yield path


def _read_file(path: Path) -> Iterator[Vector]:
    try:
        text = _text(path)
        values = [json.loads(text)] if ".jsonl" not in path.name else _lines(text)
    except (ValueError, OSError, EOFError) as error:
        yield Vector(path, "", partial(fail, f"not readable as JSON: {error}"))
        return
    for number, value in enumerate(values, start=1):
        if _is_summary(value):
            continue
        for case, play in _cases(number, value):
            yield Vector(path, case, play)


def _text(path: Path) -> str:
    if path.name.endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            return stream.read()
    return path.read_text(encoding="utf-8")


def _lines(text: str) -> list:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _is_summary(value: object) -> bool:
    """The counts beside the oracle files: no vectors in it."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(one, dict) and {"sequences", "normative"} <= one.keys() for one in value.values())
    )


def _cases(number: int, value: Any) -> list[tuple[str, Callable[[], Verdict]]]:
    if oracle.is_oracle(value):
        return [(f"line {number}", partial(oracle.replay, value))]
    if flink.is_flink(value):
        return [(_name(value, number), partial(flink.replay, value))]
    if windows.is_windows(value):
        return [(_name(value, number), partial(windows.replay, value))]
    if jet.is_jet(value):
        play = partial(jet.replay, value["component"])
        return [(_name(vector, index), partial(play, vector)) for index, vector in enumerate(value["vectors"])]
    return [(f"line {number}", partial(fail, f"the format is not known; known are {KNOWN}"))]


def _name(vector: object, index: int) -> str:
    return str(vector.get("id", index)) if isinstance(vector, dict) else str(index)


def _brief(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 300 else f"{text[:300]}..."
