"""Why a value cannot be read, as numbers that compiled loops set and as sentences that people read.

Rule: offset logs and committed states count faults by these numbers, so a number never gets another meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class Fault(IntEnum):
    """The state of one value after it was read; NONE and ABSENT (a null value) are no faults."""

    NONE = 0
    ABSENT = 1
    NO_HEAD = 2  # of the value
    UNKNOWN_SCHEMA = 3
    OTHER_KIND = 4
    WRONG_SCHEMA = 5
    OTHER_TYPE = 6
    CUT = 7
    WRONG_BRANCH = 8
    WRONG_SYMBOL = 9
    TOO_DEEP = 10
    WRONG_HEADER = 11  # of the record
    TOO_LARGE = 12  # once decompressed
    WRONG_ZLIB = 13
    TOO_LONG = 14  # the JSON text of a field

    @property
    def label(self) -> str:
        """The name of the reason in progress and metrics."""
        return self.name.lower()


# The sentences for faults of bodies. `Problem` has those for faults of schemas, `Decoded.reason` those for heads.
FAULTS: Mapping[Fault, str] = MappingProxyType({
    Fault.CUT: "the value is cut off, or a length or a number in it is damaged",
    Fault.WRONG_BRANCH: "the value has a branch of a union that its schema does not have",
    Fault.WRONG_SYMBOL: "the value has a symbol of an enum that its schema does not have",
    Fault.TOO_DEEP: "the value has more records within each other than can be read",
    Fault.TOO_LARGE: "the value has more than 16 MiB once it is decompressed",
    Fault.WRONG_ZLIB: "the value is compressed by zlib, and its bytes are damaged or cut off",
    Fault.TOO_LONG: "the value has a field whose JSON text is longer than 16 MiB",
})  # fmt: skip
OF_ZLIB = (Fault.TOO_LARGE, Fault.WRONG_ZLIB)
WRONG_HEADER = (
    "the header that names the schema is damaged: a zero byte and four bytes of an id, or the byte 1 and 16 bytes of a "
    "GUID, are expected"
)
