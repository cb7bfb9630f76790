"""The ids of schemas in headers of records, as Confluent's newer serializers write them.

Rule: the key or value of a record with the header has no head. The last header of a name counts. A header is a zero
byte and four bytes of an id, or the byte 1 and 16 bytes of a GUID. For Protobuf the message's indexes follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_ID_BYTES, _GUID_BYTES = 4, 16
_FIRST_NUMBER = -2


@dataclass(frozen=True, slots=True, eq=False)
class HeaderIds:
    """The headers of some records. texts: the distinct headers. which: each record's place in `texts`, -1 for none."""

    which: NDArray[np.int32]
    texts: tuple[bytes, ...]


def header_ids(headers: pa.Array | None, name: str) -> HeaderIds | None:
    """Return the headers with this name; None if no record has one. A header without a value is ignored."""
    if headers is None or headers.null_count == len(headers):
        return None
    rows, fields = pc.list_parent_indices(headers), pc.list_flatten(headers)
    is_id = pc.and_(pc.equal(fields.field("key"), name), fields.field("value").is_valid())
    row = rows.filter(is_id).to_numpy()
    if not len(row):
        return None
    encoded = fields.field("value").filter(is_id).dictionary_encode()
    which = np.full(len(headers), -1, np.int32)
    which[row] = encoded.indices.to_numpy()  # in order: of several headers in one record the last stays
    return HeaderIds(which, tuple(encoded.dictionary.to_pylist()))


class Guids:
    """The numbers, below -1, that stand for the GUIDs of one decoder; a number is never used again."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._texts: dict[int, str] = {}
        self._next = _FIRST_NUMBER

    def number(self, guid: bytes) -> int:
        """Return the number of a GUID."""
        if guid not in self._numbers:
            self._numbers[guid] = self._next
            self._texts[self._next] = str(UUID(bytes=guid))
            self._next -= 1
        return self._numbers[guid]

    def text(self, number: int) -> str | None:
        """Return the GUID of a number, None for an id."""
        return self._texts.get(number)

    @property
    def texts(self) -> dict[int, str]:
        """All GUIDs, by their numbers."""
        return dict(self._texts)

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget GUIDs: a producer that writes a new one into each record must not fill the memory."""
        for number in numbers:
            if number in self._texts:
                del self._numbers[UUID(self._texts.pop(number)).bytes]


@dataclass(frozen=True, slots=True, eq=False)
class NamedRows:
    """The rows (positions) whose header names a schema.

    ids: of their schemas. wrong: whether a header is damaged. tails: the bytes behind each id.
    """

    rows: NDArray[np.int64]
    ids: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    tails: pa.Array

    @classmethod
    def of(cls, headers: HeaderIds, guids: Guids) -> NamedRows:
        """Read the headers; each distinct one is read once."""
        rows = np.flatnonzero(headers.which >= 0)
        which = headers.which[rows]
        read = [_id_of(text, guids) for text in headers.texts]
        ids = np.array([0 if one is None else one[0] for one in read], np.int64)[which]
        wrong = np.array([one is None for one in read])[which]
        tails = pa.array([b"" if one is None else one[1] for one in read], pa.binary())
        return cls(rows, ids, wrong, tails.take(pa.array(which)))

    def before(self, values: pa.Array) -> pa.Array:
        """Return the values of all rows, each behind the bytes that follow the id in its header."""
        places = np.full(len(values), -1, np.int64)
        places[self.rows] = np.arange(len(self.rows))
        tails = pc.fill_null(self.tails.take(pa.array(places, mask=places < 0)), b"")
        return pc.binary_join_element_wise(tails, values, pa.scalar(b"", pa.binary()))


def _id_of(header: bytes, guids: Guids) -> tuple[int, bytes] | None:
    """Return the id in a header and the bytes behind it, None if there is no id."""
    size = {b"\0": _ID_BYTES, b"\1": _GUID_BYTES}.get(header[:1])
    if size is None or len(header) < 1 + size:
        return None
    name = header[1 : 1 + size]
    return int.from_bytes(name, "big") if size == _ID_BYTES else guids.number(name), header[1 + size :]
