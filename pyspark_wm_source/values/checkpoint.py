"""Spark's own logs in a checkpoint, as far as a source of keyedwm is told of there.

Rule: it only reads. The newest planned batch is the highest number under `offsets`, the newest committed one under
`commits`; a file of `offsets` has a version, the batch's settings, and then a line for each source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keyedwm.core.parsing import parse_json
from pyspark_wm_source.values.offsets import QueryOffset

_MARK = "state_key"  # a field that only our offsets have
_HEAD = 2


def newest(names: Sequence[str]) -> int | None:
    """Return the highest batch among the names of a log's files."""
    return max((int(name) for name in names if name.isascii() and name.isdecimal()), default=None)


def sources_of(text: str) -> Iterator[tuple[int, QueryOffset | None]]:
    """Yield the number and the offset of each source of a planned batch; None for a source of somebody else."""
    for number, line in enumerate(text.splitlines()[_HEAD:]):
        try:
            parsed = parse_json(line)
        except ValueError:
            parsed = None
        ours = isinstance(parsed, dict) and _MARK in parsed
        yield number, QueryOffset.from_json(parsed) if ours else None
