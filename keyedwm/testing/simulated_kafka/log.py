"""A partition's log at its leader: record batches as bytes, high watermark, transactions, log start.

Rule: of a batch only the header is decoded. A reader gets the bytes that were written, with the log's base offset and
leader epoch.

The clock of the simulation stands still until a call moves it, and then calls its callbacks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c
import numpy as np
import pyarrow as pa

from keyedwm.kafka.records.encode import Producer, encode
from keyedwm.kafka.records.record_columns import RecordColumns

HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM, _ATTRIBUTES_AT, _EPOCH_AT = 21, 21, 12
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


class Header(NamedTuple):
    """The header of a record batch of format 2."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


@dataclass(slots=True)
class Batch:
    """A batch in the log."""

    first: int
    last: int
    data: bytes
    header: Header
    appended_ms: float

    @property
    def is_control(self) -> bool:
        """Whether it is the marker that ends a transaction."""
        return bool(self.header.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.header.attributes & _TRANSACTIONAL)


@dataclass(slots=True)
class Log:
    """One partition."""

    leader: int
    epoch: int = 0
    start: int = 0
    end: int = 0
    local: int = 0  # records before this offset are in tiered storage
    batches: list[Batch] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)  # producer id -> first offset of its open transaction
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first and last offset
    sequences: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # id -> epoch, next sequence, last base

    @property
    def stable(self) -> int:
        """The last stable offset; below the log start if that is in the middle of a batch of an open transaction."""
        return max(self._first_open, self.batches[0].first if self.batches else self.end)

    @property
    def _first_open(self) -> int:
        return min(self.open.values(), default=self.end)

    def epoch_end(self, epoch: int) -> int:
        """Return the end offset of the records of this leader epoch and earlier ones."""
        later = (one.first for one in self.batches if struct.unpack_from(">i", one.data, _EPOCH_AT)[0] > epoch)
        return next(later, self.end)

    def append(self, data: bytes, now_ms: float) -> int:
        """Append a batch without checks; return its base offset."""
        header = Header(*HEADER.unpack_from(data))
        placed = bytearray(data)
        struct.pack_into(">q", placed, 0, self.end)
        struct.pack_into(">i", placed, _EPOCH_AT, self.epoch)
        first = self.end
        self.end += header.last_delta + 1
        batch = Batch(first, self.end - 1, bytes(placed), header, now_ms)
        self.batches.append(batch)
        if batch.is_transactional and not batch.is_control:
            self.open.setdefault(header.producer_id, first)
        return first

    def produce(self, data: bytes, now_ms: float) -> tuple[str, int]:
        """Append a producer's batch, unless its sequence is a duplicate or has a gap. Return code name and offset."""
        header = Header(*HEADER.unpack_from(data))
        if header.producer_id >= 0:
            epoch, following, base = self.sequences.get(header.producer_id, (header.producer_epoch, 0, -1))
            if header.producer_epoch < epoch:
                return "INVALID_PRODUCER_EPOCH", -1
            if header.producer_epoch > epoch:
                following = 0
            if header.base_sequence < following:
                return "DUPLICATE_SEQUENCE", base
            if header.base_sequence > following:
                return "OUT_OF_ORDER_SEQUENCE", -1
        first = self.append(data, now_ms)
        if header.producer_id >= 0:
            self.sequences[header.producer_id] = (header.producer_epoch, header.base_sequence + header.records, first)
        return "NONE", first

    def finish(self, producer_id: int, epoch: int, *, commit: bool, now_ms: float) -> None:
        """Write the marker that ends a transaction."""
        first = self.open.pop(producer_id, None)
        offset = self.append(marker(producer_id, epoch, commit=commit, now_ms=now_ms), now_ms)
        if first is not None and not commit:
            self.aborted.append((producer_id, first, offset))

    def retain(self, start: int) -> None:
        """Move the log start to an offset, and delete the batches before it."""
        self.start = max(self.start, start)
        self.batches = [batch for batch in self.batches if batch.last >= self.start]

    def read(self, offset: int, *, committed: bool, most_bytes: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the batches from the one with `offset` on, and their aborted transactions (producer, first offset)."""
        until = self._first_open if committed else self.end
        batches: list[Batch] = []
        size = 0
        for batch in self.batches:
            if batch.last < offset or batch.first >= until:
                continue
            if batches and size + len(batch.data) > most_bytes:
                break
            batches.append(batch)
            size += len(batch.data)
        last = batches[-1].last if batches else offset
        aborted = [(pid, first) for pid, first, end in self.aborted if end >= offset and first <= last]
        return b"".join(batch.data for batch in batches), aborted if committed else []


def marker(producer_id: int, epoch: int, *, commit: bool, now_ms: float) -> bytes:
    """Return the control batch of a commit or an abort."""
    columns = RecordColumns(
        np.array([int(now_ms)], np.int64),
        key=pa.array([struct.pack(">hh", 0, int(commit))], pa.binary()),
        value=pa.array([struct.pack(">hi", 0, 0)], pa.binary()),
        headers=None,
    )
    data = bytearray(next(encode(columns, producer=Producer(producer_id, epoch, transactional=True))).data)
    (attributes,) = struct.unpack_from(">h", data, _ATTRIBUTES_AT)
    struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes | _CONTROL)
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[_CHECKED_FROM:])))
    return bytes(data)


START_MS = 1_700_000_000_000


class Clock:
    """Milliseconds since 1970 that only `pass_ms` moves."""

    def __init__(self, now_ms: float = START_MS) -> None:
        self.now_ms = float(now_ms)
        self.on_pass: list[Callable[[], None]] = []

    def pass_ms(self, span_ms: float) -> None:
        """Move the clock by this number of milliseconds, and call the callbacks `on_pass`."""
        self.now_ms += span_ms
        for due in self.on_pass:
            due()
