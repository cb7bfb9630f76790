"""The stream of a soak: which record has which key and event time, and what its windows hold. Nothing here is random.

Rule: a record is known by its partition and offset, so no answer has to be kept while hours of records pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

CHUNK_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Records at a steady rate: each partition gets the same number of records every CHUNK_MS, with one event time.

    first_ms: the event time of the first records, a multiple of the window.
    """

    first_ms: int
    rate: int = 20_000
    seconds: int
    partitions: int = 4
    keys: int = 1_000
    window_ms: int = 10_000
    lag_ms: int = 1_000

    def __post_init__(self) -> None:
        if self.rate * CHUNK_MS % (1_000 * self.partitions):
            raise ValueError(f"rate {self.rate}: a chunk of {CHUNK_MS} ms must have whole records for each partition")
        if self.first_ms % self.window_ms:
            raise ValueError(f"first_ms {self.first_ms}: must be a multiple of the window, {self.window_ms} ms")

    @property
    def chunk_records(self) -> int:
        """The number of records of a partition in a chunk."""
        return self.rate * CHUNK_MS // 1_000 // self.partitions

    @property
    def chunks(self) -> int:
        """The number of chunks of the whole stream."""
        return self.seconds * 1_000 // CHUNK_MS

    @property
    def last_ms(self) -> int:
        """The event time of the last records."""
        return self.first_ms + (self.chunks - 1) * CHUNK_MS

    @property
    def records(self) -> int:
        """The number of records of a partition."""
        return self.chunks * self.chunk_records

    def times_ms(self, offsets: Ints) -> Ints:
        """Return the event times of records of any partition."""
        return self.first_ms + offsets // self.chunk_records * CHUNK_MS

    def keys_of(self, partition: int, offsets: Ints) -> Ints:
        """Return the numbers of the keys of a partition's records."""
        return (offsets * self.partitions + partition) % self.keys

    def closed_windows(self) -> range:
        """Return the starts of the windows that the last records close."""
        last = (self.last_ms - self.lag_ms) // self.window_ms * self.window_ms
        return range(self.first_ms, last, self.window_ms)

    def window(self, start_ms: int) -> tuple[Ints, Ints]:
        """Return the count and the sum of the offsets of each key in a window."""
        counts, sums = np.zeros(self.keys, np.int64), np.zeros(self.keys, np.int64)
        chunk = (start_ms - self.first_ms) // CHUNK_MS
        offsets = np.arange(chunk * self.chunk_records, (chunk + self.window_ms // CHUNK_MS) * self.chunk_records)
        for partition in range(self.partitions):
            keys = self.keys_of(partition, offsets)
            counts += np.bincount(keys, minlength=self.keys)
            np.add.at(sums, keys, offsets)
        return counts, sums
