"""One warning when a field that the option where needs is in none of the records in which it is looked for first.

Rule: said by the reading task, which alone sees records; once in a process for each topic and field.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from pyspark_wm_source.options.record_filter import RecordFilter

_log = logging.getLogger("keyedwm.source")
# A path may well be absent from fewer records.
_ENOUGH = 10
_seen: set[tuple[str, str]] = set()


def warn_of_missing(topic: str, partition: int, where: RecordFilter, rows: pa.RecordBatch) -> None:
    """Warn that a field of the filter is null in all of these rows; silent the second time."""
    if rows.num_rows < _ENOUGH:
        return
    for name, field in where.fields.items():
        if field.path and (topic, name) not in _seen:
            _seen.add((topic, name))
            if rows[name].null_count == rows.num_rows:
                _log.warning(
                    "%s-%d: %s is null in all of the %d records in which option where looked for it first, which is "
                    "right if it asks for IS NULL; else check the path, the type behind it and that records are JSON",
                    topic, partition, field.text, rows.num_rows,
                )  # fmt: skip
