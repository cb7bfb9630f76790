"""The conversion of a stopped operator's state to new buckets, in one way for the tables of every operator.

Rule: with the same plan and number of buckets, blobs are copied without reading them. Else every part of a log is
divided by the buckets of its keys, and keeps its place in its log: nothing is merged, so the rows of a key and their
order stay the same. A piece has its entry for the manifest of its new bucket, since no bucket reads the piece before it
runs.

Each operator adds its own parts. `derived_logs`: logs that follow from others. `new_part` returns the live rows in the
layout of the new plan. `buckets` returns the new bucket of each row, and `state` the content of the manifest beside the
logs.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.core.errors import OptionError
from keyedwm.operators.buckets import bucket_of
from keyedwm.operators.state.blobs import read_stored, stored
from keyedwm.operators.state.manifest import FORMAT, ManifestFormat
from keyedwm.operators.state.store import PART, part_numbers


class BlobPiece(NamedTuple):
    """A blob for a new bucket, by its number.

    entry: the blob's entry in the operator's manifest, None if it has none.
    """

    bucket: int
    name: str
    blob: bytes
    entry: Any


@dataclass(frozen=True, kw_only=True)
class Rescale(ABC):
    """The conversion of old buckets to new buckets. Raises OptionError and FormatError for state that cannot be moved.

    who: the operator in messages. plan: the plan of the new buckets. count: their number. digest, description: of the
    old plan; the description is None if keyedwm 0.2.0 wrote the state. states: the operator's manifest in each old
    bucket. blobs: the names of the blobs in each old bucket. beside: the suffix of a blob that is divided together with
    the blob of the same name without it, None for none. derived_logs: prefixes of logs that follow from others and are
    not moved. compression: the compression of the pieces.
    """

    beside: ClassVar[str | None] = None
    derived_logs: ClassVar[tuple[str, ...]] = ()
    compression: ClassVar[str | None] = None
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

    @property
    def stays(self) -> bool:
        """Whether every key stays in its bucket: the number of buckets and the plan are the same."""
        return len(self.states) == self.count and self.digest == self.plan.digest()

    @cached_property
    def numbers(self) -> Mapping[tuple[int, str], int]:
        """A unique number for each part of each log in the old buckets."""
        return part_numbers(self.blobs)

    def cuts(self, bucket: int, name: str, blob: bytes, beside: bytes | None) -> Iterator[BlobPiece]:
        """Yield the pieces of one old blob, and of the blob beside it, for new buckets.

        bucket: the old bucket's number.

        No two old blobs have pieces of one name in a bucket.
        """
        if self.stays:
            yield BlobPiece(bucket, name, blob, None)
            if beside is not None:
                yield BlobPiece(bucket, f"{name}{self.beside}", beside, None)
            return
        log = name.partition(PART)[0]
        if not log.startswith(self.derived_logs):
            yield from self.cuts_of_log(bucket, name, read_stored(name, blob))

    def cuts_of_log(self, bucket: int, name: str, table: pa.Table) -> Iterator[BlobPiece]:
        """Yield the pieces of one part of a log. name: the name of its blob."""
        log, rows = self.new_part(bucket, name.partition(PART)[0], table)
        if not rows.num_rows:
            return
        to, numbers = f"{log}{PART}{self.numbers[bucket, name]}", self.buckets(log, rows)
        for number in sorted_distinct(numbers).tolist():
            piece = rows.take(pa.array(np.flatnonzero(numbers == number)))
            entry = {"rows": piece.num_rows, **self.entry(piece)}
            yield BlobPiece(number, to, stored(to, piece, self.compression), entry)

    def manifest_with(self, before: bytes | None, entries: Sequence[tuple[str, Any]], number: int) -> bytes:
        """Return the operator's manifest in the new bucket of this number, with the entries of these pieces added.

        before: the manifest so far, None for the first pieces.
        """
        if self.stays:
            return self.format.copy(self.states[number])
        manifest = {} if before is None else json.loads(before)
        rows = dict(manifest.get("rows", {}))
        for name, entry in entries:
            if isinstance(entry, dict):
                log = name.partition(PART)[0]
                rows[log] = rows.get(log, 0) + entry["rows"]
        state = {"rows": rows, "tried": {}, **self.state(manifest, entries)}
        return self.format.write(self.plan.digest(), state)

    def check_plan(self, state: str, settings: str) -> None:
        """Raise OptionError if the state is another plan's. settings: the settings that differ between plans."""
        if self.digest != self.plan.digest():
            raise OptionError(
                f"{self.who}: the state is that of another {state} ({settings} differ): go back to that one, or start "
                "from a new checkpoint"
            )

    def new_part(self, bucket: int, log: str, table: pa.Table) -> tuple[str, pa.Table]:  # noqa: ARG002  all rows
        """Return the log of these rows in the new state, and the live rows in the layout of the new plan."""
        return log, table

    def buckets(self, log: str, rows: pa.Table) -> Ints:  # noqa: ARG002  alike in all logs
        """Return the new bucket of each row. log: the log in the new state."""
        return bucket_of([rows.column(name) for name in self.plan.owners], rows.num_rows, self.count)

    def entry(self, piece: pa.Table) -> Mapping[str, Any]:  # noqa: ARG002  rows alone
        """Return the entry of a piece beside its number of rows."""
        return {}

    @abstractmethod
    def state(self, manifest: Mapping[str, Any], entries: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
        """Return the state of a new bucket beside its logs.

        manifest: the manifest so far. entries: those of the new pieces.
        """


class UnchangedState(Protocol):
    """A plan whose state can only be copied to the same number of buckets."""

    @property
    def manifest_format(self) -> ManifestFormat:
        """The format of the operator's manifest."""

    def digest(self) -> str:
        """Return a short text; two plans with the same text can use each other's state."""


@dataclass(frozen=True, kw_only=True)
class SameBuckets(Rescale):
    """The conversion to the same number of buckets only: the state belongs to channels, which have no key."""

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

    def state(self, manifest: Mapping[str, Any], entries: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:  # noqa: ARG002  copied
        """Return nothing: the manifest is copied."""
        return {}
