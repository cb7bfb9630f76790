# ruff: noqa: ARG002  every aggregate function has the same signatures
"""The approximate number of distinct values: HyperLogLog with 1,024 registers (relative standard error 3.3 %).

Rule: a register holds the longest run of leading zeros plus 1, so neither order nor repetition of values matters. Only
registers above 0 are stored, as `register << 6 | run`, so few values need few bytes. The estimate is Ertl's (arXiv
1702.01284, algorithm 6), which needs no correction for small or large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Column, Ints, sorted_distinct
from keyedwm.arrow.hashing import hashed
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.kept_values import lengths
from keyedwm.runtime.compiled import compiled

_REGISTER_BITS = 10
_REGISTERS = 1 << _REGISTER_BITS
_RUN_BITS = 6
_LONGEST = 64 - _REGISTER_BITS


class ApproximateDistinct(AggregateFunction):
    """Accumulators are sparse registers; `spans` returns the estimates themselves."""

    result = pa.int64()
    fields = (pa.field("registers", pa.list_(pa.uint16())),)

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return one register for a value and none for a null."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Return the registers of each group."""
        valid = pc.is_valid(values)
        some = values.filter(valid) if values.null_count else values
        codes = _codes(hashed(some))
        return [_sparse(groups.ids[valid.to_numpy(zero_copy_only=False)], codes, groups.count)]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Return the longest run of each register in each group."""
        codes = columns[0].flatten().to_numpy().astype(np.int64)
        return [_sparse(np.repeat(groups.ids, lengths(columns[0])), codes, groups.count)]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Return the estimates, by full register sets (`_estimates`)."""
        offsets = np.append(0, np.cumsum(lengths(columns[0])))
        codes = columns[0].flatten().to_numpy()
        longest = int((spans.behind - spans.first).max(initial=0))
        return [_estimates(offsets, codes, spans.first, spans.behind, longest)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the estimates."""
        if isinstance(columns[0], np.ndarray):
            return pa.array(columns[0])
        places = np.arange(len(columns[0]))
        return pa.array(self.spans(columns, Spans(places, places + 1))[0])


def _sparse(ids: Ints, codes: Ints, count: int) -> pa.Array:
    """Return the longest run of each (group, register) as lists."""
    ordered = sorted_distinct(ids << 16 | codes)
    is_longest = np.append(ordered[1:] >> _RUN_BITS != ordered[:-1] >> _RUN_BITS, np.ones(min(1, len(ordered)), bool))
    ordered = ordered[is_longest]
    offsets = np.searchsorted(ordered >> 16, np.arange(count + 1))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array((ordered & 0xFFFF).astype(np.uint16)))


@compiled
def _codes(hashes: NDArray[np.uint64]) -> Ints:
    codes = np.empty(hashes.shape[0], np.int64)
    for at in range(hashes.shape[0]):
        register = np.int64(hashes[at] >> np.uint64(_LONGEST))
        rest = hashes[at] << np.uint64(_REGISTER_BITS)
        run = 1
        while run <= _LONGEST and not rest >> np.uint64(63):
            rest = rest << np.uint64(1)
            run += 1
        codes[at] = register << _RUN_BITS | run
    return codes


@compiled
def _raise_registers(registers: NDArray[np.uint8], offsets: Ints, codes: NDArray[np.uint16], row: int) -> None:
    for at in range(offsets[row], offsets[row + 1]):
        register = codes[at] >> _RUN_BITS
        registers[register] = max(registers[register], np.uint8(codes[at] & 63))


@compiled
def _estimates(offsets: Ints, codes: NDArray[np.uint16], first: Ints, behind: Ints, longest: int) -> Ints:
    """Slide over the ranges: `front[border - 1 - r]` unites the rows from r up to `border`, `back` the later rows."""
    estimates = np.empty(first.shape[0], np.int64)
    front = np.zeros((longest + 1, _REGISTERS), np.uint8)
    back = np.zeros(_REGISTERS, np.uint8)
    border = high = np.int64(0)
    for at in range(first.shape[0]):
        if first[at] >= high:
            border = high = first[at]
            back[:] = 0
        while high < behind[at]:
            _raise_registers(back, offsets, codes, int(high))
            high += 1
        if first[at] >= border:
            for row in range(high - 1, first[at] - 1, -1):
                registers = front[high - 1 - row]
                registers[:] = 0
                if row + 1 < high:
                    registers[:] = front[high - 2 - row]
                _raise_registers(registers, offsets, codes, row)
            border = high
            back[:] = 0
        estimates[at] = _estimate(np.maximum(front[border - 1 - first[at]], back))
    return estimates


@compiled
def _estimate(registers: NDArray[np.uint8]) -> np.int64:
    counts = np.zeros(_LONGEST + 2, np.int64)
    for run in registers:
        counts[run] += 1
    z = _REGISTERS * _tau(1.0 - counts[_LONGEST + 1] / _REGISTERS)
    for run in range(_LONGEST, 0, -1):
        z = 0.5 * (z + counts[run])
    z += _REGISTERS * _sigma(counts[0] / _REGISTERS)
    return np.int64(round(_REGISTERS * _REGISTERS / (2.0 * math.log(2.0) * z)))


@compiled
def _sigma(x: float) -> float:
    if x == 1.0:
        return np.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


@compiled
def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1.0 - x, -1.0
    while z != before:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1.0 - x) ** 2 * y
    return z / 3.0
