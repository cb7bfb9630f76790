"""The limits of the sink that no option sets, in one value that the plans of its targets carry to the tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """group_rows, table_group_bytes, kafka_group_bytes: of what a task works on at once.

    table_file_bytes: large enough to need no compaction, small enough for a reader to split the work.
    control_rows: of one task, kept as objects there, and again on the driver. lock_timeout_s: of the ledger.
    record_chars: of a record that is still written as plain JSON. unpacked_bytes: of a record's channels.
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
