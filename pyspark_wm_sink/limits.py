"""The limits of the sink that no option sets, in one value that the plans of its targets carry to the tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """group_rows, table_group_bytes, kafka_group_bytes: the rows and bytes that a task processes at once.

    table_file_bytes: large enough to need no compaction, small enough for a reader to split the work. control_rows: the
    most of one task, which are objects there and on the driver. lock_timeout_s: the time to wait for the ledger's lock.
    record_chars: the longest record that is written as plain JSON. unpacked_bytes: the most bytes of a record's
    channels after decompression.
    """

    group_rows: int = 1 << 20
    table_group_bytes: int = 64 << 20
    table_file_bytes: int = 128 << 20
    kafka_group_bytes: int = 16 << 20
    control_rows: int = 1_000_000
    lock_timeout_s: float = 60.0
    record_chars: int = 8_192
    unpacked_bytes: int = 256 << 20


LIMITS = Limits()
