# ruff: noqa: ARG002  every aggregate function has the same signatures
"""HLL sketches of Apache DataSketches (type HLL_8, as Spark's `hll_sketch_agg` makes them).

Rule: a value is a coupon: the low 26 bits of its hash are an address, and the length of a run of zeros is above them.
Few coupons are stored unchanged. With more than `_most` coupons, each register (the low `lg_k` bits of the address)
stores its longest run. Both are maxima and unions, so neither order nor repetition matters. A sketch of registers is
marked as out of order, as the library marks unions: readers estimate from the registers alone. Source: the format of
datasketches-java, `hll/PreambleUtil`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.columns import Column, Ints, sorted_distinct
from keyedwm.arrow.hashing import Hashes
from keyedwm.arrow.murmur import murmured
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.kept_values import expanded, lengths, lists
from keyedwm.operators.aggregates.sketches.binaries import binaries, fixed, ragged
from keyedwm.operators.kernels import sorted_by_number
from keyedwm.runtime.compiled import compiled

_ADDRESS_BITS = 26
_LONGEST = 62
_LIST_MOST, _LIST_LG, _SET_LEAST_LG = 7, 3, 5  # a list of 8 places becomes a set when it is full
_LIST, _SET, _REGISTERS = 0, 1, 2
_HLL_8 = 2 << 2
_EMPTY, _COMPACT, _OUT_OF_ORDER = 4, 8, 16
_FAMILY, _VERSION = 7, 1
_PREAMBLE = np.dtype(
    [(name, "u1") for name in ("ints", "version", "family", "lg_k", "lg_size", "flags", "count", "mode")]
)
_SUMS = np.dtype([("estimate", "<f8"), ("low", "<f8"), ("high", "<f8"), ("zeros", "<i4"), ("exceptions", "<i4")])


@dataclass(frozen=True)
class HllSketch(AggregateFunction):
    """Accumulators are coupons, or registers if there are too many coupons; one of the two lists is empty."""

    lg_k: int
    result = pa.binary()
    fields = (pa.field("coupons", pa.list_(pa.uint32())), pa.field("registers", pa.list_(pa.uint8())))

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return one coupon for a value and none for a null."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Return the coupons or registers of each group."""
        takes_part, first, second = murmured(values)
        none = np.empty((0, 1 << self.lg_k), np.uint8)
        coupons = _coupons(first, second)
        return self._coupons_or_registers(groups.ids[takes_part], coupons, np.empty(0, np.int64), none, groups.count)

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Return the union of each group."""
        order = sorted_by_number(groups.ids, groups.count)
        return self._united(columns, order, groups.ids[order], groups.count)

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Return the union of each row range."""
        rows, borders = expanded(spans)
        return self._united(columns, rows, np.repeat(np.arange(len(borders) - 1), np.diff(borders)), len(borders) - 1)

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the sketches, compact."""
        coupons, registers = columns
        counts, is_full = lengths(coupons), lengths(registers) > 0
        is_set = (counts > _LIST_MOST) & ~is_full
        start = np.zeros(len(counts), _PREAMBLE)
        start["ints"] = np.where(is_full, 10, np.where(is_set, 3, 2))
        start["version"], start["family"], start["lg_k"] = _VERSION, _FAMILY, self.lg_k
        start["lg_size"] = np.where(is_full, 0, np.where(is_set, _set_lg(counts), _LIST_LG))
        start["flags"] = _COMPACT | np.where(is_full, _OUT_OF_ORDER, 0) | np.where(~is_full & (counts == 0), _EMPTY, 0)
        start["count"] = np.where(is_set | is_full, 0, counts)
        start["mode"] = _HLL_8 | np.where(is_full, _REGISTERS, np.where(is_set, _SET, _LIST))
        registers_by_row = registers.flatten().to_numpy().reshape(-1, 1 << self.lg_k)
        sums = np.zeros(len(counts), _SUMS)
        sums["low"][is_full], sums["high"][is_full], sums["zeros"][is_full] = _sums(registers_by_row)
        everywhere = np.ones(len(counts), bool)
        return binaries(
            fixed(start, everywhere),
            fixed(counts.astype("<i4"), is_set),
            fixed(sums, is_full),
            ragged(coupons.flatten().to_numpy().astype("<u4"), counts),
            ragged(registers_by_row, lengths(registers)),
        )

    @property
    def _most(self) -> int:
        """The highest number of coupons that the library stores as coupons, too."""
        return _LIST_MOST if self.lg_k < 8 else 3 << (self.lg_k - 5)

    def _united(self, columns: Sequence[Column], rows: Ints, owner: Ints, count: int) -> list[Column]:
        """Return the unions; owner: the group of each of these rows, in order."""
        coupons = columns[0].take(pa.array(rows))
        is_full = lengths(columns[1]) > 0
        place = np.cumsum(is_full) - 1
        full = is_full[rows]
        registers = columns[1].flatten().to_numpy().reshape(-1, 1 << self.lg_k)[place[rows[full]]]
        owners = np.repeat(owner, lengths(coupons))
        return self._coupons_or_registers(owners, coupons.flatten().to_numpy(), owner[full], registers, count)

    def _coupons_or_registers(
        self, owners: Ints, coupons: NDArray[np.uint32], of_registers: Ints, registers: NDArray[np.uint8], count: int
    ) -> list[Column]:
        """Return each group's coupons, in order, or its registers; owners, of_registers: the groups of both."""
        distinct = sorted_distinct(owners.astype(np.uint64) << np.uint64(32) | coupons)
        owners = (distinct >> np.uint64(32)).astype(np.int64)
        coupons = distinct.astype(np.uint32)
        is_full = np.bincount(owners, minlength=count) > self._most
        is_full[of_registers] = True
        place = np.cumsum(is_full) - 1
        united = np.zeros((int(is_full.sum()), 1 << self.lg_k), np.uint8)
        of_full = is_full[owners]
        _raise_by_coupons(united, place[owners[of_full]], coupons[of_full])
        _raise_by_registers(united, place[of_registers], registers)
        offsets = np.searchsorted(owners[~of_full], np.arange(count + 1))
        borders = np.append(0, np.cumsum(is_full)) << self.lg_k
        return [lists(offsets, pa.array(coupons[~of_full])), lists(borders, pa.array(united.reshape(-1)))]


def _set_lg(counts: Ints) -> NDArray[np.uint8]:
    """Return log2 of the size of the library's hash set for these counts: it is at most three quarters full."""
    sizes = np.arange(_SET_LEAST_LG, _ADDRESS_BITS)
    return (_SET_LEAST_LG + np.searchsorted(3 << (sizes - 2), counts)).astype(np.uint8)


@compiled
def _coupons(first: Hashes, second: Hashes) -> NDArray[np.uint32]:
    coupons = np.empty(first.shape[0], np.uint32)
    for at in range(first.shape[0]):
        run = 0
        while run < _LONGEST and not (second[at] >> np.uint64(63 - run)) & np.uint64(1):
            run += 1
        address = first[at] & np.uint64((1 << _ADDRESS_BITS) - 1)
        coupons[at] = np.uint32(np.uint64(run + 1) << np.uint64(_ADDRESS_BITS) | address)
    return coupons


@compiled
def _raise_by_coupons(registers: NDArray[np.uint8], places: Ints, coupons: NDArray[np.uint32]) -> None:
    for at in range(places.shape[0]):
        register = coupons[at] & np.uint32(registers.shape[1] - 1)
        run = np.uint8(coupons[at] >> np.uint32(_ADDRESS_BITS))
        registers[places[at], register] = max(registers[places[at], register], run)


@compiled
def _raise_by_registers(registers: NDArray[np.uint8], places: Ints, others: NDArray[np.uint8]) -> None:
    for at in range(places.shape[0]):
        for register in range(registers.shape[1]):
            registers[places[at], register] = max(registers[places[at], register], others[at, register])


@compiled
def _sums(registers: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64], Ints]:
    """Return the sums of 2**-run of runs below 32 and of longer runs, both exact, and how many registers are 0."""
    rows = registers.shape[0]
    low, high, zeros = np.zeros(rows), np.zeros(rows), np.zeros(rows, np.int64)
    for row in range(rows):
        for run in registers[row]:
            if run < 32:
                low[row] += 1.0 / (1 << run)
            else:
                high[row] += 2.0 ** -np.float64(run)
            zeros[row] += run == 0
    return low, high, zeros
