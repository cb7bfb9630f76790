"""The figures of operators in a batch's progress: ours from `observedMetrics`, Spark's own from `stateOperators`.

Rule: an observation of the user's own has other fields, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from keyedwm.spark.metrics import catalogue as of
from keyedwm.spark.metrics.catalogue import Metric

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_FIELDS = {
    "late_rows": of.OPERATOR_LATE,
    "null_event_time_rows": of.OPERATOR_NULL_TIMES,
    "no_gap_rows": of.OPERATOR_NO_GAP,
    "replayed_rows": of.OPERATOR_REPLAYED,
    "rejected_rows": of.OPERATOR_REJECTED,
    "dropped_windows": of.OPERATOR_DROPPED_WINDOWS,
    "dropped_rows": of.OPERATOR_DROPPED_ROWS,
    "dropped_bytes": of.OPERATOR_DROPPED_BYTES,
    "frames": of.OPEN_WINDOWS,
    "held_rows": of.HELD_ROWS,
    "state_bytes": of.STATE_BYTES,
    "keys_held": of.KEYS,
    "keys_behind": of.KEYS_BEHIND,
    "keys_forgotten": of.FORGOTTEN_KEYS,
    "largest_bucket_bytes": of.LARGEST_BUCKET,
    "median_bucket_bytes": of.MEDIAN_BUCKET,
}
# Milliseconds, by quantile.
_KEY_DELAYS = {"0.5": "keys_behind_ms_p50", "0.9": "keys_behind_ms_p90", "0.99": "keys_behind_ms_p99"}
_OURS = {"late_rows", "state_bytes", "largest_bucket_bytes"}


def operator_figures(progress: StreamingQueryProgress) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    """Yield metric, its labels beside the query, and value; of counters what the batch adds."""
    for name, row in progress.observedMetrics.items():
        found = row.asDict()
        if not found.keys() >= _OURS:
            continue
        for field, metric in _FIELDS.items():
            if found.get(field) is not None:  # a batch without a bucket has none
                yield metric, (name,), found[field]
        for quantile, field in _KEY_DELAYS.items():
            if found.get(field) is not None:
                yield of.KEY_DELAY, (name, quantile), found[field] / 1_000
    for number, operator in enumerate(progress.stateOperators):
        labels = (f"{number}:{operator.operatorName}",)
        yield of.SPARK_LATE, labels, operator.numRowsDroppedByWatermark
        yield of.SPARK_ROWS, labels, operator.numRowsTotal
        yield of.SPARK_BYTES, labels, operator.memoryUsedBytes
