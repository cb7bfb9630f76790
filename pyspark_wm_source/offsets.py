"""The offset in Spark's offset log: everything that decided a batch (DESIGN section 5.1), as JSON, version 2.

Rule: a batch can be read again from its end offset alone. `offsets` are Spark's own (topic → partition → next offset).
An entry of `channels` is [offsets read in this batch, status, ms of the last news, bad event times, late events, keys
whose watermark the planner itself moved, axes ...]; an axis is [key, last emitted watermark, policy state ...] as of
the START of the batch. One canonical form: Spark compares strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from keyedwm.core.axis import AxisState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.counts import Counts
from keyedwm.core.errors import FormatError
from keyedwm.core.watermark import Status
from keyedwm.kafka.values import TopicPartition

OFFSET_VERSION = 2
NOT_STARTED = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A channel in one batch; its range is [next_offset - read, next_offset), axes: key → state at its start.

    announced: keys of the watermarks that the planner itself moved: by the clock, or after a range read in parts.
    """

    next_offset: int
    read: int
    status: Status
    since_ms: int
    counts: Counts
    axes: Mapping[int, AxisState]
    announced: tuple[int, ...] = ()

    @property
    def start(self) -> int:
        """First offset of the batch's range."""
        return self.next_offset - self.read


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryOffset:
    """One planned batch. `batch` counts from 0 and is the snapshot id of its barriers.

    Before the first batch it is NOT_STARTED, and `begins` (empty later) says where each channel begins.
    """

    batch: int
    group: str
    token: str
    now_ms: int
    coalesced: CommonState
    channels: Mapping[TopicPartition, Channel] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)

    def moved(self) -> Iterator[tuple[TopicPartition, Channel]]:
        """Channels that have something to read in this batch, in order."""
        return ((tp, c) for tp, c in self.channels.items() if c.read)

    def watermark_ms(self, key: int) -> int | None:
        """The coalesced watermark of a key as of this batch's start, None if there is none."""
        return self.coalesced.emitted.get(key)

    def to_json(self) -> dict[str, Any]:
        """Return the canonical form: same content, same string."""
        offsets = as_spark_offsets(self.begins)
        channels: dict[str, dict[str, list[Any]]] = {}
        for tp in sorted(self.channels):
            c = self.channels[tp]
            offsets.setdefault(tp.topic, {})[str(tp.partition)] = c.next_offset
            axes = [[key, *state.as_list()] for key, state in sorted(c.axes.items())]
            channels.setdefault(tp.topic, {})[str(tp.partition)] = [
                c.read, c.status.value, c.since_ms, c.counts.bad, c.counts.late, list(c.announced), *axes,
            ]  # fmt: skip
        return {
            "batch": self.batch,
            "channels": channels,
            "coalesced": self.coalesced.as_json(),
            "group": self.group,
            "now_ms": self.now_ms,
            "offsets": offsets,
            "token": self.token,
            "version": OFFSET_VERSION,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> QueryOffset:
        """Read an offset back; a version that is not ours is refused and nothing is touched."""
        version = found.get("version")
        if version != OFFSET_VERSION:
            raise FormatError(
                f"the checkpoint's offset has version {version!r}; this keyedwm reads version {OFFSET_VERSION} only"
            )
        try:
            return QueryOffset._from_fields(found)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"the checkpoint's offset of version {version} is damaged: {error!r}") from error

    @staticmethod
    def _from_fields(found: Mapping[str, Any]) -> QueryOffset:
        started = found["batch"] != NOT_STARTED
        channels = {}
        for topic, partitions in found["offsets"].items() if started else ():
            for partition, next_offset in partitions.items():
                read, status, since_ms, bad, late, announced, *axes = found["channels"][topic][partition]
                channels[TopicPartition(topic, int(partition))] = Channel(
                    next_offset=next_offset,
                    read=read,
                    status=Status(status),
                    since_ms=since_ms,
                    counts=Counts(bad, late),
                    announced=tuple(announced),
                    axes={axis[0]: AxisState.from_list(axis[1:]) for axis in axes},
                )
        return QueryOffset(
            batch=found["batch"],
            group=found["group"],
            token=found["token"],
            now_ms=found["now_ms"],
            coalesced=CommonState.from_json(found["coalesced"]),
            channels=channels,
            begins={} if started else from_spark_offsets(found["offsets"]),
        )


def as_spark_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in Spark's shape: topic → {partition → offset}, in order."""
    shaped: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        shaped.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return shaped


def from_spark_offsets(shaped: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the inverse of `as_spark_offsets`."""
    return {TopicPartition(t, int(p)): offset for t, of_topic in shaped.items() for p, offset in of_topic.items()}
