"""The figures of a batch's progress: those of a keyedwm source and its slowest partitions, and those of operators.

Rule: a source's facts are small, but its offset has an entry for each partition. So the offset is parsed only when an
exporter asks for partitions: once a scrape, not once a batch. Figures of our operators come from `observedMetrics` (a
user's own observation has other fields), those of Spark's operators from `stateOperators`.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from keyedwm.arrow.instants import instant_ms
from keyedwm.core.watermark import Status
from keyedwm.spark.metrics import catalogue as of
from keyedwm.spark.metrics.catalogue import Metric
from pyspark_wm_source.values.holding import emitted_ms, keys_of
from pyspark_wm_source.values.offsets import QueryOffset, from_spark_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

_FIELD = "state_key"  # a field of our offsets; another source may have it as a name of a topic


@dataclass(frozen=True)
class SourceFigures:
    """A source after a batch. facts: those that its planner reported, else those of the offset log.

    has_batch: whether the source has records in the batch; else only other sources of the query have.
    """

    facts: Mapping[str, Any]
    offset_text: str
    has_batch: bool

    @classmethod
    def of(cls, source: SourceProgress) -> SourceFigures | None:
        """Return the figures of a source; None if it is not one of ours."""
        facts = facts_of(source)
        return None if facts is None else cls(facts, source.endOffset, source.startOffset != source.endOffset)

    @classmethod
    def of_log(cls, committed: QueryOffset) -> SourceFigures:
        """Return the figures of a batch that was committed before this run, so no counter counts it."""
        return cls(facts_of_log(committed), json.dumps(committed.to_json()), has_batch=False)

    @cached_property
    def offset(self) -> QueryOffset:
        """The batch's offset, as in the offset log."""
        return QueryOffset.from_json(json.loads(self.offset_text))

    @property
    def batch(self) -> int:
        """The number of the source's last batch, which is also the number of its snapshot."""
        return int(self.facts["batch"]) if self.has_batch else self.offset.batch

    @property
    def reads(self) -> int:
        """The number of offsets that the batch reads."""
        return int(self.facts["reads"]) if self.has_batch else 0

    def watermarks_ms(self) -> dict[str, int | None]:
        """Return watermark key -> coalesced watermark of the batch."""
        watermarks = self.facts.get("watermark", {})
        return {key: None if text is None else instant_ms(text) for key, text in watermarks.items()}

    def skews_ms(self) -> Iterator[tuple[int, int]]:
        """Yield each watermark key, with the highest minus the lowest watermark of its active partitions."""
        for key in keys_of(self.offset.channels):
            known = [ms for _, _, ms in self._active(key) if ms is not None]
            if known:
                yield key, max(known) - min(known)

    def slowest_ms(self, most: int) -> Iterator[tuple[int, str, int, int]]:
        """Yield key, topic, partition, watermark of the active partitions with the lowest watermarks, `most` a key."""
        for key in keys_of(self.offset.channels):
            known = [(ms, topic, partition) for topic, partition, ms in self._active(key) if ms is not None]
            for ms, topic, partition in heapq.nsmallest(most, known):
                yield key, topic, partition, ms

    def longest_backlogs(self, most: int) -> Iterator[tuple[str, int, int]]:
        """Yield topic, partition and backlog of the `most` partitions with the most unread offsets after the batch."""
        ends = from_spark_offsets(self.facts.get("offsets", {}))
        left = ((max(ends[tp] - c.next_offset, 0), tp) for tp, c in self.offset.channels.items() if tp in ends)
        for backlog, tp in heapq.nsmallest(most, ((-backlog, tp) for backlog, tp in left)):
            yield tp.topic, tp.partition, -backlog

    def _active(self, key: int) -> Iterator[tuple[str, int, int | None]]:
        for tp, channel in self.offset.channels.items():
            if channel.status is Status.ACTIVE:
                yield tp.topic, tp.partition, emitted_ms(channel, key)


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
# Quantile -> its field, in milliseconds.
_KEY_DELAYS = {"0.5": "keys_behind_ms_p50", "0.9": "keys_behind_ms_p90", "0.99": "keys_behind_ms_p99"}
_OPERATOR_FIELDS = {"late_rows", "state_bytes", "largest_bucket_bytes"}


def operator_figures(progress: StreamingQueryProgress) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    """Yield metric, its labels without the query, and value; a counter's value is the batch's increase."""
    for name, row in progress.observedMetrics.items():
        values = row.asDict()
        if not values.keys() >= _OPERATOR_FIELDS:
            continue
        for field, metric in _FIELDS.items():
            if values.get(field) is not None:  # a batch without a bucket has none
                yield metric, (name,), values[field]
        for quantile, field in _KEY_DELAYS.items():
            if values.get(field) is not None:
                yield of.KEY_DELAY, (name, quantile), values[field] / 1_000
    for number, operator in enumerate(progress.stateOperators):
        labels = (f"{number}:{operator.operatorName}",)
        yield of.SPARK_LATE, labels, operator.numRowsDroppedByWatermark
        yield of.SPARK_ROWS, labels, operator.numRowsTotal
        yield of.SPARK_BYTES, labels, operator.memoryUsedBytes


# Fields that our sources report. Another source may have one of them, such as Kafka's own a topic of the name.
_FACTS = frozenset(["batch", "reads", "watermark", "held_by", "causes", "idle", "backlog", "recovery_reads"])


def facts_of(source: SourceProgress) -> dict[str, Any] | None:
    """Return the facts that a keyedwm source reported for a batch; None for another source.

    A process that has planned no batch yet reports no facts: after a restart that repeats a batch or reads states
    again. The facts are then those of the offset log.
    """
    try:
        facts = json.loads(source.latestOffset or "null")
    except ValueError:
        return None  # another source's own format
    if f'"{_FIELD}"' not in (source.endOffset or ""):
        return None
    if isinstance(facts, dict) and facts.keys() >= _FACTS:
        return facts
    end = _own_offset(source.endOffset)
    if end is None:
        return None
    return facts_of_log(QueryOffset.from_json(end)) | (facts if isinstance(facts, dict) else {})


def _own_offset(text: str) -> dict[str, Any] | None:
    """Return the JSON of an offset; None if it is of another source."""
    try:
        end = json.loads(text)
    except ValueError:
        return None
    is_own = isinstance(end, dict) and isinstance(end.get(_FIELD), str) and isinstance(end.get("version"), int)
    return end if is_own else None


def facts_of_log(planned: QueryOffset) -> dict[str, Any]:
    """Return the facts of a batch from the offset log, in the form that `facts_of` returns."""
    from pyspark_wm_source.driver.report import describe_logged  # imports the planner, which few programs need

    return describe_logged(planned)
