"""What the fuzzer kept: a file for each target, an input in base64 on each line; each reached code no other did."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent / "corpus"


def kept(target: str) -> list[bytes]:
    """The inputs of a target."""
    path = _path(target)
    return [base64.b64decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(target: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs of a target."""
    HERE.mkdir(exist_ok=True)
    lines = sorted({base64.b64encode(data).decode() for data in inputs}, key=lambda line: (len(line), line))
    if lines:
        _path(target).write_text("".join(f"{line}\n" for line in lines))


def _path(target: str) -> Path:
    return HERE / f"{target.replace(' ', '-')}.txt"
