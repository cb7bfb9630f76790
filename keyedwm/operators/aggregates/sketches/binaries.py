"""Binary values built from parts, column by column: part one of each row, then part two, and so on."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.arrow.hashing import Octets
from keyedwm.runtime.compiled import compiled

Part: TypeAlias = tuple[Octets, Ints]


def fixed(records: NDArray, has: Flags) -> Part:
    """Return a part with the same number of bytes in each row for which `has` is true; records: one for each row."""
    octets = np.ascontiguousarray(records[has]).view(np.uint8).reshape(-1)
    return octets, np.append(0, np.cumsum(has * records.dtype.itemsize))


def ragged(values: NDArray, counts: Ints) -> Part:
    """Return a part of `counts` values in each row."""
    octets = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return octets, np.append(0, np.cumsum(counts * values.dtype.itemsize))


def binaries(*parts: Part) -> pa.Array:
    """Return for each row its parts, one behind the other."""
    begins = np.sum([begins for _, begins in parts], axis=0)
    places = begins[:-1].copy()
    joined = np.empty(begins[-1], np.uint8)
    for octets, of_part in parts:
        _copy(joined, places, octets, of_part)
    kind, offsets = (pa.binary(), np.int32) if begins[-1] < 2**31 else (pa.large_binary(), np.int64)
    buffers = [None, pa.py_buffer(begins.astype(offsets)), pa.py_buffer(joined)]
    return pa.Array.from_buffers(kind, len(places), buffers)


@compiled
def _copy(joined: Octets, places: Ints, octets: Octets, begins: Ints) -> None:
    """Copy each row's bytes to its place, and move the place behind them."""
    for row in range(places.shape[0]):
        size = begins[row + 1] - begins[row]
        joined[places[row] : places[row] + size] = octets[begins[row] : begins[row + 1]]
        places[row] += size
