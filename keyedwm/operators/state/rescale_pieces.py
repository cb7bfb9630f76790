"""Pieces of a stopped operator's state on their way to new buckets.

Rule: a piece carries its entry in the manifest of its new bucket, since no bucket reads it before it
runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import sorted_distinct
from keyedwm.core.errors import OptionError
from keyedwm.operators.buckets import bucket_of
from keyedwm.operators.state.blobs import stored
from keyedwm.operators.state.manifest import FORMAT, ManifestFormat
from keyedwm.operators.state.store import PART, part_numbers


class BlobPiece(NamedTuple):
    """A blob for a new bucket, by its number. entry: of the blob in the operator's manifest, None if it has none."""

    bucket: int
    name: str
    blob: bytes
    entry: Any


@dataclass(frozen=True, kw_only=True)
class Rescale(ABC):
    """How the state of old buckets goes to new ones. Raises OptionError and FormatError for what cannot move.

    who: the operator in messages. plan: of the new buckets, so many as `count`. digest, description: of the old plan, a
    description None where keyedwm 0.2.0 wrote the state. states: the operator's manifest in each old bucket.
    blobs: the names of the blobs in each. beside: the suffix of blobs that are cut together
    with the blob whose name stands before it, None for none.
    """

    beside: ClassVar[str | None] = None
    who: str
    plan: Any
    count: int
    digest: str
    description: Mapping[str, Any] | None
    states: tuple[Mapping[str, Any], ...]
    blobs: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        self.format.check_versions(f"{self.who}: its state", self.states)

    @property
    def format(self) -> ManifestFormat:
        """The format of the manifests."""
        return FORMAT

    @cached_property
    def numbers(self) -> Mapping[tuple[int, str], int]:
        """The number of each part of a log of each old bucket, none of which comes twice."""
        return part_numbers(self.blobs)

    @abstractmethod
    def cuts(self, bucket: int, name: str, blob: bytes, beside: bytes | None) -> Iterator[BlobPiece]:
        """Yield what one old blob, and the one beside it, give to new buckets; bucket: the old one's number.

        No two old blobs give one name to a bucket.
        """

    @abstractmethod
    def manifest_with(self, before: bytes | None, entries: Sequence[tuple[str, Any]], number: int) -> bytes:
        """Return the operator's manifest in the new bucket of this number, with the entries of these pieces added.

        before: as it was, None for the first pieces.
        """


class UnchangedState(Protocol):
    """A plan whose state goes to as many buckets as it has, unchanged."""

    @property
    def manifest_format(self) -> ManifestFormat:
        """The format of the operator's manifest."""

    def digest(self) -> str:
        """Return a short text that differs when the state of one plan cannot be used by the other."""


@dataclass(frozen=True, kw_only=True)
class SameBuckets(Rescale):
    """How buckets go to as many new ones: a key stays in its bucket, so blobs and manifests are copied unread."""

    plan: UnchangedState

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.digest != self.plan.digest():
            raise OptionError(
                f"{self.who}: the state belongs to another {self.format.state}: {self.format.unchanged} must stay as "
                "they were; go back to that one, or start from a new checkpoint"
            )
        if self.count != len(self.states):
            raise OptionError(
                f"{self.who}: its state of {len(self.states)} buckets goes to as many buckets only: give "
                f"buckets={len(self.states)}"
            )

    @property
    def format(self) -> ManifestFormat:
        """The format of the manifests."""
        return self.plan.manifest_format

    def cuts(self, bucket: int, name: str, blob: bytes, beside: bytes | None) -> Iterator[BlobPiece]:  # noqa: ARG002  none
        """Yield the old blob; see `Rescale`."""
        yield BlobPiece(bucket, name, blob, None)

    def manifest_with(self, before: bytes | None, entries: Sequence[tuple[str, Any]], number: int) -> bytes:  # noqa: ARG002  as it was
        """Return the old manifest; see `Rescale`."""
        return self.format.copy(self.states[number])


def cut_by_key(keys: Sequence[str], table: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a table for each of `count` buckets that has some; keys: the columns that own a bucket."""
    numbers = bucket_of([table.column(name) for name in keys], table.num_rows, count)
    for number in sorted_distinct(numbers).tolist():
        yield number, table.take(pa.array(np.flatnonzero(numbers == number)))


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
