"""A frozen picture of a query: the positions of its partitions, the watermark, and the partitions that block it.

Rule: values only; a table, a live view and JSON show the same picture. Times are epoch milliseconds, None means
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.last_error import LastError
from pyspark_wm_source.values.holding import Cause


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionPicture:
    """A partition. position: the next offset to read. backlog: offsets from there to the log's end.

    is_current: whether the state is the one at `position`, or the one at the start of the batch. behind_ms: the time
    from the record at `position` to the newest record. last_news_ms: when the planner last saw new records. bad_values:
    by reason.
    """

    channel: TopicPartition
    position: int
    log_end: int | None
    backlog: int | None
    behind_ms: int | None
    status: Status
    watermarks_ms: Mapping[int, int | None]
    last_record_ms: int | None
    last_news_ms: int
    idle_since_ms: int | None
    late: int
    unreadable: int
    future: int
    bad_values: Mapping[str, int]
    control: int
    resets: int
    is_current: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A partition that blocks a watermark.

    since_ms: when it last had new records (for unreadable records, when its watermark last moved), as far as the log
    shows. None for a backlog, or if the broker could not be asked.
    """

    channel: TopicPartition
    watermark_ms: int | None
    cause: Cause
    since_ms: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WatermarkPicture:
    """The coalesced watermark of a key, and all channels that block it.

    unmoved_since_ms: when the oldest batch in the log with this watermark was planned.
    """

    key: int
    watermark_ms: int | None
    unmoved_since_ms: int
    held_by: tuple[Holder, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePicture:
    """One source of the query; partitions: the slowest first. coordinator: why the group's coordinator did not answer.

    alike: the sources, this one included, that read the same partitions with the same watermark options.
    """

    source: int
    group: str
    batch: int
    planned_ms: int
    watermarks: tuple[WatermarkPicture, ...]
    partitions: tuple[PartitionPicture, ...]
    coordinator: str | None
    alike: tuple[int, ...]

    def lowest_ms(self) -> list[int | None]:
        """Return its watermarks by key."""
        return [one.watermark_ms for one in self.watermarks]


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """The last batch that the query published. kind: the kind of place with its record.

    is_published: False while a batch of Kafka is decided and some of its transactions are not committed yet. at_ms: the
    time, by the clock of that place. version: the version of a Delta table, or the id of an Iceberg table's snapshot.
    """

    kind: str
    batch: int
    snapshot: int | None
    rows: int
    is_published: bool
    at_ms: int | None
    version: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorPicture:
    """An operator with its state at the last committed batch, over all its buckets.

    windows: open slices of event time, None if the operator has none. rows: the number of held rows. largest_bytes: the
    bytes of the bucket `largest`. oldest_ms: begin of the oldest window, first end of a session, or earliest row of a
    join. watermark_ms: the lowest of its buckets.
    """

    kind: str
    name: str
    buckets: int
    windows: int | None
    rows: int
    state_bytes: int
    largest: int
    largest_bytes: int
    oldest_ms: int | None
    watermark_ms: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StatePicture:
    """The operators, read at taken_ms, which may be older than the picture.

    trouble: why the state could not be read.
    """

    taken_ms: int
    operators: tuple[OperatorPicture, ...]
    trouble: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A query at one moment. trouble: why the broker did not answer; then log ends are unknown.

    target_trouble: why the place where it publishes could not be read. last_error: None if there is none, or a batch
    was committed since. state: None if it was not requested, or not read yet.
    """

    checkpoint: str
    taken_ms: int
    planned_batch: int
    committed_batch: int | None
    committed_ms: int | None
    publication: Publication | None
    trouble: str | None
    sources: tuple[SourcePicture, ...]
    last_error: LastError | None = None
    state: StatePicture | None = None
    target_trouble: str | None = None


def slowest_first(partition: PartitionPicture) -> tuple[bool, bool, int, int, TopicPartition]:
    """Sort active partitions before idle ones, those without a watermark first, then by watermark and backlog."""
    known = [ms for ms in partition.watermarks_ms.values() if ms is not None]
    lacks = len(known) < len(partition.watermarks_ms) or not known
    lowest_ms = min(known, default=0)
    return partition.status is not Status.ACTIVE, not lacks, lowest_ms, -(partition.backlog or 0), partition.channel


def as_json(value: Any) -> Any:
    """Return a picture as plain JSON: names of enums in small letters, channels as `topic-partition`."""
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, tuple) else value
