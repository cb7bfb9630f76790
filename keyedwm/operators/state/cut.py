"""Pieces of a stopped operator's state on their way to new buckets.

Rule: a piece carries its entry in the manifest of its new bucket, since no bucket reads it before it
runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from keyedwm.operators.state.blobs import stored
from keyedwm.operators.state.store import PART


class BlobPiece(NamedTuple):
    """A blob for a new bucket, by its number. entry: of the blob in the operator's manifest, None if it has none."""

    bucket: int
    name: str
    blob: bytes
    entry: Any


class Rescale(Protocol):
    """How the state of old buckets goes to new ones.

    beside: the suffix of blobs that are cut together with the blob whose name stands before it, None for none.
    """

    beside: ClassVar[str | None]

    @property
    def who(self) -> str:
        """The operator in messages."""

    def cuts(self, bucket: int, name: str, blob: bytes, beside: bytes | None, count: int) -> Iterator[BlobPiece]:
        """Yield what one old blob, and the one beside it, give to `count` new buckets; bucket: the old one's number.

        No two old blobs give one name to a bucket.
        """

    def manifest_with(self, before: bytes | None, entries: Sequence[tuple[str, Any]], number: int) -> bytes:
        """Return the operator's manifest in the new bucket of this number, with the entries of these pieces added.

        before: as it was, None for the first pieces.
        """


def cut_table(number: int, name: str, table: pa.Table, **entry: int | None) -> BlobPiece:
    """Return a table for a new bucket, with its rows added to its entry."""
    return BlobPiece(number, name, stored(name, table), {"rows": table.num_rows, **entry})


def rows_by_log(before: Mapping[str, Any], entries: Iterable[tuple[str, Any]]) -> dict[str, int]:
    """Return the rows of each log with those of these tables added; before: the operator's manifest as it was."""
    rows = dict(before.get("rows", {}))
    for name, entry in entries:
        log = name.partition(PART)[0]
        rows[log] = rows.get(log, 0) + entry["rows"]
    return rows
