"""The plain values of this package; no type of kafka-python leaves it.

Rule: values only, picklable and comparable; nothing here opens a connection.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

_Part = TypeVar("_Part")


class TopicPartition(NamedTuple):
    """One partition of one topic; equal to, and hashed as, the plain pair `(topic, partition)`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition], part: Callable[[TopicPartition], _Part]) -> dict[str, list[_Part]]:
    """Return what `part` makes of each partition, in their order, by topic: the shape of Kafka's requests."""
    found: dict[str, list[_Part]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(part(tp))
    return found


_MOST_DIGITS = 19


def number_of(text: str | None) -> int | None:
    """Read a whole number from 0 up out of a broker's setting, None if it is none that 64 bits hold."""
    sound = text is not None and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if sound and text is not None else None


class Isolation(enum.Enum):
    """Whether records of open and aborted transactions are seen (Kafka's `isolation.level`)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"

    @property
    def wire(self) -> int:
        """The number Kafka's requests carry."""
        return int(self is Isolation.READ_COMMITTED)


class Codec(enum.IntEnum):
    """How the records of a batch are compressed; the values are the batch header's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class LogEnd(NamedTuple):
    """The offset after the last readable record, and the epoch of the leader that said so (None: it did not)."""

    offset: int
    leader_epoch: int | None


class Committed(NamedTuple):
    """A group's committed position in one partition: the next offset and the metadata string beside it."""

    next_offset: int
    metadata: str
