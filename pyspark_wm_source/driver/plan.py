"""Planning one batch: the last offset, the states that its tasks left, the log ends and the clock give the next offset.

Rule: pure. Whatever decides a batch comes in as an argument and goes into the result; no I/O and no clock is here. Two
clock readings frame the broker's answer: idleness counts by the reading before the answer, new records by the reading
after it. So a channel is never idle early (rule 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from keyedwm.arrow.axis import AxisRun
from keyedwm.core.axis import AxisConfig, AxisState, Counts
from keyedwm.core.coalescer import (
    Change,
    ChannelAdded,
    ChannelRemoved,
    ChannelWentIdle,
    ChannelWoken,
    Coalescer,
    CoalescerState,
    WatermarkAdvanced,
)
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import LagAndLull, NoWatermarks
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.options.axes import ahead_of
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.propagated import last_barrier
from pyspark_wm_source.values.offsets import NO_LIMITS, NOT_STARTED, Channel, CutLimits, QueryOffset, RetiredChannel
from pyspark_wm_source.values.ranges import RangeResult

# A partition that returns later counts as a new one.
RETIRED_KEPT_MS = 24 * 3_600_000
# How often a batch comes that only the clock has caused.
CLOCK_BATCH_MS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerAnswers:
    """The broker's answers: log end per channel, requested at `requested_ms` and answered by `now_ms`.

    begins: the first offset of each channel that the last offset does not have. high: high watermarks, if they may lie
    above the ends, which under read_committed are the last stable offsets. restarts: the offset at which channels of
    recreated topics and of truncated logs begin again. topic_ids, leader_epochs: as far as they are known; the epochs
    are those of the leaders that gave the ends.
    """

    ends: Mapping[TopicPartition, int]
    begins: Mapping[TopicPartition, int]
    requested_ms: int
    now_ms: int
    high: Mapping[TopicPartition, int] = field(default_factory=dict)
    restarts: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int | None] = field(default_factory=dict)

    def uncommitted(self, tp: TopicPartition) -> int:
        """The number of offsets behind the end: records of open transactions, and the records after them."""
        return max(self.high.get(tp, 0) - self.ends[tp], 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The options that planning needs; None: no such limit. clocked: the axes whose watermarks the clock moves, too.

    propagate: watermarks and idleness come from upstream. limits, settings, ahead_ms: written into the offset.
    """

    guarantee: Guarantee
    idleness: Idleness
    max_offsets: int | None
    retention_ms: int | None = None
    axes: tuple[AxisConfig, ...] = ()
    clocked: tuple[AxisConfig, ...] = ()
    propagate: bool = False
    limits: CutLimits = NO_LIMITS
    settings: str = ""
    ahead_ms: Mapping[int, int] = field(default_factory=dict)

    @staticmethod
    def of(options: SourceOptions, max_offsets: int | None) -> Rules:
        """Return the rules of the options. max_offsets: the limit of this batch."""
        return Rules(
            guarantee=options.guarantee,
            idleness=Idleness(options.idle_timeout_ms),
            max_offsets=max_offsets,
            retention_ms=options.retention_ms,
            axes=tuple(axis.config for axis in options.axes.values()),
            clocked=tuple(axis.config for axis in options.axes.values() if axis.moves_by_clock),
            propagate=options.propagate,
            limits=CutLimits(least_tasks=options.least_tasks, most_records=options.most_records),
            settings=options.settings,
            ahead_ms=ahead_of(options.axes),
        )

    @property
    def lull_ms(self) -> int | None:
        """How long a channel without any watermark may be silent if there is no idle timeout: the longest lull.

        With a lull, a silent channel must not block the others, and a channel without a watermark has none that could
        rise. None if an axis has a policy that only events move.
        """
        policies = [axis.policy for axis in self.axes if not isinstance(axis.policy, NoWatermarks)]
        lulls = [policy.lull_ms for policy in policies if isinstance(policy, LagAndLull)]
        return max(lulls) if lulls and len(lulls) == len(policies) else None


def plan(
    start: QueryOffset, after: Mapping[TopicPartition, RangeResult], answers: BrokerAnswers, rules: Rules
) -> QueryOffset:
    """Return the offset that ends the next batch.

    after: for every channel that the batch ending at `start` read, its state behind that batch.
    """
    now_ms = max(answers.now_ms, start.now_ms)
    positions = {tp: position_of(start, answers, tp) for tp in sorted(answers.ends)}
    shares = shared_out({tp: answers.ends[tp] - position for tp, position in positions.items()}, rules.max_offsets)
    changes: list[Change] = [ChannelRemoved(str(tp)) for tp in sorted(start.channels) if tp not in answers.ends]
    channels: dict[TopicPartition, Channel] = {}
    for tp, position in positions.items():
        name, before = str(tp), start.channels.get(tp)
        if before is None:
            changes.append(ChannelAdded(name))
        behind = answers.ends[tp] > position
        known = before or start.retired.get(tp)
        counts, axes, is_partial, losses = _state(known, after.get(tp))
        # Idle means caught up with the high watermark: records of an open transaction are still to come (rule 10).
        awaited = behind or (answers.uncommitted(tp) > 0 and not rules.propagate)
        status = _status(before, axes, rules, awaited=awaited, requested_ms=answers.requested_ms)
        announced: tuple[int, ...] = ()
        # Idle takes a channel out of the minimum, not out of time: its policy follows the clock.
        if is_partial or (rules.clocked and not behind):
            axes, announced = _run_policies(axes, rules.axes if is_partial else rules.clocked, now_ms)
        resets = (0 if known is None else known.resets) + losses
        if resets > (0 if before is None else before.resets):
            # Operators and sinks have a watermark that the source has lost: they get the present one.
            announced = tuple(sorted(key for key, axis in axes.items() if axis.emitted_ms is not None))
        advances = advances_of(name, before, axes)
        changes += advances
        was_idle = before is not None and before.status is Status.IDLE
        if status is Status.IDLE and (advances or not was_idle):
            changes.append(ChannelWentIdle(name))  # a watermark makes it active (rule 3): idle comes after it
        elif status is Status.ACTIVE and was_idle:
            changes.append(ChannelWoken(name))
        channels[tp] = Channel(
            next_offset=position + shares[tp],
            read=shares[tp],
            status=status,
            # If the clock is behind the earlier one (set back, or another driver's), silence counts from its present
            # time: a time in the future would keep the channel active until then.
            since_ms=answers.now_ms if awaited or before is None else min(before.since_ms, answers.now_ms),
            counts=counts,
            axes=axes,
            announced=announced,
            resets=resets,
            leader_epoch=answers.leader_epochs.get(tp),
        )
    coalescer = Coalescer.restore(coalescer_state(start), guarantee=rules.guarantee, retention_ms=rules.retention_ms)
    coalescer.step(changes, now_ms)
    retired = _retired(start, after, answers, now_ms)
    topics = {tp.topic for tp in (*channels, *retired)}
    ids = {topic: one for topic, one in {**start.topic_ids, **answers.topic_ids}.items() if topic in topics}
    return replace(
        start, batch=start.batch + 1, now_ms=now_ms, coalesced=coalescer.common(), channels=channels, begins={},
        limits=rules.limits, settings=rules.settings, ahead_ms=rules.ahead_ms, topic_ids=ids, retired=retired,
    )  # fmt: skip


def worth_a_batch(start: QueryOffset, end: QueryOffset) -> bool:
    """Say whether `end` is worth a batch: for records, a coalesced watermark, a status, a channel, or states to record.

    The very first batch always runs: it makes the starting offsets durable. So does a batch that goes back to an
    earlier offset in a topic that was deleted and recreated, or records the new topic's id. The next offset records the
    states that a batch left: from then on its records are not needed again. A change that the clock alone has caused
    waits for a second; for idle channels it is worth a batch only if the coalesced watermark moves.
    """
    if start.batch == NOT_STARTED or any(True for _ in end.channels_to_read()):
        return True
    if start.coalesced.idle_spell != end.coalesced.idle_spell or _positions(start) != _positions(end):
        return True
    if any(end.topic_ids.get(topic, one) != one for topic, one in start.topic_ids.items()):
        return True
    read = any(True for _ in start.channels_to_read())
    has_news = any(c.announced and c.status is Status.ACTIVE for c in end.channels.values())
    changed = has_news or start.coalesced.emitted != end.coalesced.emitted
    if read:
        return changed or _states(start) != _states(end)
    return changed and end.now_ms - start.now_ms >= CLOCK_BATCH_MS


def shared_out(backlog: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Split `limit` offsets in proportion to the backlogs, as Spark does: rounded down, but a share below 1 is 1."""
    total = sum(backlog.values())
    if limit is None or limit >= total:
        return dict(backlog)
    return {tp: min(size, max(1, limit * size // total)) if size else 0 for tp, size in backlog.items()}


def _retired(
    start: QueryOffset, after: Mapping[TopicPartition, RangeResult], answers: BrokerAnswers, now_ms: int
) -> dict[TopicPartition, RetiredChannel]:
    """Return the last positions of channels that are missing now, or have been for less than a day."""
    recent = {tp: one for tp, one in start.retired.items() if now_ms - one.missed_ms < RETIRED_KEPT_MS}
    retired = {tp: one for tp, one in recent.items() if tp not in answers.ends}
    for tp, channel in start.channels.items():
        if tp not in answers.ends:
            counts, axes, _, losses = _state(channel, after.get(tp))
            retired[tp] = RetiredChannel(
                missed_ms=now_ms,
                next_offset=channel.next_offset,
                counts=counts,
                axes=axes,
                resets=channel.resets + losses,
                leader_epoch=channel.leader_epoch,
            )
    return retired


def _positions(offset: QueryOffset) -> dict[TopicPartition, tuple[Status, int]]:
    return {tp: (c.status, c.next_offset) for tp, c in offset.channels.items()}


def _states(offset: QueryOffset) -> dict[TopicPartition, tuple[Counts, Mapping[int, AxisState]]]:
    return {tp: (c.counts, c.axes) for tp, c in offset.channels.items()}


def position_of(start: QueryOffset, answers: BrokerAnswers, tp: TopicPartition) -> int:
    """Return the channel's next offset; the end of a log that became shorter, if losses are accepted."""
    if tp in answers.restarts:
        return min(answers.restarts[tp], answers.ends[tp])
    before = start.channels.get(tp)
    return min(answers.begins[tp] if before is None else before.next_offset, answers.ends[tp])


def _state(
    before: Channel | RetiredChannel | None, after: RangeResult | None
) -> tuple[Counts, Mapping[int, AxisState], bool, bool]:
    """Return a channel's counts and axes behind its last range, and whether it was read in parts, or with losses."""
    if after is not None:
        return after.counts, after.axes, after.in_parts, after.lossy
    return (Counts(), {}, False, False) if before is None else (before.counts, before.axes, False, False)


def _run_policies(
    axes: Mapping[int, AxisState], configs: Iterable[AxisConfig], now_ms: int
) -> tuple[Mapping[int, AxisState], tuple[int, ...]]:
    """Compute the watermarks of a channel's policies: by the clock (rule 7), or after a range that was read in parts.

    Returns the states, and the keys whose watermark has moved.
    """
    states, announced = dict(axes), []
    for config in configs:
        axis = AxisRun(config, states.get(config.key, AxisState()), now_ms)
        if axis.end() is not None:
            announced.append(config.key)
        states[config.key] = axis.state()
    return states, tuple(announced)


def advances_of(name: str, before: Channel | None, axes: Mapping[int, AxisState]) -> list[Change]:
    """The watermarks that became known since the batch before."""
    known = {} if before is None else before.axes
    return [
        WatermarkAdvanced(name, key, emitted_ms)
        for key in sorted(axes)
        if (emitted_ms := axes[key].emitted_ms) is not None
        and (key not in known or emitted_ms != known[key].emitted_ms)
    ]


def _status(
    before: Channel | None, axes: Mapping[int, AxisState], rules: Rules, *, awaited: bool, requested_ms: int
) -> Status:
    """Decide the channel's status: records ahead wake it; silence while it is caught up makes it idle."""
    if awaited or before is None:
        return Status.ACTIVE
    if rules.propagate:
        barrier = last_barrier(axes)
        return Status.IDLE if barrier is not None and barrier.idle else Status.ACTIVE
    silent = rules.idleness.is_idle(quiet_since_ms=before.since_ms, now_ms=requested_ms, caught_up=True)
    if rules.idleness.timeout_ms is None and not any(
        axis.policy or axis.emitted_ms is not None for axis in axes.values()
    ):
        lull_ms = rules.lull_ms
        silent = lull_ms is not None and requested_ms - before.since_ms >= lull_ms
    return Status.IDLE if silent else before.status


def coalescer_state(start: QueryOffset) -> CoalescerState:
    """Return the state of the coalescer as of the batch's start."""
    channels = {}
    for tp, channel in start.channels.items():
        emitted = {key: axis.emitted_ms for key, axis in channel.axes.items() if axis.emitted_ms is not None}
        channels[str(tp)] = (channel.status, emitted)
    return CoalescerState(channels=channels, common=start.coalesced)
