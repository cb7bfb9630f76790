"""The plain values of this package, and its limits that no option sets; no type of kafka-python is used outside.

Rule: values only, picklable and comparable; nothing here opens a connection. Each package has its own limits: one value
for all would be in the core, which knows no files and locks, and would change with every package.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from keyedwm.config.validation import wrong

_Part = TypeVar("_Part")


class TopicPartition(NamedTuple):
    """One partition of one topic; equal to, and hashed as, the plain pair `(topic, partition)`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition], part: Callable[[TopicPartition], _Part]) -> dict[str, list[_Part]]:
    """Return the result of `part` for each partition, in order, by topic: the shape of Kafka's requests."""
    parts: dict[str, list[_Part]] = {}
    for tp in partitions:
        parts.setdefault(tp.topic, []).append(part(tp))
    return parts


_MOST_DIGITS = 19


def number_of(text: str | None) -> int | None:
    """Read a whole number from 0 up from a broker's setting, None if it is no such number of 64 bits."""
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
    """The compression of a batch's records; the values are the batch header's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class LogEnd(NamedTuple):
    """The offset after the last readable record, and the epoch of the leader that answered (None: unknown)."""

    offset: int
    leader_epoch: int | None


class Committed(NamedTuple):
    """A group's committed position in one partition: the next offset and the metadata string beside it."""

    next_offset: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """answer_grace_ms: the extra time to wait for an answer after its own time-outs, checked every answer_poll_s.

    unknown_topic_grace_s: how long brokers may not know a new topic. coordinators: how many are cached.
    silent_range_ms: after this time without a record, the log is asked whether it still holds the range. batch_bytes:
    the most bytes of a record batch before compression, if the topic's limit is unknown; a broker accepts 1,048,588 by
    default. unit_bytes: the longest record or block of a codec to decompress. A batch that decompresses to no more than
    first_bytes comes in one chunk, as nearly all do; the rest of a larger one in chunks of next_bytes. rows: the most
    rows of one step.
    """

    answer_grace_ms: int = 5_000
    answer_poll_s: float = 1.0
    unknown_topic_grace_s: float = 0.5
    coordinators: int = 10_000
    silent_range_ms: int = 5_000
    batch_bytes: int = 900_000
    unit_bytes: int = 14 << 20
    first_bytes: int = 4 << 20
    next_bytes: int = 1 << 20
    rows: int = 1 << 17


LIMITS = WireLimits()


_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NOT_NAMES = frozenset({".", ".."})


def check_topics(option: str, topics: Iterable[str]) -> None:
    """Raise OptionError for the first name that no topic can have; option: the option with the names."""
    for topic in topics:
        if topic in _NOT_NAMES or not _LEGAL.fullmatch(topic):
            raise wrong(
                option, topic,
                "the name of a topic has 1 to 249 letters (a to z), digits, '.', '_' and '-', and is not '.' or '..'",
            )  # fmt: skip
