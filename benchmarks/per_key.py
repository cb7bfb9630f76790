"""What a watermark for each data key costs: rows a second beside one watermark, keys held, and bytes of a key.

Run: python -m benchmarks.per_key [--keys 100000] [--batches 20] [--floor]
One bucket in this process, a fresh operator a batch, as Spark does it. Both ways take turns batch by batch, so that a
machine that others use slows both.
"""

from __future__ import annotations

import argparse
from time import process_time

import crc32c
import numpy as np
import pyarrow as pa

from benchmarks.measure import how_many
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore

SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64()), ("topic", pa.string()), ("partition", pa.int32()),
                    ("offset", pa.int64())])  # fmt: skip
DAY_MS = 86_400_000
PER_KEY = PerKey(1_000, DAY_MS)


class Bucket:
    """A plan and its state."""

    def __init__(self, window: SlidingWindow | SessionWindow, per_key: PerKey | None) -> None:
        self.plan = WindowPlan(
            schema=SCHEMA, by=("key",), time="time", window=window, aggregates=(("rows", count()),),
            order=("topic", "partition", "offset"), key_watermark=per_key,
        ).trimmed()  # fmt: skip
        self.store = MemoryStore()
        self.results = 0

    def batch(self, rows: pa.Table, watermark_ms: int) -> float:
        """Run one batch; return its seconds."""
        began_s = process_time()
        operator = operator_of(self.plan, self.store)
        partials = combine_rows(self.plan, rows)
        for output in (*operator.on_rows(0, partials, None), *operator.on_watermark(0, 0, watermark_ms)):
            self.results += output.rows.num_rows
        self.store.apply(operator.drain())
        return process_time() - began_s


def rows_of(keys: np.ndarray, times: np.ndarray) -> pa.Table:
    """Rows of one partition."""
    texts = pa.array(np.char.add("device-", keys.astype("U8")), pa.string())
    topic, partition = pa.repeat("events", len(keys)), pa.array(np.zeros(len(keys), np.int32))
    return pa.table([texts, pa.array(times), topic, partition, pa.array(np.arange(len(keys)))], schema=SCHEMA)


def on_time(window: SlidingWindow | SessionWindow, keys: int, batches: int) -> list[float]:
    """Return rows a second, with one watermark and with one for each key: every key tells something every 2 s."""
    both = [Bucket(window, None), Bucket(window, PER_KEY)]
    spent = [0.0, 0.0]
    for batch in range(batches):
        times = batch * 2_000 + np.arange(keys, dtype=np.int64) * 2_000 // keys
        rows = rows_of(np.random.default_rng(batch).permutation(keys), times)
        for at, bucket in enumerate(both):
            seconds = bucket.batch(rows, batch * 2_000 + 1_000)
            spent[at] += seconds if batch >= batches // 4 else 0.0
    return [keys * (batches - batches // 4) / one for one in spent]


def times_and_bytes(
    window: SlidingWindow | SessionWindow, counts: tuple[int, ...], batches: int
) -> list[tuple[float, float]]:
    """Return for so many keys held the median seconds of a batch of 10,000 rows, and the bytes of a key's watermark."""
    buckets = []
    for keys in counts:
        bucket = Bucket(window, PER_KEY)
        for first in range(0, keys, 100_000):
            some = np.arange(first, min(first + 100_000, keys))
            bucket.batch(rows_of(some, np.full(len(some), 1_000)), 500)
        buckets.append(bucket)
    seconds: list[list[float]] = [[] for _ in counts]
    rng = np.random.default_rng(3)
    for batch in range(batches):
        for at, (keys, bucket) in enumerate(zip(counts, buckets, strict=True)):
            batch_keys = rng.choice(keys, 10_000, replace=False)
            seconds[at].append(bucket.batch(rows_of(batch_keys, np.full(10_000, 12_000 + 10_000 * batch)), 600 + batch))
    times_of_counts = []
    for at, bucket in enumerate(buckets):
        size = sum(len(blob) for name, blob in bucket.store.blobs.items() if name.partition("+")[0] == "own")
        times_of_counts.append((float(np.median(seconds[at])), size / counts[at]))
    return times_of_counts


def floor(counts: tuple[int, ...], bytes_a_key: int = 72) -> list[tuple[float, float]]:
    """Return for so many keys held the least that a batch must do: seconds to find 10,000 hashes among theirs with bare
    NumPy and fetch a number of each, and to check the checksum of the blobs that hold watermark and window of each.
    """
    rng, times_of_counts = np.random.default_rng(5), []
    for keys in counts:
        hashes, values = np.sort(rng.integers(-(2**63), 2**63 - 1, keys)), rng.integers(0, 9, keys)
        blob, spent = bytes(keys * bytes_a_key), []
        for _ in range(20):
            batch_hashes = np.sort(rng.choice(hashes, 10_000, replace=False))
            began_s = process_time()
            values[np.searchsorted(hashes, batch_hashes)].sum()
            searched_s = process_time()
            crc32c.crc32c(blob)
            spent.append((searched_s - began_s, process_time() - searched_s))
        times_of_counts.append(
            (float(np.median([one for one, _ in spent])), float(np.median([one for _, one in spent])))
        )
    return times_of_counts


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=how_many, default=100_000)
    parser.add_argument("--held", type=how_many, default=1_000_000)
    parser.add_argument("--batches", type=how_many, default=20)
    parser.add_argument("--floor", action="store_true", help="only what finding keys and checking blobs costs at least")
    options = parser.parse_args()
    for keys, (search_s, checked) in zip((10_000, options.held), floor((10_000, options.held)), strict=True):
        floor_text = f"{search_s * 1e3:.2f} ms to find them with bare NumPy, {checked * 1e3:.2f} ms to check the blobs"
        print(f"at least, for 10,000 of {keys:,} keys held: {floor_text}", flush=True)
    if options.floor:
        return
    for name, window in {"tumbling 10 s": SlidingWindow(10_000, 10_000), "session 1 s": SessionWindow(1_000)}.items():
        plain, per_key = on_time(window, options.keys, options.batches)
        print(f"{name}: {plain:,.0f} rows/s with one watermark, {per_key:,.0f} per key: {per_key / plain:.2f}x")
        few, many = times_and_bytes(window, (10_000, options.held), max(4, options.batches // 4))
        print(
            f"{name}: a batch of 10,000 rows {few[0] * 1e3:.0f} ms with 10,000 keys held, {many[0] * 1e3:.0f} ms with "
            f"{options.held:,}: {many[0] / few[0]:.2f}x; {many[1]:.0f} bytes a key"
        )


if __name__ == "__main__":
    main()
