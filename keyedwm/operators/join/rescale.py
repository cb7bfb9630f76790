"""State of a stopped join, for the buckets of another query.

Rule: values in, values out. Held rows and changes are cut by the new buckets of their keys; they keep whether they were
matched, and in which order they came. Rows that nothing to come can match have left already, and are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.join.bounds import JoinHorizons
from keyedwm.operators.join.exchange_side import HASH, bucket_numbers
from keyedwm.operators.join.inputs import FORMAT
from keyedwm.operators.join.latest_operator import CHANGES
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.operators.join.side_buffer import COMPRESSION, MATCHED, LimitsOf, SidePiece, Slice, matched_rows
from keyedwm.operators.state.blobs import read_stored, sealed, stored
from keyedwm.operators.state.manifest import ManifestFormat
from keyedwm.operators.state.rescale_pieces import BlobPiece, Rescale, rows_by_log
from keyedwm.operators.state.store import PART

_SIDES = {"left": LEFT, "right": RIGHT, "waiting": LEFT, CHANGES: RIGHT}


@dataclass(frozen=True, kw_only=True)
class JoinRescale(Rescale):
    """How the buckets of a join go to new ones."""

    beside: ClassVar[str | None] = MATCHED
    plan: JoinPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.digest != self.plan.digest():
            raise OptionError(
                f"{self.who}: the state is that of another join (on, how, time bounds, condition, columns, names of "
                f"the sides, time axes or late differ): go back to that one, or start from a new checkpoint"
            )
        if any(state["received"] != self.states[0]["received"] for state in self.states):
            raise FormatError(f"{self.who}: its buckets stand at different watermarks")

    @property
    def format(self) -> ManifestFormat:
        """The format of the manifests."""
        return FORMAT

    @cached_property
    def numbers(self) -> Mapping[tuple[int, str], int]:
        """A number for each slice of each old bucket, none of which comes twice, in order within bucket and prefix."""
        numbers: dict[tuple[int, str], int] = {}
        for bucket, names in enumerate(self.blobs):
            for name in sorted((name for name in names if not name.endswith(MATCHED)), key=_place):
                numbers[bucket, name] = len(numbers) + 1  # the first part of a log has no number
        return numbers

    def cuts(self, bucket: int, name: str, blob: bytes, beside: bytes | None) -> Iterator[BlobPiece]:
        """Yield what one old blob gives to new buckets; beside: the bits of a slice."""
        prefix = _place(name)[0]
        side = self.plan.sides[_SIDES[prefix]]
        piece = SidePiece.of(side, read_stored(name, blob))
        if beside is not None:
            piece.matched = matched_rows(name, beside, len(piece))
        if prefix != CHANGES:
            piece = piece.take_rows(np.flatnonzero(~piece.forgotten(self._limits(prefix))))
        number = self.numbers[bucket, name]
        buckets = bucket_numbers(piece.hashes, self.count)
        for to in sorted_distinct(buckets).tolist():
            yield from _pieces(to, prefix, number, piece.take_rows(_places(buckets, to)))

    def manifest_with(self, before: bytes | None, entries: Sequence[tuple[str, Any]], number: int) -> bytes:  # noqa: ARG002  all alike
        """Return the operator's manifest of a new bucket with these entries of its blobs added."""
        content = {} if before is None else json.loads(before)
        state: dict[str, Any] = {"received": self.states[0]["received"]}
        for prefix in ("waiting",) if self.plan.latest else ("left", "right"):
            slices = [entry for name, entry in entries if isinstance(entry, list) and _place(name)[0] == prefix]
            state[prefix] = sorted([*content.get(prefix, ()), *slices])
        if self.plan.latest:
            rows = rows_by_log(content, [(name, entry) for name, entry in entries if isinstance(entry, dict)])
            arrived = max(old[CHANGES][-2] for old in self.states)
            state |= {CHANGES: [arrived, sum(rows.values())], "rows": rows, "tried": {}}
        return FORMAT.write(self.plan.digest(), state)

    def _limits(self, prefix: str) -> LimitsOf:
        """The times below which rows have left, by axis of the side."""
        received = {int(axis): ms for axis, ms in self.states[0]["received"].items()}
        if self.plan.latest:
            return [received.get(RIGHT)]
        side = _SIDES[prefix]
        first, limits = self.plan.first_axis(side), JoinHorizons(self.plan.time, received)
        return [limits.forgotten_below(first + at) for at in range(len(self.plan.sides[side].axes))]


def _place(name: str) -> tuple[str, int]:
    """Return what a blob holds, as in `_SIDES`, and its number."""
    log, _, part = name.partition(PART)
    prefix, _, number = log.rpartition("-")
    return (prefix, int(number)) if prefix else (log, int(part or 0))  # 0.3.0 numbered blobs of changes as slices


def _pieces(to: int, prefix: str, number: int, piece: SidePiece) -> Iterator[BlobPiece]:
    """The blobs of a piece, which is not empty."""
    name = f"{prefix}{PART if prefix == CHANGES else '-'}{number}"
    blob = stored(name, piece.table.drop_columns([HASH]), COMPRESSION)
    if prefix == CHANGES:
        yield BlobPiece(to, name, blob, {"rows": len(piece)})
        return
    one = Slice.of(piece)
    yield BlobPiece(to, name, blob, [number, one.rows, one.size, *one.low, *one.high])
    if piece.matched.any():
        bits = f"{name}{MATCHED}"
        yield BlobPiece(to, bits, sealed(bits, np.packbits(piece.matched).tobytes()), None)


def _places(buckets: Ints, to: int) -> Ints:
    return np.flatnonzero(buckets == to)
