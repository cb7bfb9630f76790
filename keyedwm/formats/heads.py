"""The heads that serializers put before a value: which schema it has, and where its body begins.

Rule: an option names the format of the head. Bytes that are no head of this format are never skipped.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.json_scan import buffers
from keyedwm.formats.faults import Fault
from keyedwm.formats.header_ids import Guids, HeaderIds, NamedRows
from keyedwm.formats.spans import copied_spans
from keyedwm.runtime.compiled import bare


class Head(Enum):
    """The heads of values, by their writers. A value without a head has the id 0."""

    CONFLUENT = "confluent"  # a zero byte, and four bytes of the id
    APICURIO = "apicurio"  # a zero byte, and eight bytes of the id, or four
    GLUE = "Glue"  # the byte 3, one of the compression, and 16 of the schema version's id
    SINGLE_OBJECT = "single object"  # two bytes, and eight of the fingerprint of the schema
    NONE = "none"


# The expected bytes of each head, for a message about a value without them.
EXPECTED = {
    Head.CONFLUENT: "a zero byte and four bytes of a schema's id are expected",
    Head.APICURIO: "a zero byte and eight or four bytes of a schema's id are expected",
    Head.GLUE: "the byte 3, the byte 0 or 5 and 16 bytes of a schema version's id are expected",
    Head.SINGLE_OBJECT: "the bytes C3 01 and eight bytes of a schema's fingerprint are expected",
}
_NONE, _ABSENT, _NO_HEAD = int(Fault.NONE), int(Fault.ABSENT), int(Fault.NO_HEAD)
_WRONG_HEADER = int(Fault.WRONG_HEADER)
_GUID_BYTES = 16
MOST_INFLATED_BYTES = 16 << 20
_MOST_AT_ONCE = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Bodies:
    """The bodies of some values: data[start:stop], ids of schemas (int64) and faults (uint8), one row for each.

    The ids of a single-object head are fingerprints. Any other id below -1 stands for a GUID (`Guids`).
    """

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    ids: NDArray[np.int64]
    faults: NDArray[np.uint8]


def bodies_of(
    head: Head, values: pa.Array, headers: HeaderIds | None = None, guids: Guids | None = None, *, tails: bool = False
) -> Bodies:
    """Find the bodies of binary values.

    headers: the records' headers, which may name schemas. tails: whether bytes behind a header's id belong to the body.
    For Glue, the bodies of only the first values may be returned, to limit the decompressed bytes.
    """
    guids = Guids() if guids is None else guids
    by_header = None if headers is None or head is not Head.CONFLUENT else NamedRows.of(headers, guids)
    data, ends = buffers(values if by_header is None or not tails else by_header.before(values))
    data = data.view()
    data.setflags(write=False)  # as other buffers: else an empty array would cause a second compilation
    start, stop = ends[:-1].astype(np.int64), ends[1:].astype(np.int64)
    ids, faults = np.zeros(len(values), np.int64), np.zeros(len(values), np.uint8)
    if values.null_count:
        faults[np.asarray(values.is_null())] = _ABSENT
    if head is Head.GLUE:
        return _glue_bodies(Bodies(data, start, stop, ids, faults), guids)
    if head is Head.SINGLE_OBJECT:
        _find_fingerprints(data, stop, start, ids, faults)
    elif head is not Head.NONE:
        absent = faults == _ABSENT
        if by_header is not None:
            faults[by_header.rows] = _ABSENT  # their values have no head
        _find_ids(data, stop, head is Head.APICURIO, start, ids, faults)
        if by_header is not None:
            ids[by_header.rows] = by_header.ids
            faults[by_header.rows] = np.where(by_header.wrong, _WRONG_HEADER, _NONE)
            faults[absent] = _ABSENT
    return Bodies(data, start, stop, ids, faults)


def _glue_bodies(bodies: Bodies, guids: Guids) -> Bodies:
    """Find the schema version of each value, and decompress compressed values."""
    versions = np.zeros((len(bodies.start), _GUID_BYTES), np.uint8)
    packed = np.zeros(len(bodies.start), np.uint8)
    _find_versions(bodies.data, bodies.stop, bodies.start, bodies.faults, versions, packed)
    encoded = pa.Array.from_buffers(
        pa.binary(_GUID_BYTES), len(versions), [None, pa.py_buffer(versions)]
    ).dictionary_encode()
    numbers = np.array([guids.number(one) for one in encoded.dictionary.to_pylist()], np.int64)
    sound = bodies.faults == _NONE
    bodies.ids[sound] = numbers[encoded.indices.to_numpy()[sound]]
    return bodies if not packed.any() else _decompressed(bodies, np.flatnonzero(packed))


def _decompressed(bodies: Bodies, rows: NDArray[np.int64]) -> Bodies:
    """Decompress the bodies of `rows`. After _MOST_AT_ONCE bytes, the next of these rows and all later rows are cut.

    Whether a value is too large depends on this value alone, since a replay may read the batch in other pieces.
    """
    parts, at = [bodies.data], len(bodies.data)
    begin, most = at, len(bodies.start)
    for row in rows.tolist():
        if at - begin > _MOST_AT_ONCE:
            most = row
            break
        fault, part = _inflated(bodies.data[bodies.start[row] : bodies.stop[row]])
        bodies.faults[row] = fault
        bodies.start[row], bodies.stop[row] = at, at + len(part)
        parts.append(np.frombuffer(part, np.uint8))
        at += len(part)
    data = np.concatenate(parts)
    data.setflags(write=False)
    return Bodies(data, bodies.start[:most], bodies.stop[:most], bodies.ids[:most], bodies.faults[:most])


def _inflated(packed: NDArray[np.uint8]) -> tuple[Fault, bytes]:
    """Decompress one value, at most MOST_INFLATED_BYTES of it."""
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(packed.data, MOST_INFLATED_BYTES)
    except zlib.error:
        return Fault.WRONG_ZLIB, b""
    if inflate.eof:
        return Fault.NONE, body
    return (Fault.TOO_LARGE if len(body) == MOST_INFLATED_BYTES else Fault.WRONG_ZLIB), b""


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


@bare
def _find_versions(data, stop, start, faults, versions, packed):  # noqa: PLR0917
    """Read the id of the schema version of each head of Glue, and move `start` behind it."""
    for row in range(len(start)):
        if faults[row] != _NONE:
            continue
        at = start[row]
        if stop[row] - at < 18 or data[at] != 3 or (data[at + 1] != 0 and data[at + 1] != 5):
            faults[row] = _NO_HEAD
            continue
        packed[row] = data[at + 1] == 5
        for i in range(16):
            versions[row, i] = data[at + 2 + i]
        start[row] = at + 18


def texts_of(bodies: Bodies) -> pa.Array:
    """Return the bodies as binary values; null for a value with a fault."""
    valid = (bodies.faults == _NONE).astype(np.uint8)
    ends, out = copied_spans(bodies.data, bodies.data, bodies.start, bodies.stop, valid)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(valid), [bits, pa.py_buffer(ends), pa.py_buffer(out)])


def distinct_ids(bodies: Bodies) -> list[int]:
    """Return the ids of the values without a fault, each once."""
    some = np.empty(len(bodies.ids), np.int64)
    count = _changes(bodies.ids, bodies.faults, some)
    return list(dict.fromkeys(some[:count].tolist()))


@bare
def _changes(ids, faults, some):
    """Collect each id that differs from the id before it; return how many there are."""
    count, last = 0, np.int64(-1)
    for row in range(len(ids)):
        if faults[row] == _NONE and (ids[row] != last or count == 0):
            last = ids[row]
            some[count] = last
            count += 1
    return count


def places_of(bodies: Bodies, known: list[int]) -> NDArray[np.int32]:
    """Return the place of each value's id in `known`, -1 for a value with a fault or another id."""
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
