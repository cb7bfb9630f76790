"""The parts of a query that compile: each plays a few records through the product's own code, as a task does it.

Rule: what a task calls is called, with the types that it has there; so no list of signatures can be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from keyedwm.cli.warm.reading import read_records_once, write_records_once
from keyedwm.cli.warm.windowing import close_windows_once, join_rows_once, leave_duplicates_out_once

ROUNDS: Mapping[str, Callable[[], None]] = MappingProxyType({
    "reading: record batches, event times, watermarks, partials": read_records_once,
    "writing: record batches, partitions, the check of what was published": write_records_once,
    "windows: tumbling, sliding and session, with every aggregate": close_windows_once,
    "duplicates": leave_duplicates_out_once,
    "joins, and the latest change": join_rows_once,
})  # fmt: skip
