"""Planning one batch: from the last offset, what its tasks left, the log ends and the clock, to the next offset.

Rule: pure. Whatever decides a batch comes in as an argument and goes into the result; no I/O and no clock is here.
Two clock readings frame the broker's answer: idleness is judged by the one before it, news is dated by the one after,
so that a channel is never idle early (DESIGN rule 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from keyedwm.core.axis import Axis, AxisConfig, AxisState
from keyedwm.core.coalescer import Added, Advanced, Change, Coalescer, CoalescerState, Removed, WentIdle, Woken
from keyedwm.core.counts import Counts
from keyedwm.core.idleness import Idleness
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.channel import After
from pyspark_wm_source.offsets import NOT_STARTED, Channel, QueryOffset
from pyspark_wm_source.propagated import reached_by


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
    """The options that planning needs; None: no such limit. clocked: the axes that move with the clock, too.

    propagate: watermarks and idleness come from upstream.
    """

    guarantee: Guarantee
    idleness: Idleness
    max_offsets: int | None
    retention_ms: int | None = None
    axes: tuple[AxisConfig, ...] = ()
    clocked: tuple[AxisConfig, ...] = ()
    propagate: bool = False


def plan(start: QueryOffset, after: Mapping[TopicPartition, After], seen: Seen, rules: Rules) -> QueryOffset:
    """Return the offset that ends the next batch.

    after: the state of every channel that the batch ending at `start` read, once it was read.
    """
    now_ms = max(seen.now_ms, start.now_ms)
    positions = {tp: position_of(start, seen, tp) for tp in sorted(seen.ends)}
    shares = shared_out({tp: seen.ends[tp] - position for tp, position in positions.items()}, rules.max_offsets)
    changes: list[Change] = [Removed(str(tp)) for tp in sorted(start.channels) if tp not in seen.ends]
    channels: dict[TopicPartition, Channel] = {}
    for tp, position in positions.items():
        name, before = str(tp), start.channels.get(tp)
        if before is None:
            changes.append(Added(name))
        behind = seen.ends[tp] > position
        counts, axes, cut = _state(before, after.get(tp))
        status = _judged(before, axes, rules, behind=behind, asked_ms=seen.asked_ms)
        announced: tuple[int, ...] = ()
        if cut or (rules.clocked and not behind and status is Status.ACTIVE):
            axes, announced = _told(axes, rules.axes if cut else rules.clocked, now_ms)
        changes += _advances(name, before, axes)
        if before is not None and status is not before.status:
            changes.append(Woken(name) if status is Status.ACTIVE else WentIdle(name))
        channels[tp] = Channel(
            next_offset=position + shares[tp],
            read=shares[tp],
            status=status,
            since_ms=now_ms if behind or before is None else before.since_ms,
            counts=counts,
            axes=axes,
            announced=announced,
        )
    coalescer = Coalescer.restore(_coalescer_state(start), guarantee=rules.guarantee, retention_ms=rules.retention_ms)
    coalescer.step(changes, now_ms)
    coalesced = coalescer.common()
    return replace(start, batch=start.batch + 1, now_ms=now_ms, coalesced=coalesced, channels=channels, begins={})


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


def position_of(start: QueryOffset, seen: Seen, tp: TopicPartition) -> int:
    """Where the channel goes on; at the end of a topic made anew, if the user accepts the loss."""
    before = start.channels.get(tp)
    return min(seen.begins[tp] if before is None else before.next_offset, seen.ends[tp])


def _state(before: Channel | None, after: After | None) -> tuple[Counts, Mapping[int, AxisState], bool]:
    """Counts and axes of the channel once its last range was read, and whether that was read in parts."""
    if after is not None:
        return after.counts, after.axes, after.cut
    return (Counts(), {}, False) if before is None else (before.counts, before.axes, False)


def _told(
    axes: Mapping[int, AxisState], configs: Iterable[AxisConfig], now_ms: int
) -> tuple[Mapping[int, AxisState], tuple[int, ...]]:
    """What a channel's policies say now, and of which keys: by the clock (DESIGN rule 7), or after a range in parts."""
    states, announced = dict(axes), []
    for config in configs:
        axis = Axis(config, states.get(config.key))
        if axis.end(now_ms) is not None:
            announced.append(config.key)
        states[config.key] = axis.state()
    return states, tuple(announced)


def _advances(name: str, before: Channel | None, axes: Mapping[int, AxisState]) -> Iterator[Change]:
    """The watermarks that became known since the batch before."""
    for key in sorted(axes):
        emitted_ms = axes[key].emitted_ms
        known = before.axes.get(key) if before is not None else None
        if emitted_ms is not None and (known is None or emitted_ms != known.emitted_ms):
            yield Advanced(name, key, emitted_ms)


def _judged(
    before: Channel | None, axes: Mapping[int, AxisState], rules: Rules, *, behind: bool, asked_ms: int
) -> Status:
    """Decide the channel's status: a backlog wakes it, silence while caught up makes it idle."""
    if behind or before is None:
        return Status.ACTIVE
    if rules.propagate:
        reached = reached_by(axes)
        return Status.IDLE if reached is not None and reached.idle else Status.ACTIVE
    silent = rules.idleness.is_idle(quiet_since_ms=before.since_ms, now_ms=asked_ms, caught_up=True)
    return Status.IDLE if silent else before.status


def _coalescer_state(start: QueryOffset) -> CoalescerState:
    channels = {}
    for tp, channel in start.channels.items():
        sent = {key: axis.emitted_ms for key, axis in channel.axes.items() if axis.emitted_ms is not None}
        channels[str(tp)] = (channel.status, sent)
    return CoalescerState(channels=channels, common=start.coalesced)
