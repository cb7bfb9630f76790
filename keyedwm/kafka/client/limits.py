"""The limits of a client that no option sets, in one value that its configuration carries.

Each room has its own, beside what it is configured by: one value for all would stand in the core, name the sizes of
files and locks that the core knows nothing of, and change with every room.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """answer_grace_ms: how much longer than its own time-outs an answer is waited for, looked at every answer_poll_s.

    unknown_topic_grace_s: how long brokers may not know a topic yet. coordinators: how many are kept.
    batch_bytes: of a record batch before compression, of a topic whose limit is unknown; a broker takes 1,048,588 by
    default. unit_bytes: the longest record or block of a codec to decompress. A batch that decompresses to no more than
    first_bytes comes in one chunk, as nearly all do; from then on in chunks of next_bytes. rows: of one step.
    """

    answer_grace_ms: int = 5_000
    answer_poll_s: float = 1.0
    unknown_topic_grace_s: float = 0.5
    coordinators: int = 10_000
    batch_bytes: int = 900_000
    unit_bytes: int = 14 << 20
    first_bytes: int = 4 << 20
    next_bytes: int = 1 << 20
    rows: int = 1 << 17


LIMITS = WireLimits()
