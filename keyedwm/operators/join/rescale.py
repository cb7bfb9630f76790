"""State of a stopped join, for the buckets of another query.

Rule: values in, values out. Held rows and changes are divided by the new buckets of their keys. They keep their match
flags and their order of arrival. Rows that no future row can match have been emitted already, and are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.core.errors import FormatError
from keyedwm.operators.join.bounds import JoinHorizons
from keyedwm.operators.join.exchange_side import bucket_numbers
from keyedwm.operators.join.inputs import FORMAT
from keyedwm.operators.join.latest_operator import CHANGES
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.operators.join.side_buffer import (
    COMPRESSION,
    MATCHED,
    LimitsOf,
    SidePiece,
    Slice,
    matched_rows,
    slice_blobs,
)
from keyedwm.operators.state.blobs import read_stored
from keyedwm.operators.state.manifest import ManifestFormat
from keyedwm.operators.state.rescale_pieces import BlobPiece, Rescale
from keyedwm.operators.state.store import PART

_SIDES = {"left": LEFT, "right": RIGHT, "waiting": LEFT, CHANGES: RIGHT}


@dataclass(frozen=True, kw_only=True)
class JoinRescale(Rescale):
    """The conversion of a join's buckets to new buckets."""

    beside: ClassVar[str | None] = MATCHED
    compression: ClassVar[str | None] = COMPRESSION
    plan: JoinPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_plan("join", "on, how, time bounds, condition, columns, names of the sides, time axes or late")
        if any(state["received"] != self.states[0]["received"] for state in self.states):
            raise FormatError(f"{self.who}: its buckets stand at different watermarks")

    @property
    def format(self) -> ManifestFormat:
        """The format of the manifests."""
        return FORMAT

    def cuts(self, bucket: int, name: str, blob: bytes, beside: bytes | None) -> Iterator[BlobPiece]:
        """Yield the parts of one old blob for the new buckets: changes are a log, slices have bits beside them."""
        prefix = _prefix(name)
        if self.stays or prefix == CHANGES:
            yield from super().cuts(bucket, name, blob, beside)
            return
        piece = SidePiece.of(self.plan.sides[_SIDES[prefix]], read_stored(name, blob))
        if beside is not None:
            piece.matched = matched_rows(name, beside, len(piece))
        piece = piece.take_rows(np.flatnonzero(~piece.forgotten(self._limits(prefix))))
        buckets = bucket_numbers(piece.hashes, self.count)
        for to in sorted_distinct(buckets).tolist():
            part, number = piece.take_rows(np.flatnonzero(buckets == to)), self.numbers[bucket, name]
            rows, *bits = slice_blobs(f"{prefix}-{number}", part).items()
            yield BlobPiece(to, *rows, Slice.of(part, number).state())
            yield from (BlobPiece(to, *one, None) for one in bits)

    def new_part(self, bucket: int, log: str, table: pa.Table) -> tuple[str, pa.Table]:  # noqa: ARG002  all alike
        """Return all changes, in one log: 0.3.0 numbered their blobs as slices. See `Rescale`."""
        return CHANGES, table

    def buckets(self, log: str, rows: pa.Table) -> Ints:  # noqa: ARG002  changes only
        """Return the new bucket of each change; see `Rescale`."""
        return bucket_numbers(SidePiece.of(self.plan.right, rows).hashes, self.count)

    def state(self, manifest: Mapping[str, Any], entries: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
        """Return the watermarks, the slices, and how many changes there were; see `Rescale`."""
        facts: dict[str, Any] = {"received": self.states[0]["received"]}
        for prefix in ("waiting",) if self.plan.latest else ("left", "right"):
            slices = [entry for name, entry in entries if isinstance(entry, list) and _prefix(name) == prefix]
            facts[prefix] = sorted([*manifest.get(prefix, ()), *slices])
        if self.plan.latest:
            changes = sum(entry["rows"] for _, entry in entries if isinstance(entry, dict))
            _, before = manifest.get(CHANGES, (0, 0))
            facts[CHANGES] = [max(old[CHANGES][-2] for old in self.states), before + changes]
        return facts

    def _limits(self, prefix: str) -> LimitsOf:
        """The times below which rows have left, by axis of the side."""
        received = {int(axis): ms for axis, ms in self.states[0]["received"].items()}
        if self.plan.latest:
            return [received.get(RIGHT)]
        side = _SIDES[prefix]
        first, limits = self.plan.first_axis(side), JoinHorizons(self.plan.time, received)
        return [limits.forgotten_below(first + at) for at in range(len(self.plan.sides[side].axes))]


def _prefix(name: str) -> str:
    """Return the kind of a blob's content, as in `_SIDES`."""
    log = name.partition(PART)[0]
    return log.rpartition("-")[0] or log
