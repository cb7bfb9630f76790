"""When logs are compacted: how often a row is written again, what is read, and how much of the state is dead."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from keyedwm.operators.state.store import LIMITS, MemoryStore, StateLimits, TableLogs

LOG = "frame-0"


def merge(tables):
    """One row for each key, the sum of its rows."""
    return pa.concat_tables(tables).group_by("k").aggregate([("n", "sum")]).rename_columns(["k", "n"])


class CompactedLog:
    """A log that is opened anew for every batch."""

    def __init__(self, limits=LIMITS):
        self.store, self.facts = MemoryStore(limits=limits), {}
        self.written_bytes = 0

    def batch(self, keys):
        logs = TableLogs(self.store, manifest="note", state=self.facts)
        logs.append(LOG, pa.table({"k": keys, "n": np.ones(len(keys), np.int64)}))
        logs.declare(LOG, merge)
        changes = logs.drain()
        self.store.blobs.update(changes.blobs)
        for name in changes.removed:
            del self.store.blobs[name]
        self.facts = logs.state()
        self.written_bytes += sum(map(len, changes.blobs.values()))

    @property
    def bytes(self):
        return sum(map(len, self.store.blobs.values()))

    def total(self):
        return sum(pa.concat_tables(TableLogs(self.store, manifest="note", state={}).read(LOG))["n"].to_pylist())


def test_large_parts_of_distinct_keys_are_written_once():
    log, once = CompactedLog(StateLimits(whole_bytes=1 << 20)), 0
    for number in range(2 * LIMITS.fan_out):
        keys = np.arange(10_000) + 10_000 * number
        log.batch(keys)
        once += 16 * len(keys)
    assert log.written_bytes < 1.02 * once
    assert log.total() == 2 * LIMITS.fan_out * 10_000


def test_a_log_in_which_keys_come_again_stays_within_three_times_its_keys():
    rng = np.random.default_rng(3)
    log, once, live = CompactedLog(StateLimits(whole_bytes=1 << 20)), 0, 16 * 50_000
    for _ in range(120):
        keys = rng.integers(0, 50_000, 10_000)
        log.batch(keys)
        once += 16 * len(keys)
        assert log.bytes < 3 * live + (1 << 20)
    assert log.written_bytes < 2 * once
    assert log.total() == 120 * 10_000
    assert log.facts["rows"][LOG] < 3 * 50_000 + 100_000


def test_small_parts_become_few_and_each_row_is_written_a_few_times():
    log = CompactedLog()
    for number in range(1_000):
        log.batch(np.array([number]))
    assert len(log.store.blobs) < 3 * LIMITS.fan_out
    assert log.total() == 1_000
