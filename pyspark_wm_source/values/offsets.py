"""The offset in Spark's offset log: everything that decided a batch (docs/design/state.md), as JSON, version 4 to 7.

Rule: a batch can be read again from its end offset alone. `offsets` are Spark's own (topic → partition → next offset).
An entry of `channels` is an array. It begins with the offsets read in this batch, the status, and the ms of the last
change. Then follow bad event times, late events, control records skipped, the leader epoch, and the keys that the
planner advanced itself. Last are the axes: [key, last emitted watermark, kind of state, its numbers ...] as of the
START of the batch. An entry of `retired` is [ms when it was missed, next offset, counts as above, resets, axes ...].
`retired_epochs` are their leader epochs, if known. `resets` counts how often a channel's state was lost. Version 5,
written where event times were too far ahead, has `future`, the count of these. Version 6 has `ahead`, how far event
times may be ahead: [[key, ms] ...]. It has `future` if there are any, and `told` if a coalesced watermark was reset.
Version 7, written where values with a schema were bad, has `bad_values`, [[number of the reason, count] ...]. One
canonical form: Spark compares strings. Version 3, without leader epochs and resets, is read, too.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from keyedwm.core.axis import NO_COUNTS, AxisState, Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.errors import DamagedError, FormatError
from keyedwm.core.parsing import whole_number, whole_number_or_none
from keyedwm.core.text import error_text, short_repr
from keyedwm.core.watermark import Status
from keyedwm.formats.faults import Fault
from keyedwm.kafka.client.values import TopicPartition

OFFSET_VERSION = 7
_WITHOUT_BAD_VALUES = 6
_WITHOUT_AHEAD = 5
_WITHOUT_FUTURE = 4
_WITHOUT_RESETS = 3
_READ_VERSIONS = (_WITHOUT_RESETS, _WITHOUT_FUTURE, _WITHOUT_AHEAD, _WITHOUT_BAD_VALUES, OFFSET_VERSION)
NOT_STARTED = -1
_SOURCE_BYTES = 6
# How long a state may take to be committed or fetched: without it, its records are read again.
STATE_TIMEOUT_MS = 10_000
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A channel in one batch; its range is [next_offset - read, next_offset), axes: key → state at its start.

    announced: keys of the watermarks that the planner itself moved or emits again: by the clock, after a range read in
    parts, after a loss. resets: how often its state was lost with its records since the query began. The batch in which
    this number rises has a reset row. leader_epoch: the epoch of the leader that gave the log end, None if unknown.
    """

    next_offset: int
    read: int
    status: Status
    since_ms: int
    counts: Counts
    axes: Mapping[int, AxisState]
    announced: tuple[int, ...] = ()
    resets: int = 0
    leader_epoch: int | None = None

    @property
    def start(self) -> int:
        """First offset of the batch's range."""
        return self.next_offset - self.read


@dataclass(frozen=True, kw_only=True, slots=True)
class RetiredChannel:
    """A channel that the cluster did not know any more: its position, in case it comes back."""

    missed_ms: int
    next_offset: int
    counts: Counts
    axes: Mapping[int, AxisState]
    resets: int = 0
    leader_epoch: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CutLimits:
    """The limits that the ranges of a batch were cut by: `minPartitions` and `maxRecordsPerPartition`."""

    least_tasks: int | None = None
    most_records: int | None = None


NO_LIMITS = CutLimits()


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """The option idleTimeout that a batch was planned with; ms: None where no partition becomes idle."""

    ms: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryOffset:
    """One planned batch. `batch` counts from 0 and is the snapshot id of its barriers.

    Before the first batch it is NOT_STARTED, and `begins` (empty later) says where each channel begins. state_key: the
    key that authenticates committed states, in hex. Spark's progress shows it, so the option stateSecret is mixed in.
    settings: the fingerprint of the watermark settings that the batch was planned with. topic_ids: the ids of its
    channels' topics, if the cluster has ids. outage and idle_timeout decide nothing; they are for readers of the
    checkpoint. outage: why the group's coordinator could not be asked. idle_timeout: None if an earlier version
    planned. ahead_ms: watermark key → how far ahead an event time may be and still move the watermark. told_ms:
    watermark key → the coalesced watermark that rows contained before its reset; no row has a lower watermark.
    """

    batch: int
    group: str
    state_key: str
    now_ms: int
    coalesced: CommonState
    settings: str = ""
    limits: CutLimits = NO_LIMITS
    channels: Mapping[TopicPartition, Channel] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    retired: Mapping[TopicPartition, RetiredChannel] = field(default_factory=dict)
    outage: str = ""
    idle_timeout: IdleTimeout | None = None
    ahead_ms: Mapping[int, int] = field(default_factory=dict)
    told_ms: Mapping[int, int] = field(default_factory=dict)

    def channels_to_read(self) -> Iterator[tuple[TopicPartition, Channel]]:
        """Channels that have something to read in this batch, in order."""
        return ((tp, c) for tp, c in self.channels.items() if c.read)

    @property
    def source(self) -> str:
        """The id of this source within its query, the same after a restart; it does not reveal the secret."""
        return hmac.digest(self.state_key.encode(), b"source", "sha256")[:_SOURCE_BYTES].hex()

    def watermark_ms(self, key: int) -> int | None:
        """The coalesced watermark of a key as of this batch's start, None if there is none."""
        return self.coalesced.emitted.get(key)

    def to_json(self) -> dict[str, Any]:
        """Return the canonical form: same content, same string."""
        offsets = as_spark_offsets(self.begins)
        channels: dict[str, dict[str, list[Any]]] = {}
        for tp in sorted(self.channels):
            c, number = self.channels[tp], str(tp.partition)
            offsets.setdefault(tp.topic, {})[number] = c.next_offset
            channels.setdefault(tp.topic, {})[number] = [
                c.read, c.status.value, c.since_ms, *_counts(c.counts), c.leader_epoch, list(c.announced),
                *_axes(c.axes),
            ]  # fmt: skip
        retired: dict[str, dict[str, list[Any]]] = {}
        for tp in sorted(self.retired):
            r = self.retired[tp]
            retired.setdefault(tp.topic, {})[str(tp.partition)] = [
                r.missed_ms, r.next_offset, *_counts(r.counts), r.resets, *_axes(r.axes),
            ]  # fmt: skip
        counts = {
            tp: c.counts for of in (self.retired, self.channels) for tp, c in of.items() if c.counts is not NO_COUNTS
        }
        future = as_spark_offsets({tp: one.future for tp, one in counts.items() if one.future})
        bad_values = as_spark_offsets({tp: one.bad_values for tp, one in counts.items() if one.bad_values})
        return {
            **({"ahead": _by_key(self.ahead_ms)} if self.ahead_ms else {}),
            **({"bad_values": bad_values} if bad_values else {}),
            "batch": self.batch,
            "channels": channels,
            "coalesced": self.coalesced.as_json(),
            **({"future": future} if future else {}),
            "group": self.group,
            **({} if self.idle_timeout is None else {"idle_timeout_ms": self.idle_timeout.ms}),
            "limits": [self.limits.least_tasks, self.limits.most_records],
            "now_ms": self.now_ms,
            "offsets": offsets,
            "resets": as_spark_offsets({tp: c.resets for tp, c in self.channels.items() if c.resets}),
            "retired": retired,
            **self._retired_epochs(),
            **({"outage": self.outage} if self.outage else {}),
            "settings": self.settings,
            "state_key": self.state_key,
            **({"told": _by_key(self.told_ms)} if self.told_ms else {}),
            "topic_ids": dict(sorted(self.topic_ids.items())),
            "version": OFFSET_VERSION if bad_values else self._version(has_future=bool(future)),
        }

    def _version(self, *, has_future: bool) -> int:
        if self.ahead_ms or self.told_ms:
            return _WITHOUT_BAD_VALUES
        return _WITHOUT_AHEAD if has_future else _WITHOUT_FUTURE

    def _retired_epochs(self) -> dict[str, Any]:
        """A separate entry, if there are any, since version 4 did not have it from the start."""
        known = {tp: r.leader_epoch for tp, r in self.retired.items() if r.leader_epoch is not None}
        return {"retired_epochs": as_spark_offsets(known)} if known else {}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> QueryOffset:
        """Return the offset of its JSON.

        Raises FormatError for an unknown version or another source's offset, before anything changes.
        """
        version = content.get("version")
        if "version" not in content:
            raise FormatError(
                "the checkpoint is of a query with another source, such as format('kafka'): name a new "
                "checkpointLocation, and pass as startingOffsets what `keyedwm migrate CHECKPOINT` prints"
            )
        if version not in _READ_VERSIONS or type(version) is not int:
            raise FormatError(
                f"the checkpoint's offset has version {short_repr(version)}; this keyedwm reads versions "
                f"{_READ_VERSIONS[0]} to {OFFSET_VERSION}"
            )
        try:
            return QueryOffset._from_fields(content)
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise DamagedError(
                f"the checkpoint's offset of version {version} is damaged: {error_text(error)}"
            ) from error

    @staticmethod
    def _from_fields(content: Mapping[str, Any]) -> QueryOffset:
        started = content["batch"] != NOT_STARTED
        is_old = content["version"] == _WITHOUT_RESETS
        future = from_spark_offsets(
            content["future"] if content["version"] == _WITHOUT_AHEAD else content.get("future", {})
        )
        bad_values = _read_bad_values(content["bad_values"] if content["version"] == OFFSET_VERSION else {})
        resets = {} if is_old else from_spark_offsets(content["resets"])
        channels = {}
        for topic, partitions in content["offsets"].items() if started else ():
            for partition, next_offset in partitions.items():
                read, status, since_ms, bad, late, control, *more = content["channels"][topic][partition]
                leader_epoch, announced, *axes = (None, *more) if is_old else more
                tp = TopicPartition(topic, int(partition))
                channels[tp] = Channel(
                    next_offset=whole_number(next_offset, "the next offset of a partition"),
                    read=whole_number(read, "the number of offsets read of a partition"),
                    status=Status(status),
                    since_ms=whole_number(since_ms, "the time of a partition's last news"),
                    counts=_read_counts((bad, late, control, future.get(tp, 0)), bad_values.get(tp, ())),
                    announced=tuple(announced),
                    axes=_read_axes(axes),
                    resets=resets.get(tp, 0),
                    leader_epoch=leader_epoch,
                )
        retired = {}
        epochs = from_spark_offsets(content.get("retired_epochs", {}))
        for topic, partitions in content["retired"].items():
            for partition, (missed_ms, next_offset, bad, late, control, *more) in partitions.items():
                reset_count, *axes = (0, *more) if is_old else more
                tp = TopicPartition(topic, int(partition))
                retired[tp] = RetiredChannel(
                    resets=reset_count,
                    leader_epoch=epochs.get(tp),
                    missed_ms=whole_number(missed_ms, "the time when a partition was missed"),
                    next_offset=whole_number(next_offset, "the next offset of a partition that is away"),
                    counts=_read_counts((bad, late, control, future.get(tp, 0)), bad_values.get(tp, ())),
                    axes=_read_axes(axes),
                )
        least_tasks, most_records = content["limits"]
        return QueryOffset(
            batch=whole_number(content["batch"], "its batch"),
            group=content["group"],
            state_key=content["state_key"],
            settings=content["settings"],
            limits=CutLimits(least_tasks=least_tasks, most_records=most_records),
            now_ms=whole_number(content["now_ms"], "its clock reading"),
            coalesced=CommonState.from_json(content["coalesced"]),
            channels=channels,
            begins={} if started else from_spark_offsets(content["offsets"]),
            topic_ids=dict(content["topic_ids"]),
            retired=retired,
            outage=str(content.get("outage", "")),
            idle_timeout=_read_idle_timeout(content),
            ahead_ms=_read_by_key(content.get("ahead", ()), "how far an event time may be ahead"),
            told_ms=_read_by_key(content.get("told", ()), "a watermark that was reset"),
        )


def _read_idle_timeout(content: Mapping[str, Any]) -> IdleTimeout | None:
    if "idle_timeout_ms" not in content:
        return None
    return IdleTimeout(whole_number_or_none(content["idle_timeout_ms"], "its idle timeout"))


def _by_key(times_ms: Mapping[int, int]) -> list[list[int]]:
    return [[key, times_ms[key]] for key in sorted(times_ms)]


def _read_by_key(pairs: Iterable[tuple[object, object]], subject: str) -> dict[int, int]:
    return {whole_number(key, "the key of a watermark"): whole_number(ms, subject) for key, ms in pairs}


def _counts(counts: Counts) -> tuple[int, int, int]:
    return counts.bad, counts.late, counts.control


def _read_counts(counts: Iterable[object], bad_values: tuple[tuple[int, int], ...]) -> Counts:
    numbers = (whole_number(count, "a count of a partition's events") for count in counts)
    return Counts(*numbers, bad_values=bad_values)


def _read_bad_values(shaped: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, tuple[tuple[int, int], ...]]:
    meaning = "a count of a partition's bad values"
    return {
        TopicPartition(topic, int(partition)): tuple(
            (int(Fault(whole_number(reason, meaning))), whole_number(count, meaning)) for reason, count in pairs
        )
        for topic, of_topic in shaped.items()
        for partition, pairs in of_topic.items()
    }


def _axes(axes: Mapping[int, AxisState]) -> list[list[Any]]:
    return [[key, *state.as_list()] for key, state in sorted(axes.items())]


def _read_axes(axes: Iterable[Sequence[Any]]) -> dict[int, AxisState]:
    return {whole_number(axis[0], "the key of a watermark"): AxisState.from_list(axis[1:]) for axis in axes}


def state_place(group: str, tp: TopicPartition, next_offset: int, settings: str, resets: int = 0) -> str:
    """Return the place that a committed state belongs to; a state of another place is an error.

    resets: how often the channel's state was lost before the batch. A copy of the checkpoint shares group and key, and
    may reset a channel whose state the original still has.
    """
    return f"{group} {tp} {next_offset} {settings}" + (f" resets {resets}" if resets else "")


def as_spark_offsets(offsets: Mapping[TopicPartition, _T]) -> dict[str, dict[str, _T]]:
    """Return offsets, or other values of partitions, in Spark's shape: topic → {partition → offset}, in order."""
    shaped: dict[str, dict[str, _T]] = {}
    for tp in sorted(offsets):
        shaped.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return shaped


def from_spark_offsets(shaped: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the inverse of `as_spark_offsets`. Raises ValueError for what is no whole number."""
    return {
        TopicPartition(topic, int(partition)): whole_number(offset, f"the number of {topic}-{partition}")
        for topic, of_topic in shaped.items()
        for partition, offset in of_topic.items()
    }
