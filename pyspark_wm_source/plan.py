"""Planning one batch: from the last offset, what its tasks left, the log ends and the clock, to the next offset.

Rule: pure. Whatever decides a batch comes in as an argument and goes into the result; no I/O and no clock is here.
Two clock readings frame the broker's answer: idleness is judged by the one before it, news is dated by the one after,
so that a channel is never idle early (DESIGN rule 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from keyedwm.core.axis import Axis, AxisConfig
from keyedwm.core.coalescer import Added, Advanced, Change, Coalescer, CoalescerState, Removed, WentIdle, Woken
from keyedwm.core.idleness import Idleness
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.channel import After
from pyspark_wm_source.offsets import NOT_STARTED, Channel, QueryOffset


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What the broker answered: log end per channel, asked at `asked_ms` and answered by `now_ms`.

    begins: where each channel that the last offset does not know begins.
    """

    ends: Mapping[TopicPartition, int]
    begins: Mapping[TopicPartition, int]
    asked_ms: int
    now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The options that planning needs; None: no such limit. clocked: the axes that move with the clock, too."""

    guarantee: Guarantee
    idle_timeout_ms: int | None
    max_offsets: int | None
    retention_ms: int | None = None
    axes: tuple[AxisConfig, ...] = ()
    clocked: tuple[AxisConfig, ...] = ()


def plan(start: QueryOffset, after: Mapping[TopicPartition, After], seen: Seen, rules: Rules) -> QueryOffset:
    """Return the offset that ends the next batch.

    after: the state of every channel that the batch ending at `start` read, once it was read.
    """
    now_ms = max(seen.now_ms, start.now_ms)
    stood = {tp: _settled(channel, after.get(tp)) for tp, channel in start.channels.items()}
    channels: dict[TopicPartition, Channel] = {}
    changes: list[Change] = [Removed(str(tp)) for tp in sorted(stood) if tp not in seen.ends]
    for tp in sorted(seen.ends):
        if tp not in stood:
            changes.append(Added(str(tp)))
        channel = stood.get(tp) or _new(seen.begins[tp], now_ms)
        if seen.ends[tp] < channel.next_offset:
            # The topic was made anew and the user accepts the loss: go on from its end.
            channel = replace(channel, next_offset=seen.ends[tp])
        behind = seen.ends[tp] > channel.next_offset
        status = _judged(channel, rules, behind=behind, asked_ms=seen.asked_ms)
        if tp in after and after[tp].cut:
            channel = _told(channel, rules.axes, now_ms)
        elif rules.clocked and not behind and status is Status.ACTIVE:
            channel = _told(channel, rules.clocked, now_ms)
        changes += _advances(tp, start.channels.get(tp), channel)
        if status is not channel.status:
            changes.append(Woken(str(tp)) if status is Status.ACTIVE else WentIdle(str(tp)))
        channels[tp] = replace(channel, status=status, since_ms=now_ms if behind else channel.since_ms)
    coalescer = Coalescer.restore(_coalescer_state(start), guarantee=rules.guarantee, retention_ms=rules.retention_ms)
    coalescer.step(changes, now_ms)
    backlog = {tp: seen.ends[tp] - c.next_offset for tp, c in channels.items()}
    shares = shared_out(backlog, rules.max_offsets)
    return replace(
        start,
        batch=start.batch + 1,
        now_ms=now_ms,
        coalesced=coalescer.snapshot().common,
        channels={
            tp: replace(c, next_offset=c.next_offset + shares[tp], read=shares[tp]) for tp, c in channels.items()
        },
        begins={},
    )


def worth_a_batch(start: QueryOffset, end: QueryOffset) -> bool:
    """Say whether `end` has something to tell: records, a coalesced watermark, a status, a channel (section 12).

    The very first batch always runs: it makes the starting offsets durable. So does one that goes back to the end of a
    topic made anew: what comes next there lies below the offset known so far.
    """
    if start.batch == NOT_STARTED or any(True for _ in end.moved()):
        return True
    return (
        start.coalesced.emitted != end.coalesced.emitted
        or any(c.announced for c in end.channels.values())
        or start.coalesced.idle_spell != end.coalesced.idle_spell
        or _places(start) != _places(end)
    )


def shared_out(backlog: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Split `limit` offsets in proportion to the backlogs, as Spark does: rounded down, but a share below 1 is 1."""
    total = sum(backlog.values())
    if limit is None or limit >= total:
        return dict(backlog)
    return {tp: min(size, max(1, limit * size // total)) if size else 0 for tp, size in backlog.items()}


def _places(offset: QueryOffset) -> dict[TopicPartition, tuple[Status, int]]:
    return {tp: (c.status, c.next_offset) for tp, c in offset.channels.items()}


def _settled(channel: Channel, after: After | None) -> Channel:
    """The channel once its range was read."""
    if after is None:
        return replace(channel, read=0, announced=())
    return replace(channel, read=0, announced=(), bad=after.bad, axes=after.axes)


def _new(begin: int, now_ms: int) -> Channel:
    return Channel(next_offset=begin, read=0, status=Status.ACTIVE, since_ms=now_ms, bad=0, axes={})


def _told(channel: Channel, configs: Iterable[AxisConfig], now_ms: int) -> Channel:
    """The channel with what its policies say now: by the clock (DESIGN rule 7), or after a range read in parts."""
    axes, announced = dict(channel.axes), []
    for config in configs:
        axis = Axis(config, axes.get(config.key))
        if axis.end(now_ms) is not None:
            announced.append(config.key)
        axes[config.key] = axis.state()
    return replace(channel, axes=axes, announced=tuple(announced))


def _advances(tp: TopicPartition, before: Channel | None, channel: Channel) -> Iterator[Change]:
    """The watermarks that the channel's own rows announced in the batch before."""
    for key, axis in sorted(channel.axes.items()):
        known = before.axes.get(key) if before is not None else None
        if axis.emitted_ms is not None and (known is None or axis.emitted_ms != known.emitted_ms):
            yield Advanced(str(tp), key, axis.emitted_ms)


def _judged(channel: Channel, rules: Rules, *, behind: bool, asked_ms: int) -> Status:
    """Decide the channel's status: a backlog wakes it, silence while caught up makes it idle."""
    if behind:
        return Status.ACTIVE
    silent = Idleness(rules.idle_timeout_ms).is_idle(quiet_since_ms=channel.since_ms, now_ms=asked_ms, caught_up=True)
    return Status.IDLE if silent else channel.status


def _coalescer_state(start: QueryOffset) -> CoalescerState:
    channels = {}
    for tp, channel in start.channels.items():
        sent = {key: axis.emitted_ms for key, axis in channel.axes.items() if axis.emitted_ms is not None}
        channels[str(tp)] = (channel.status, sent)
    return CoalescerState(channels=channels, common=start.coalesced)
