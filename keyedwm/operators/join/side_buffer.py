"""The rows of one side of a join that future rows may match: tables sorted and cut by event time, as blobs.

Rule: a slice is never changed once it is written. A blob of bits beside it marks its matched rows, and the limits
decide which rows are forgotten. A look-up reads only slices whose times are in reach. Small slices are merged when
there are many, so that each row is rewritten a few times at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.core.lateness import is_behind
from keyedwm.operators.join.exchange_side import HASH, key_hashes
from keyedwm.operators.join.plan import JoinInputSpec
from keyedwm.operators.state.blobs import read_stored, sealed, stored, unsealed
from keyedwm.operators.state.store import BlobStore, StateChanges, limits_of

# The largest size of a slice, and the size from which slices are not merged any more.
_SLICE_BYTES = 4 << 20
_FULL_BYTES = 1 << 20
MATCHED = "-matched"
COMPRESSION = "zstd"

LimitsOf = Sequence[int | None]  # by axis of the side


@dataclass(slots=True, eq=False)
class SidePiece:
    """Rows of one side, `staged` columns without nulls in hash and times. matched: flags of rows with a match."""

    table: pa.Table
    hashes: Ints
    times: list[Ints]
    matched: Flags

    @classmethod
    def of(cls, side: JoinInputSpec, table: pa.Table, matched: Flags | None = None) -> SidePiece:
        """Return the piece of a table; without `matched` no row is matched."""
        table = table.combine_chunks()
        times = [ints(contiguous(table[name])) for name in side.times]
        if HASH in table.column_names:
            hashes = ints(contiguous(table[HASH]))
        else:
            hashes = key_hashes([contiguous(table[name]) for name in side.on], table.num_rows)
            table = table.add_column(len(side.schema), HASH, pa.array(hashes))
        return cls(table, hashes, times, np.zeros(table.num_rows, bool) if matched is None else matched)

    def __len__(self) -> int:
        return len(self.hashes)

    def take_rows(self, places: Ints) -> SidePiece:
        """Return the rows at these places."""
        return SidePiece(
            self.table.take(pa.array(places)),
            self.hashes[places],
            [times[places] for times in self.times],
            self.matched[places],
        )

    def forgotten(self, limits: LimitsOf) -> Flags:
        """Return which rows match no future row."""
        is_forgotten = np.zeros(len(self), bool)
        for times, limit_ms in zip(self.times, limits, strict=True):
            if limit_ms is not None:
                is_forgotten |= is_behind(times, limit_ms)
        return is_forgotten


@dataclass(slots=True, eq=False)
class Slice:
    """A slice. number: the number of its blob, None before it is written. low, high: the times of its rows, by axis."""

    number: int | None
    rows: int
    size: int
    low: list[int]
    high: list[int]
    fresh: SidePiece | None = None
    matched: Flags | None = None  # as changed since it was read

    @classmethod
    def of(cls, piece: SidePiece, number: int | None = None) -> Slice:
        """Return the slice of a piece; without a number it is not written yet."""
        low, high = ([int(getattr(times, end)()) for times in piece.times] for end in ("min", "max"))
        return cls(number, len(piece), piece.table.nbytes, low, high, piece if number is None else None)

    def state(self) -> list[Any]:
        """Return the slice's entry in the manifest, ready for JSON."""
        return [self.number, self.rows, self.size, *self.low, *self.high]


class SideBuffer:
    """The held rows of one side.

    main: the axis that they are sorted by. keeps_matched: whether a row stays after a match. gap_ms: slices are
    preferably cut at a gap in time above this.
    """

    def __init__(
        self,
        side: JoinInputSpec,
        prefix: str,
        store: BlobStore,
        state: Sequence[Any],
        *,
        main: int,
        gap_ms: int,
        keeps_matched: bool,
    ) -> None:
        self._side, self._prefix, self._store = side, prefix, store
        self._main, self._gap_ms, self._keeps_matched = main, gap_ms, keeps_matched
        axes = len(side.axes)
        self._slices = [
            Slice(number, rows, size, list(times[:axes]), list(times[axes:])) for number, rows, size, *times in state
        ]
        self._next = max((one.number + 1 for one in self._slices if one.number is not None), default=0)
        self._removed: set[str] = set()

    @property
    def rows(self) -> int:
        """The number of rows in the slices, including forgotten rows that are not removed yet."""
        return sum(one.rows for one in self._slices)

    def add(self, piece: SidePiece) -> None:
        """Hold rows."""
        if len(piece):
            self._slices.append(Slice.of(piece))

    def in_reach(self, times: Ints, low_ms: int, high_ms: int) -> Iterator[tuple[Slice, SidePiece]]:
        """Yield the slices with a row for which one of these times, ascending, is in `[row + low, row + high]`."""
        for one in self._slices:
            first = np.searchsorted(times, one.low[self._main] + low_ms)
            if first < len(times) and times[first] <= one.high[self._main] + high_ms:
                yield one, self._read(one)

    def match(self, one: Slice, piece: SidePiece, places: Ints) -> Ints:
        """Mark these rows of a slice as matched; return the rows that had no match before, each once."""
        fresh = sorted_distinct(places[~piece.matched[places]])
        if len(fresh):
            piece.matched[fresh] = True
            one.matched = piece.matched
        return fresh

    def forget(self, before: LimitsOf, limits: LimitsOf, *, pads: bool) -> Iterator[SidePiece]:
        """Remove the rows that the limits forget; with `pads`, yield the unmatched ones that earlier limits kept."""
        for one in list(self._slices):
            if not _below(one.low, limits):
                continue
            if not pads:
                if _below(one.high, limits):
                    self._drop(one)
                continue
            piece = self._read(one)
            is_forgotten = piece.forgotten(limits)
            leaving = np.flatnonzero(is_forgotten & ~piece.forgotten(before) & ~piece.matched)
            if is_forgotten.all():
                self._drop(one)
            else:
                one.low = [int(times[~is_forgotten].min()) for times in piece.times]
            if len(leaving):
                yield piece.take_rows(leaving)

    def live_pieces(self, limits: LimitsOf) -> Iterator[SidePiece]:
        """Yield the rows that are held and not forgotten."""
        for one in self._slices:
            piece = self._read(one)
            yield piece.take_rows(np.flatnonzero(self._is_live(piece, limits)))

    def drain(self, limits: LimitsOf) -> StateChanges:
        """Write the new and changed rows since the last call, without forgotten rows."""
        due = [*(one for one in self._slices if one.number is None), *self._due()]
        pieces = [self._read(one) for one in due]
        for one in due:
            self._drop(one)
        blobs: dict[str, bytes] = {}
        for one in self._slices:
            if one.matched is not None:
                blobs |= _bits(self._blob(one.number), one.matched)
                one.matched = None
        live = [piece.take_rows(np.flatnonzero(self._is_live(piece, limits))) for piece in pieces]
        for piece in self._split([piece for piece in live if len(piece)]):
            self._slices.append(Slice.of(piece, self._next))
            blobs |= slice_blobs(self._blob(self._next), piece)
            self._next += 1
        removed, self._removed = frozenset(self._removed - blobs.keys()), set()
        return StateChanges(blobs, removed)

    def state(self) -> list[list[Any]]:
        """Return the state of the slices for a later instance, ready for JSON."""
        return [one.state() for one in self._slices]

    def _is_live(self, piece: SidePiece, limits: LimitsOf) -> Flags:
        is_live = ~piece.forgotten(limits)
        return is_live if self._keeps_matched else is_live & ~piece.matched

    def _read(self, one: Slice) -> SidePiece:
        if one.fresh is not None:
            return one.fresh
        name = self._blob(one.number)
        piece = SidePiece.of(self._side, read_stored(name, self._store.get(name)), one.matched)
        if one.matched is None and f"{name}{MATCHED}" in self._store.sizes:
            piece.matched = matched_rows(name, self._store.get(f"{name}{MATCHED}"), len(piece))
        return piece

    def _due(self) -> list[Slice]:
        """Return the slices to merge: all of a size with many slices."""
        classes: dict[int, list[Slice]] = {}
        limits = limits_of(self._store)
        for one in self._slices:
            if one.number is not None and one.size < _FULL_BYTES:
                classes.setdefault(limits.size_class(one.size), []).append(one)
        return [one for of_size in classes.values() if len(of_size) >= limits.fan_out for one in of_size]

    def _split(self, pieces: Sequence[SidePiece]) -> Iterator[SidePiece]:
        """Yield the rows by event time, in pieces of bounded size."""
        if not pieces:
            return
        together = _concat(self._side, pieces)
        times = together.times[self._main]
        order = np.argsort(times, kind="stable")
        together, times = together.take_rows(order), times[order]
        each = max(1, together.table.nbytes // len(together))
        at_most, enough = max(1, _SLICE_BYTES // each), max(1, _FULL_BYTES // each)
        apart = np.flatnonzero(np.diff(times) > self._gap_ms) + 1
        start = 0
        while start < len(times):
            gap = np.searchsorted(apart, start + enough)
            end = min(start + at_most, len(times), int(apart[gap]) if gap < len(apart) else len(times))
            yield together.take_rows(np.arange(start, end))
            start = end

    def _drop(self, one: Slice) -> None:
        self._slices.remove(one)
        if one.number is not None:
            self._removed |= {self._blob(one.number), f"{self._blob(one.number)}{MATCHED}"} & self._store.sizes.keys()

    def _blob(self, number: int | None) -> str:
        return f"{self._prefix}-{number}"


def matched_rows(name: str, blob: bytes, rows: int) -> Flags:
    """Return which rows of a slice are matched. name: the name of the slice's blob. blob: the bits beside it."""
    bits = np.frombuffer(unsealed(f"{name}{MATCHED}", blob), np.uint8)
    return np.unpackbits(bits, count=rows).astype(bool)


def slice_blobs(name: str, piece: SidePiece) -> dict[str, bytes]:
    """Return the blobs of a slice of this name: its rows, and bits of its matched rows if there are any."""
    blobs = {name: stored(name, piece.table.drop_columns([HASH]), COMPRESSION)}
    return {**blobs, **_bits(name, piece.matched)} if piece.matched.any() else blobs


def _bits(name: str, matched: Flags) -> dict[str, bytes]:
    bits = f"{name}{MATCHED}"
    return {bits: sealed(bits, np.packbits(matched).tobytes())}


def _below(times: Sequence[int], limits: LimitsOf) -> bool:
    return any(limit_ms is not None and is_behind(ms, limit_ms) for ms, limit_ms in zip(times, limits, strict=True))


def _concat(side: JoinInputSpec, pieces: Sequence[SidePiece]) -> SidePiece:
    table = pa.concat_tables([piece.table for piece in pieces])
    return SidePiece.of(side, table, np.concatenate([piece.matched for piece in pieces]))
