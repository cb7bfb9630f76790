"""The streams that windows are measured on, and their exact answers, both pure functions of a record's number.

Rule: an answer is worked out with numpy alone, never with what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.measure import FIRST_MS, PARTITIONS, VALUE, new_topic
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import send

if TYPE_CHECKING:
    from pyspark.sql import Column

SESSION = 0
HOUR_MS = 3_600_000
# Bursts of sessions: so many rows of so many keys.
BURST_ROWS, BURST_KEYS = 20_000, 2_000
_KEY_FACTOR, _TIME_FACTOR, _COUNT_FACTOR = 1_000_003, 7_919, 31
_PLACES, _PRIME = 1_000_033, 1_000_000_007


@dataclass(frozen=True, slots=True)
class Stream:
    """Windows of `size_ms` every `slide_ms` (SESSION: a gap of `size_ms`) over random keys, `per_ms` records a ms.

    hot_key, hot_partition: the share of the records that the first one has, beside its turn among all.
    """

    size_ms: int
    slide_ms: int
    keys: int = 1_000
    per_ms: int = 1
    partitions: int = PARTITIONS
    hot_key: float = 0
    hot_partition: float = 0

    def numbers(self, records: int) -> np.ndarray:
        """The key of each record, in order of event time; of sessions in bursts."""
        chance = np.random.default_rng(1)
        if self.hot_key:
            return np.where(chance.random(records) < self.hot_key, 0, chance.integers(0, self.keys, records))
        if self.slide_ms != SESSION:
            return chance.integers(0, self.keys, records)
        burst = np.arange(records) // BURST_ROWS * BURST_KEYS % self.keys
        return burst + chance.integers(0, BURST_KEYS, records)

    def after_ms(self, records: int) -> np.ndarray:
        """The event time of each record, from FIRST_MS on."""
        return np.arange(records) // self.per_ms

    def places(self, records: int) -> np.ndarray:
        """The partition of each record: in turn, but for those that a hot one draws."""
        turn = np.arange(records) % self.partitions
        hot = np.random.default_rng(2).random(records) < self.hot_partition if self.hot_partition else False
        return np.where(hot, 0, turn)

    def offsets(self, records: int) -> np.ndarray:
        """The offset of each record in its partition."""
        if not self.hot_partition:
            return np.arange(records) // self.partitions
        places, offsets = self.places(records), np.empty(records, np.int64)
        for partition in range(self.partitions):
            is_here = places == partition
            offsets[is_here] = np.arange(np.count_nonzero(is_here))
        return offsets


def load(cluster: Cluster, topic: str, stream: Stream, records: int) -> None:
    """Produce the records over the partitions, and at last one in each that closes all windows."""
    new_topic(cluster, topic, stream.partitions)
    names = pa.array([b"%06d" % number for number in range(stream.keys)], pa.binary())
    keys, times = stream.numbers(records), FIRST_MS + stream.after_ms(records)
    tables, places = {}, stream.places(records)
    for partition in range(stream.partitions):
        is_here = places == partition
        stamps = np.append(times[is_here], times[-1] + HOUR_MS)
        values = pa.array([VALUE], pa.binary()).take(pa.array(np.zeros(len(stamps), np.int64)))
        key = names.take(pa.array(np.append(keys[is_here], 0)))
        tables[partition] = pa.table({"key": key, "value": values, "timestamp": stamps})
    send(cluster, topic, tables)


@cache
def answer(stream: Stream, records: int) -> dict[str, int]:
    """The number of results, the sums of their counts and offsets, and a checksum that ties them together."""
    keys, times = stream.numbers(records), stream.after_ms(records)
    offsets = stream.offsets(records)
    columns = (_sessions if stream.slide_ms == SESSION else _slides)(stream, keys, times, offsets)
    key, start_ms, n, total = columns
    place = (key * _KEY_FACTOR + (start_ms + FIRST_MS) * _TIME_FACTOR) % _PLACES
    checksum = place * (1 + n * _COUNT_FACTOR + total) % _PRIME
    return {"results": len(n), "rows": int(n.sum()), "offsets": int(total.sum()), "checksum": int(checksum.sum())}


def check_columns() -> list[Column]:
    """The same of results in Spark: columns k, window, n, total."""
    from pyspark.sql import functions as F

    start_ms = F.unix_millis("window.start")
    place = F.pmod(F.col("k").cast("long") * _KEY_FACTOR + start_ms * _TIME_FACTOR, F.lit(_PLACES))
    checksum = F.pmod(place * (1 + F.col("n") * _COUNT_FACTOR + F.col("total")), F.lit(_PRIME))
    sums = {"rows": F.col("n"), "offsets": F.col("total"), "checksum": checksum}
    return [F.count("*").alias("results"), *(F.sum(column).alias(name) for name, column in sums.items())]


def _slides(stream: Stream, keys: np.ndarray, times: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Frames of one slide by key, and the sum of size/slide neighbours for each window that has a row."""
    overlap, frames = stream.size_ms // stream.slide_ms, int(times[-1]) // stream.slide_ms + 1
    where = keys * frames + times // stream.slide_ms
    shape = (stream.keys, frames)
    n = _neighbours(np.bincount(where, minlength=stream.keys * frames).reshape(shape), overlap)
    sums = np.bincount(where, weights=offsets, minlength=stream.keys * frames)  # exact below 2**53
    total = _neighbours(sums.astype(np.int64).reshape(shape), overlap)
    key, window = np.nonzero(n)
    return key, (window - overlap + 1) * stream.slide_ms, n[key, window], total[key, window]


def _neighbours(frames: np.ndarray, overlap: int) -> np.ndarray:
    """Sums over every run of `overlap` columns, those that stick out at the ends too."""
    running_sums = np.cumsum(np.pad(frames, ((0, 0), (overlap, overlap - 1))), axis=1)
    return running_sums[:, overlap:] - running_sums[:, :-overlap]


def _sessions(stream: Stream, keys: np.ndarray, times: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows of a key in order, cut where more than the gap lies between two."""
    order = np.lexsort((times, keys))
    keys, times, offsets = keys[order], times[order], offsets[order]
    borders = np.flatnonzero((np.diff(keys) != 0) | (np.diff(times) > stream.size_ms)) + 1
    starts = np.append(0, borders)
    return keys[starts], times[starts], np.diff(np.append(starts, len(keys))), np.add.reduceat(offsets, starts)
