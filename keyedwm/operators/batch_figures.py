"""The figures of a bucket's batch that only some operators have: messages of windows, and keys with watermarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCounts:
    """Counts of all messages since the store was new: taken = held + expired + dropped.

    given: all rows received. taken: messages stored. replayed: messages that had been stored or rejected before.
    rejected: messages returned with a reason. expired: messages dropped when their last window expired.
    dropped_messages, dropped_bytes, dropped_windows: removed by a limit of size.
    """

    given: int = 0
    taken: int = 0
    replayed: int = 0
    rejected: int = 0
    expired: int = 0
    dropped_messages: int = 0
    dropped_bytes: int = 0
    dropped_windows: int = 0

    def since(self, before: StoreCounts) -> StoreCounts:
        """Return the counts since `before`."""
        return StoreCounts(**{name: getattr(self, name) - getattr(before, name) for name in _NAMES})

    @classmethod
    def together(cls, counts: Iterable[StoreCounts]) -> StoreCounts:
        """Return the sums of several counts, for example of the sides of a join."""
        several = list(counts)
        return cls(**{name: sum(getattr(one, name) for one in several) for name in _NAMES})


_NAMES = [one.name for one in fields(StoreCounts)]


@dataclass(frozen=True, slots=True)
class KeyWatermarkSummary:
    """The figures of the keys of a bucket. behind: (how far behind W in ms, number of keys), ascending; keys at W or
    above it are behind by 0. slowest: keys and by how much they are behind W, the most first. dropped_rows: keys and
    how many of their rows were dropped, the most first.
    """

    behind: Sequence[tuple[int, int]]
    forgotten: int
    slowest: Sequence[tuple[str, int]]
    dropped_rows: Sequence[tuple[str, int]]

    @property
    def key_count(self) -> int:
        """The number of keys that are held."""
        return sum(keys for _, keys in self.behind)

    @property
    def behind_w(self) -> int:
        """The number of keys that are behind W."""
        return sum(keys for by_ms, keys in self.behind if by_ms > 0)

    def percentile_ms(self, share: float) -> int:
        """Return the ms behind W that this share of the keys does not exceed."""
        if not self.key_count:
            return 0
        by_ms, keys = np.array(self.behind, np.int64).T
        return int(by_ms[np.searchsorted(np.cumsum(keys), share * self.key_count)])
