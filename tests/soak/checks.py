"""What a reader of a soak's outputs compares with the stream: every record of the copy, every row of the windows."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from keyedwm.kafka.client.values import Isolation
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from tests.soak.pipeline import DIGITS
from tests.soak.stream import Ints, Stream


@dataclass(slots=True)
class Findings:
    """Records that a reader misses, sees twice or sees after a later one, and windows with another content."""

    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    wrong_windows: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not any((self.lost, self.doubled, self.reordered, self.wrong_windows))

    def summary(self) -> str:
        """Return one line."""
        return (
            f"lost {self.lost}, doubled {self.doubled}, reordered {self.reordered}, wrong windows {self.wrong_windows}"
        )


@dataclass(slots=True)
class CopyReader:
    """Reads the copy as a consumer of committed records does; each record is looked at once.

    expected: the offset that must come next in each partition. latencies_ms: of the newest record of each read, from
    its event time until it was read.
    """

    stream: Stream
    topic: str
    findings: Findings
    expected: list[int] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    _next: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.expected = [0] * self.stream.partitions
        self._next = dict.fromkeys(range(self.stream.partitions), 0)

    def read(self, cluster: Cluster) -> None:
        """Read what was committed since the last time."""
        places = [(self.topic, partition) for partition in self._next]
        ends = {where.partition: end for where, end in cluster.latest(places, Isolation.READ_COMMITTED).items()}
        ranges = [OffsetRange(self.topic, p, self._next[p], end) for p, end in ends.items() if end > self._next[p]]
        for part in read_ranges(cluster, ranges, ColumnSelection(), Isolation.READ_COMMITTED):
            values = part.records.value
            if len(values):
                self.take(part.tp.partition, _offsets_of(values))
            self._next[part.tp.partition] = part.next_offset  # a read that fails later does not repeat these records

    def take(self, partition: int, offsets: Ints) -> None:
        """Compare the next records of a partition with the stream."""
        expected = self.expected[partition]
        if (offsets == np.arange(expected, expected + len(offsets))).all():
            self.expected[partition] = expected + len(offsets)
        else:
            self._differs(partition, offsets)
        now_ms = time.time() * 1e3
        self.latencies_ms.append(now_ms - float(self.stream.times_ms(offsets[-1:])[0]))

    def complete(self) -> bool:
        """Whether all records were read."""
        return min(self.expected) >= self.stream.records

    def _differs(self, partition: int, offsets: Ints) -> None:
        top = self.expected[partition] - 1
        for offset in offsets.tolist():
            if offset == top + 1:
                top = offset
            elif offset > top:
                self.findings.lost += offset - top - 1
                top = offset
            elif offset == top:
                self.findings.doubled += 1
            else:  # seen before, or missed and now behind a later one
                self.findings.doubled += 1
                self.findings.reordered += 1
        self.expected[partition] = top + 1


def _offsets_of(values: pa.Array) -> Ints:
    """Return the offsets in a column of values of the copy."""
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    lengths = set(np.diff(bounds).tolist())
    if lengths != {DIGITS}:
        raise ValueError(f"the copy's values have {sorted(lengths)} bytes, {DIGITS} were written")
    digits = np.frombuffer(values.buffers()[2], f"S{DIGITS}", len(values), int(bounds[0]))
    return digits.astype(np.int64)


def table_files(table: Path) -> list[tuple[float, Path]]:
    """Return (time of the commit, file) of all files of a Delta table, in the order of commits."""
    files = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        at_ms = next((one["commitInfo"]["timestamp"] for one in actions if "commitInfo" in one), 0)
        files += [(at_ms, table / one["add"]["path"]) for one in actions if "add" in one]
    return files


def window_rows(table: Path) -> tuple[pa.Table, Ints]:
    """Return the rows of all windows, and the time at which each was committed."""
    tables, times_ms = [], []
    for at_ms, path in table_files(table):
        rows = pq.read_table(path, columns=["key", "n", "offsets", "start_ms"], partitioning=None)
        tables.append(rows)
        times_ms.append(np.full(rows.num_rows, at_ms, np.int64))
    return pa.concat_tables(tables), np.concatenate(times_ms)


def check_windows(rows: pa.Table, stream: Stream, findings: Findings) -> None:
    """Compare the windows with the stream: each key of each closed window once, with its count and sum."""
    keys = np.array([int(key) for key in rows["key"].to_pylist()])
    starts, counts, sums = (np.asarray(rows[name]) for name in ("start_ms", "n", "offsets"))
    order = np.argsort(starts, kind="stable")
    cuts = np.searchsorted(starts[order], [*stream.closed_windows()])
    rows_of_start = Counter(starts.tolist())
    for at, start_ms in zip(cuts, stream.closed_windows(), strict=True):
        mine = order[at : at + rows_of_start[start_ms]]
        expected_counts, expected_sums = stream.window(start_ms)
        seen = np.bincount(keys[mine], minlength=stream.keys)
        findings.lost += int((seen == 0).sum())
        findings.doubled += int((seen - 1).clip(0).sum())
        once = mine[seen[keys[mine]] == 1]
        wrong = (counts[once] != expected_counts[keys[once]]) | (sums[once] != expected_sums[keys[once]])
        findings.wrong_windows += int(wrong.sum())
    others = rows_of_start.keys() - set(stream.closed_windows())
    open_now = {one for one in others if one >= stream.closed_windows().stop}
    findings.wrong_windows += sum(rows_of_start[one] for one in others - open_now)
