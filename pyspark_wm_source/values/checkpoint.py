"""Spark's own logs in a checkpoint, as far as they describe a source of keyedwm.

Rule: it only reads. The newest planned batch is the highest number under `offsets`, the newest committed one under
`commits`; a file of `offsets` has a version, the batch's settings, and then a line for each source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from keyedwm.core.errors import DamagedError, FormatError
from keyedwm.core.parsing import parse_json
from keyedwm.core.text import words_of
from keyedwm.savepoint_files import Files
from pyspark_wm_source.values.offsets import QueryOffset

_MARK = "state_key"  # a field that only our offsets have
_HEAD = 2
_VERSION = re.compile(r"v[0-9]+")


def newest(names: Sequence[str]) -> int | None:
    """Return the highest batch among the names of a log's files."""
    return max((int(name) for name in names if name.isascii() and name.isdecimal()), default=None)


def sources_of(text: str, file: str) -> Iterator[tuple[int, QueryOffset | None]]:
    """Yield the number and the offset of each source of a planned batch; None for a third-party source.

    file: the name of the file, for errors. Raises DamagedError for a file that is empty or cut, and FormatError.
    """
    lines = text.splitlines()
    if len(lines) <= _HEAD or not _VERSION.fullmatch(lines[0]):
        raise DamagedError(
            f"{file} is damaged: a version, the settings of the batch and a line for each source are expected"
        )
    for number, line in enumerate(lines[_HEAD:]):
        try:
            parsed = parse_json(line)
        except ValueError as error:
            if line.startswith("{"):  # third-party offsets need not be JSON
                raise DamagedError(f"{file} is damaged: the line of source {number}: {words_of(error)}") from error
            parsed = None
        is_own = isinstance(parsed, dict) and _MARK in parsed
        try:
            yield number, QueryOffset.from_json(parsed) if is_own else None
        except FormatError as error:
            raise type(error)(f"{file}: {error.message}") from error


def committed_sources(checkpoint: str) -> dict[int, QueryOffset]:
    """Return the offset of each source of keyedwm by its number; empty before the first commit.

    If a restarted query plans no batch, Spark reports no progress; only the checkpoint says how far it has read.
    Raises UnavailableError, DamagedError and FormatError.
    """
    files = Files(checkpoint)
    batch = newest(files.names("commits") or ())
    text = None if batch is None else files.read(f"offsets/{batch}")
    offsets = () if text is None else sources_of(text, f"{files.place}/offsets/{batch}")
    return {number: offset for number, offset in offsets if offset is not None}
