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
    "largest_bucket_bytes": of.LARGEST_BUCKET,
    "median_bucket_bytes": of.MEDIAN_BUCKET,
}
_OURS = {"late_rows", "state_bytes", "largest_bucket_bytes"}


def operator_figures(progress: StreamingQueryProgress) -> Iterator[tuple[Metric, str, float]]:
    """Yield metric, operator and value; of counters what the batch adds."""
    for name, row in progress.observedMetrics.items():
        found = row.asDict()
        if not found.keys() >= _OURS:
            continue
        for field, metric in _FIELDS.items():
            if found.get(field) is not None:  # a batch without a bucket has none
                yield metric, name, found[field]
    for number, operator in enumerate(progress.stateOperators):
        name = f"{number}:{operator.operatorName}"
        yield of.SPARK_LATE, name, operator.numRowsDroppedByWatermark
        yield of.SPARK_ROWS, name, operator.numRowsTotal
        yield of.SPARK_BYTES, name, operator.memoryUsedBytes
