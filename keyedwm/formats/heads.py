"""The heads that serializers put before a value: which schema it has, and where its body begins.

Rule: a head is known by the name of its format. No bytes are skipped that do not say what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.json_scan import buffers
from keyedwm.formats.faults import Fault
from keyedwm.formats.spans import gather_texts, text_sizes
from keyedwm.runtime.compiled import bare


class Head(Enum):
    """The heads of values, by who writes them; the number of a value without one is 0."""

    CONFLUENT = "confluent"  # a zero byte, and four bytes of the id
    APICURIO = "apicurio"  # a zero byte, and eight bytes of the id, or four
    SINGLE_OBJECT = "single object"  # two bytes, and eight of the fingerprint of the schema
    NONE = "none"


# What is expected where the head of a value is wrong.
EXPECTED = {
    Head.CONFLUENT: "a zero byte and four bytes of a schema's id are expected",
    Head.APICURIO: "a zero byte and eight or four bytes of a schema's id are expected",
    Head.SINGLE_OBJECT: "the bytes C3 01 and eight bytes of a schema's fingerprint are expected",
}
_NONE, _ABSENT, _NO_HEAD = int(Fault.NONE), int(Fault.ABSENT), int(Fault.NO_HEAD)


@dataclass(frozen=True, slots=True, eq=False)
class Bodies:
    """The bodies of some values: data[start:stop], ids of schemas (int64) and faults (uint8), one row for each."""

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    ids: NDArray[np.int64]
    faults: NDArray[np.uint8]


def bodies_of(head: Head, values: pa.Array) -> Bodies:
    """Find the bodies of binary values."""
    data, ends = buffers(values)
    data = data.view()
    data.setflags(write=False)  # or what has no bytes would be compiled for, too
    start, stop = ends[:-1].astype(np.int64), ends[1:].astype(np.int64)
    ids, faults = np.zeros(len(values), np.int64), np.zeros(len(values), np.uint8)
    if values.null_count:
        faults[np.asarray(values.is_null())] = _ABSENT
    if head is Head.SINGLE_OBJECT:
        _find_fingerprints(data, stop, start, ids, faults)
    elif head is not Head.NONE:
        _find_ids(data, stop, head is Head.APICURIO, start, ids, faults)
    return Bodies(data, start, stop, ids, faults)


@bare
def _find_ids(data, stop, is_wide, start, ids, faults):  # noqa: PLR0917
    """Read the id of each head and move `start` behind it."""
    for row in range(len(start)):
        if faults[row] != _NONE:
            continue
        at = start[row]
        if stop[row] - at < 5 or data[at] != 0:
            faults[row] = _NO_HEAD
            continue
        size = 4
        if is_wide and data[at + 1] == 0 and data[at + 2] == 0 and data[at + 3] == 0 and data[at + 4] == 0:
            size = 8  # ids begin at 1: four zeros are the upper half of eight bytes
            if stop[row] - at < 9:
                faults[row] = _NO_HEAD
                continue
        number = np.int64(0)
        for i in range(size):
            number = (number << np.int64(8)) | np.int64(data[at + 1 + i])
        ids[row] = number
        start[row] = at + 1 + size


@bare
def _find_fingerprints(data, stop, start, ids, faults):
    """Read the fingerprint of each head, little-endian, and move `start` behind it."""
    for row in range(len(start)):
        if faults[row] != _NONE:
            continue
        at = start[row]
        if stop[row] - at < 10 or data[at] != 0xC3 or data[at + 1] != 1:
            faults[row] = _NO_HEAD
            continue
        number = np.uint64(0)
        for i in range(8):
            number |= np.uint64(data[at + 2 + i]) << np.uint64(8 * i)
        ids[row] = np.int64(number)
        start[row] = at + 10


def texts_of(bodies: Bodies) -> pa.Array:
    """Return the bodies as binary values; null where a value has a fault."""
    valid = (bodies.faults == _NONE).astype(np.uint8)
    ends = np.zeros(len(valid) + 1, np.int32)
    text_sizes(bodies.start, bodies.stop, valid, ends)
    out = np.empty(ends[-1], np.uint8)
    gather_texts(bodies.data, bodies.data, bodies.start, valid, ends, out)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(valid), [bits, pa.py_buffer(ends), pa.py_buffer(out)])


def distinct_ids(bodies: Bodies) -> list[int]:
    """Return the ids of the values that have a head, each once."""
    some = np.empty(len(bodies.ids), np.int64)
    count = _changes(bodies.ids, bodies.faults, some)
    return list(dict.fromkeys(some[:count].tolist()))


@bare
def _changes(ids, faults, some):
    """Collect each id that is another one than that before it; return how many."""
    count, last = 0, np.int64(-1)
    for row in range(len(ids)):
        if faults[row] == _NONE and (ids[row] != last or count == 0):
            last = ids[row]
            some[count] = last
            count += 1
    return count


def places_of(bodies: Bodies, known: list[int]) -> NDArray[np.int32]:
    """Return the place in `known` of the id of each value, -1 for values with a fault and other ids."""
    places = np.full(len(bodies.ids), -1, np.int32)
    _find_places(bodies.ids, bodies.faults, np.array(known, np.int64), places)
    return places


@bare
def _find_places(ids, faults, known, places):
    last, place = np.int64(0), np.int32(-1)
    for row in range(len(ids)):
        if faults[row] != _NONE:
            continue
        if place < 0 or ids[row] != last:
            last, place = ids[row], np.int32(-1)
            for i in range(len(known)):
                if known[i] == last:
                    place = np.int32(i)
        places[row] = place
