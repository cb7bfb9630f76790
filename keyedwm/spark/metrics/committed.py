"""The sources of a query as its last committed batch left them, from the checkpoint alone.

Rule: a start that plans no batch has no progress, so the checkpoint is its only source of facts. It is only read.
"""

from __future__ import annotations

from keyedwm.savepoint_files import Files
from pyspark_wm_source.values.checkpoint import newest, sources_of
from pyspark_wm_source.values.offsets import QueryOffset


def committed_sources(checkpoint: str) -> dict[int, QueryOffset]:
    """Return the offset of each source of keyedwm by its number; empty before the first commit.

    Raises UnavailableError, DamagedError and FormatError.
    """
    files = Files(checkpoint)
    batch = newest(files.names("commits") or ())
    text = None if batch is None else files.read(f"offsets/{batch}")
    offsets = () if text is None else sources_of(text, f"{files.place}/offsets/{batch}")
    return {number: offset for number, offset in offsets if offset is not None}
