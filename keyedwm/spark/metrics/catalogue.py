"""Every metric that is exported: its name, unit, labels and help text.

Rule: exporters have only the metrics of this module. The table in docs/reference/metrics.md, the dashboard and the
alert rules are checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """A unit, by its name in Prometheus; the value is its symbol in OpenTelemetry (UCUM)."""

    NONE = "1"
    SECONDS = "s"
    BYTES = "By"


class Kind(Enum):
    """How a figure behaves: a gauge rises and falls, a counter rises."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric. name: its name without prefix, unit and `_total`. labels: the names of all its labels, in order."""

    name: str
    kind: Kind = Kind.GAUGE
    unit: Unit = Unit.NONE
    labels: tuple[str, ...]
    help: str

    @property
    def prometheus(self) -> str:
        """The metric's name in Prometheus."""
        unit = "" if self.unit is Unit.NONE else f"_{self.unit.name.lower()}"
        return f"keyedwm_{self.name}{unit}" + ("_total" if self.kind is Kind.COUNTER else "")

    @property
    def opentelemetry(self) -> str:
        """The instrument's name in OpenTelemetry, where the unit is not part of the name."""
        return f"keyedwm.{self.name}"


_QUERY = ("query",)
_SOURCE = ("query", "source")
_WATERMARK = ("query", "source", "key")
_PARTITION = ("topic", "partition")
_OPERATOR = ("query", "operator")

QUERY_ACTIVE = Metric(
    name="query_active", labels=_QUERY, help="1 while the query runs, 0 after the query stopped or failed."
)  # fmt: skip
QUERY_FAILURES = Metric(
    name="query_failures", kind=Kind.COUNTER, labels=_QUERY, help="Runs of the query that ended with an error."
)
LAST_EVENT = Metric(
    name="query_last_event_timestamp", unit=Unit.SECONDS, labels=_QUERY,
    help="Unix time of the query's last progress: a batch, or Spark's report that there is nothing to read.",
)  # fmt: skip
BATCHES = Metric(name="batches", kind=Kind.COUNTER, labels=_QUERY, help="Completed micro-batches.")
BATCH_DURATION = Metric(
    name="batch_duration", unit=Unit.SECONDS, labels=_QUERY, help="Duration of the last micro-batch."
)
PHASES = Metric(
    name="batch_phase", kind=Kind.COUNTER, unit=Unit.SECONDS, labels=("query", "phase"),
    help="Time that micro-batches spent in each phase, as Spark reports them: latest_offset (planning by the source), "
    "get_batch, query_planning, wal_commit (offset log), add_batch (reading, operators, sink and commit), "
    "commit_offsets (commit log), trigger_execution (the whole batch).",
)  # fmt: skip
INPUT_ROWS = Metric(
    name="input_rows", kind=Kind.COUNTER, labels=_QUERY,
    help="Rows that Spark received from the query's sources, including control rows.",
)  # fmt: skip

RECORDS = Metric(name="records", kind=Kind.COUNTER, labels=_SOURCE, help="Offsets that completed batches read.")
BATCH_RECORDS = Metric(name="batch_records", labels=_SOURCE, help="Offsets that the last completed batch read.")
BACKLOG = Metric(
    name="backlog_records", labels=_SOURCE,
    help="Unread offsets of all partitions: from the end of the last batch to the log ends at its planning.",
)  # fmt: skip
PARTITION_BACKLOG = Metric(
    name="partition_backlog_records", labels=(*_SOURCE, *_PARTITION),
    help="Unread offsets of a partition; only the partitions with the largest backlog.",
)  # fmt: skip
PARTITIONS = Metric(
    name="partitions", labels=(*_SOURCE, "status"), help="Number of partitions with the status active or idle."
)
SNAPSHOTS = Metric(
    name="snapshots", kind=Kind.COUNTER, labels=_SOURCE,
    help="Completed snapshots: the sink published their batch and Spark committed it.",
)  # fmt: skip
SNAPSHOT_ID = Metric(name="snapshot_id", labels=_SOURCE, help="Number of the last completed snapshot.")
SNAPSHOT_TIME = Metric(
    name="snapshot_timestamp", unit=Unit.SECONDS, labels=_SOURCE, help="Unix time of the last completed snapshot."
)
LATE = Metric(
    name="late_events", kind=Kind.COUNTER, labels=_SOURCE,
    help="Events below the coalesced watermark of their batch.",
)  # fmt: skip
UNREADABLE = Metric(
    name="unreadable_event_times", kind=Kind.COUNTER, labels=_SOURCE,
    help="Event times that could not be read.",
)  # fmt: skip
FUTURE = Metric(
    name="future_event_times", kind=Kind.COUNTER, labels=_SOURCE,
    help="Event times that are further in the future than maxEventTimeAhead.",
)  # fmt: skip
BAD_VALUES = Metric(
    name="bad_values", kind=Kind.COUNTER, labels=(*_SOURCE, "reason"),
    help="Values with a schema that could not be read (onBadValue), by reason.",
)  # fmt: skip
CONTROL_RECORDS = Metric(
    name="skipped_control_records", kind=Kind.COUNTER, labels=_SOURCE,
    help="Skipped control records of other queries.",
)  # fmt: skip
RESETS = Metric(
    name="partition_resets", kind=Kind.COUNTER, labels=_SOURCE,
    help="How often a partition's state was reset because records were lost.",
)  # fmt: skip
RECOVERY_READS = Metric(
    name="recovery_reads", labels=_SOURCE,
    help="Ranges that this run read a second time to compute missing watermarks.",
)  # fmt: skip
COORDINATOR = Metric(
    name="coordinator_available", labels=_SOURCE,
    help="1 while the coordinator of the consumer group answers, 0 while states cannot be committed.",
)  # fmt: skip

WATERMARK = Metric(
    name="watermark_timestamp", unit=Unit.SECONDS, labels=_WATERMARK,
    help="The coalesced watermark of the last batch, as Unix time; no sample before the first watermark.",
)  # fmt: skip
WATERMARK_DELAY = Metric(
    name="watermark_delay", unit=Unit.SECONDS, labels=_WATERMARK,
    help="The clock minus the coalesced watermark; grows while the watermark is stuck.",
)  # fmt: skip
WATERMARK_CHANGED = Metric(
    name="watermark_changed_timestamp", unit=Unit.SECONDS, labels=_WATERMARK,
    help="Unix time when this program last saw a new coalesced watermark.",
)  # fmt: skip
WATERMARK_SKEW = Metric(
    name="watermark_skew", unit=Unit.SECONDS, labels=_WATERMARK,
    help="Highest minus lowest watermark of the active partitions.",
)  # fmt: skip
HOLDERS = Metric(
    name="watermark_holders", labels=(*_WATERMARK, "cause"),
    help="Partitions that block the watermark, by the cause; keyedwm watch shows the same causes.",
)  # fmt: skip
PARTITION_DELAY = Metric(
    name="partition_watermark_delay", unit=Unit.SECONDS, labels=(*_WATERMARK, *_PARTITION),
    help="The clock minus a partition's watermark; only the active partitions with the lowest watermarks.",
)  # fmt: skip

OPERATOR_LATE = Metric(
    name="operator_late_rows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Rows that reached the operator after their windows were closed or their join partners removed.",
)  # fmt: skip
OPERATOR_NULL_TIMES = Metric(
    name="operator_null_event_time_rows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Rows without an event time that the operator ignored.",
)  # fmt: skip
OPERATOR_NO_GAP = Metric(
    name="operator_no_gap_rows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Rows of a session window whose gap column has no gap above 0.",
)  # fmt: skip
OPERATOR_REPLAYED = Metric(
    name="operator_replayed_rows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Replayed records that a window store or window join ignored.",
)  # fmt: skip
OPERATOR_REJECTED = Metric(
    name="operator_rejected_rows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Messages of a window store or window join that no window accepts.",
)  # fmt: skip
OPERATOR_DROPPED_WINDOWS = Metric(
    name="operator_dropped_windows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Windows dropped by a limit of a window store or window join.",
)  # fmt: skip
OPERATOR_DROPPED_ROWS = Metric(
    name="operator_dropped_rows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Messages dropped by a limit of a window store or window join.",
)  # fmt: skip
OPERATOR_DROPPED_BYTES = Metric(
    name="operator_dropped", kind=Kind.COUNTER, unit=Unit.BYTES, labels=_OPERATOR,
    help="Bytes of messages dropped by a limit of a window store or window join.",
)  # fmt: skip
OPEN_WINDOWS = Metric(
    name="operator_open_windows", labels=_OPERATOR,
    help="Stored entries of an aggregate: one per key, frame and batch until entries are merged, or one per part of a "
    "session. Not the number of open windows, which is lower.",
)  # fmt: skip
HELD_ROWS = Metric(
    name="operator_held_rows", labels=_OPERATOR, help="Rows in the state of a join, a processor or a window join."
)
STATE_BYTES = Metric(
    name="operator_state", unit=Unit.BYTES, labels=_OPERATOR, help="Size of the operator's state, over all buckets."
)
LARGEST_BUCKET = Metric(
    name="operator_largest_bucket", unit=Unit.BYTES, labels=_OPERATOR, help="Size of the largest bucket's state."
)
MEDIAN_BUCKET = Metric(
    name="operator_median_bucket", unit=Unit.BYTES, labels=_OPERATOR, help="Median size of the buckets' states."
)
KEYS = Metric(
    name="operator_keys", labels=_OPERATOR, help="Data keys with their own watermark in the operator's state."
)
KEYS_BEHIND = Metric(
    name="operator_keys_behind",
    labels=_OPERATOR,
    help="Data keys whose own watermark is below the coalesced watermark.",
)
KEY_DELAY = Metric(
    name="operator_key_delay", unit=Unit.SECONDS, labels=(*_OPERATOR, "quantile"),
    help="The coalesced watermark minus a key's own watermark: quantiles 0.5, 0.9 and 0.99 of the keys.",
)  # fmt: skip
FORGOTTEN_KEYS = Metric(
    name="operator_forgotten_keys", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Keys that were dropped from state because their own watermark was per_key(behind=) below the coalesced "
    "watermark.",
)  # fmt: skip
SPARK_LATE = Metric(
    name="spark_operator_late_rows", kind=Kind.COUNTER, labels=_OPERATOR,
    help="Rows that a stateful operator of Spark dropped as late.",
)  # fmt: skip
SPARK_ROWS = Metric(
    name="spark_operator_state_rows", labels=_OPERATOR, help="Rows in the state of a stateful operator of Spark."
)
SPARK_BYTES = Metric(
    name="spark_operator_state", unit=Unit.BYTES, labels=_OPERATOR,
    help="Memory that the state of a stateful operator of Spark takes.",
)  # fmt: skip

METRICS = tuple(one for one in tuple(globals().values()) if isinstance(one, Metric))
