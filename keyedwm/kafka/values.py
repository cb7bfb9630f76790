"""The plain values this room trades in; no type of kafka-python leaves it.

Rule: values only, picklable and comparable; nothing here opens a connection.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; equal to, and hashed as, the plain pair `(topic, partition)`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


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


class Committed(NamedTuple):
    """A group's committed position in one partition: the next offset and the metadata string beside it."""

    next_offset: int
    metadata: str
