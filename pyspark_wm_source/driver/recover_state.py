"""The states that the tasks of the last batch left: from Kafka's committed offsets, else by reading again.

Rule: a committed state counts only if it is exactly the one expected: of this query, settings, batch and next offset.
Everything else, and every refusal, costs a recovery read and changes no result (docs/design/state.md#recovery-read).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from keyedwm.core.axis import AxisState, Counts, concatenate
from keyedwm.core.encoding import CommittedState, try_decode
from keyedwm.core.errors import KeyedwmError
from keyedwm.core.places import OnBadTime
from keyedwm.kafka.client.errors import GroupAccessError
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.driver.changed_settings import are_changed, carried_axes
from pyspark_wm_source.driver.splits import equal_ranges, parts_by_channel
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.fetching import fetch
from pyspark_wm_source.task.scan import counted_columns, needed_columns, policy_run
from pyspark_wm_source.task.unknown_ids import Notes, UnknownIds
from pyspark_wm_source.values.offsets import STATE_TIMEOUT_MS, Channel, QueryOffset, state_place
from pyspark_wm_source.values.outage import Outage
from pyspark_wm_source.values.ranges import ChannelRange, RangeResult, group_of_notes, part_group

LOG = logging.getLogger("keyedwm.source")
_MOST_RESETS_OF_COPY = 16  # a copy that has lost its states more often is not named


class Recovery:
    """Reads ranges again for the states at their ends (the recovery read); keeps no rows.

    A record that was processed need not exist any more: if it is gone or damaged by now, it is skipped, and the state
    continues from the state at the range's start. A result is `lossy` unless every offset of its range showed a record:
    an offset without one may be a transaction's marker, or a record that compaction has removed since.
    """

    def __init__(
        self, cluster: Cluster, ranges: Sequence[ChannelRange], options: SourceOptions, end: QueryOffset
    ) -> None:
        stamps = {name: end.watermark_ms(axis.config.key) for name, axis in options.axes.items()}
        axes = {name: axis.lenient() for name, axis in options.axes.items()}
        on_bad = OnBadTime.NULL if options.on_bad is OnBadTime.FAIL else options.on_bad
        lenient = replace(options, axes=axes, on_bad=on_bad, formats=options.formats.lenient())
        columns = counted_columns(options)
        notes = [None] * len(ranges) if not options.formats.notes_unknown_ids else _notes(cluster, ranges, options, end)
        self._runs = [
            policy_run(task, lenient, stamps, end.now_ms, end.ahead_ms, columns=columns, notes=noted)
            for task, noted in zip(ranges, notes, strict=True)
        ]
        self._left = {index: task.end - task.start for index, task in enumerate(ranges)}
        self._ends = [task.end for task in ranges]
        self._missing = dict(self._left)
        selection = needed_columns(columns or set(), options)
        self._chunks = iter(fetch(cluster, ranges, selection, options.client.isolation, self._pass_over))

    def advance(self, until_s: float | None) -> bool:
        """Read on until the time (of the monotonic clock); true once everything was read."""
        for chunk in self._chunks:
            run = self._runs[chunk.range_index]
            run.observe(chunk.records)
            self._left[chunk.range_index] = self._ends[chunk.range_index] - chunk.records.next_offset
            self._missing[chunk.range_index] -= chunk.records.count + len(chunk.records.control_records)
            if chunk.done:
                run.end()
                del self._left[chunk.range_index]
            if until_s is not None and time.monotonic() >= until_s:
                return False
        return True

    def results(self) -> dict[TopicPartition, RangeResult]:
        """Return the states, once everything was read."""
        return {
            run.task.channel: replace(run.result(), lossy=self._missing[index] > 0)
            for index, run in enumerate(self._runs)
        }

    def progress(self) -> dict[str, int]:
        """Return the ranges that are still to be read."""
        return {"channels": len(self._left), "offsets_left": sum(self._left.values())}

    @staticmethod
    def _pass_over(error: KeyedwmError) -> None:
        LOG.warning(
            "recovery read: %s; the watermark continues from the state before it, and a reset row says that it may be "
            "lower than it was", error.message,
        )  # fmt: skip


def _notes(
    cluster: Cluster, ranges: Sequence[ChannelRange], options: SourceOptions, end: QueryOffset
) -> list[Notes | None]:
    """Return the notes about unknown ids that tasks left, which read the ranges whole or in parts."""
    count = parts_by_channel(end)
    parts = [
        replace(one, start=first, end=last, part=part, parts=count[one.channel])
        for one in ranges
        for part, (first, last) in enumerate(equal_ranges(one.start, one.end, count[one.channel]))
    ]
    key = options.state_key(end.state_key)
    unknown = UnknownIds(cluster, group_of_notes(end.group), end.batch, parts, key, writes=False)
    return [unknown.of([n for n, part in enumerate(parts) if part.channel == one.channel]) for one in ranges]


class StateLoader:
    """Finds the states at the end of a batch; keeps the last answer, since planning may ask many times.

    recovered: the number of channels' ranges that it has read a second time in this process. outage: an outage of the
    group's coordinator; while it lasts, the loader does not ask.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._last: tuple[tuple[str, int], Mapping[TopicPartition, RangeResult]] | None = None
        self._recovery: tuple[tuple[str, int], Mapping[TopicPartition, RangeResult], Recovery] | None = None
        self._warned = False
        self._warned_of_copy = False
        self.recovered = 0
        self.outage = Outage()

    def load_states(
        self, cluster: Cluster, end: QueryOffset, *, at_once: bool
    ) -> Mapping[TopicPartition, RangeResult] | None:
        """Return the state of every channel that the batch ending at `end` read, as of the end of the batch.

        None while a recovery read runs: each call reads for some seconds. With `at_once` the call finishes the recovery
        read.
        """
        which = (end.group, end.batch)
        if self._last is not None and self._last[0] == which:
            return self._last[1]
        with_news = dict(end.channels_to_read())
        parts = parts_by_channel(end)
        if self._recovery is None or self._recovery[0] != which:
            states: Mapping[TopicPartition, RangeResult] = (
                self._committed(cluster, end, with_news, parts) if with_news else {}
            )
            lacking = [_whole(tp, channel, end) for tp, channel in with_news.items() if tp not in states]
            if not lacking:
                self._last = which, states
                return states
            self.recovered += len(lacking)
            offsets = sum(one.end - one.start for one in lacking)
            LOG.debug("recovery read of %d channels of batch %d: %d offsets", len(lacking), end.batch, offsets)
            self._recovery = which, states, Recovery(cluster, lacking, self._options, end)
        _, states, recovery = self._recovery
        slice_s = self._options.limits.recovery_slice_s
        if not recovery.advance(None if at_once else time.monotonic() + slice_s):
            LOG.debug("recovery read of batch %d continues: %s", end.batch, recovery.progress())
            return None
        results = recovery.results()
        if are_changed(end, self._options):
            # Other watermarks than these may have been sent in that batch: a reset lets operators forget them.
            results = {tp: replace(one, lossy=True) for tp, one in results.items()}
        complete = {**states}
        complete |= {tp: _unemitted(with_news[tp], one) if parts[tp] > 1 else one for tp, one in results.items()}
        self._last, self._recovery = (which, complete), None
        return complete

    def recovery_progress(self) -> dict[str, int]:
        """Return the ranges that the running recovery read must still read."""
        return {} if self._recovery is None else self._recovery[2].progress()

    def _committed(
        self, cluster: Cluster, end: QueryOffset, with_news: Mapping[TopicPartition, Channel], parts: Mapping
    ) -> dict[TopicPartition, RangeResult]:
        """Return states by channel, if each part of its range left one.

        A range that was read whole, as nearly all are, is one part.
        """
        whole = {tp: channel.next_offset for tp, channel in with_news.items() if parts[tp] == 1}
        states = {
            tp: RangeResult(next_offset=whole[tp], counts=state.counts, axes=state.axes)
            for tp, state in self._ask(cluster, end, end.group, whole).items()
        }
        expected: dict[str, dict[TopicPartition, int]] = {}
        by_channel: dict[TopicPartition, list[CommittedState]] = {tp: [] for tp in with_news if tp not in whole}
        for tp in by_channel:
            for part, (_, last) in enumerate(equal_ranges(with_news[tp].start, with_news[tp].next_offset, parts[tp])):
                expected.setdefault(part_group(end.group, part, parts[tp]), {})[tp] = last
        if are_changed(end, self._options):  # states of parts from another policy cannot be joined
            expected = {}
            changed = {tp: carried_axes(one.axes, self._options, end.now_ms) for tp, one in states.items()}
            states = {tp: replace(states[tp], axes=axes) for tp, axes in changed.items()}
        for group, positions in expected.items():
            for tp, state in self._ask(cluster, end, group, positions).items():
                by_channel[tp].append(state)
        return states | {
            tp: self._joined(with_news[tp], own) for tp, own in by_channel.items() if len(own) == parts[tp]
        }

    def _ask(
        self, cluster: Cluster, end: QueryOffset, group: str, expected: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, CommittedState]:
        if self.outage.is_paused(time.monotonic()):
            return {}
        try:
            committed = cluster.fetch_offsets(group, expected, timeout_ms=STATE_TIMEOUT_MS)
        except GroupAccessError as error:
            if not self._warned:
                LOG.warning("%s: every batch is read a second time for its watermarks", error)
            self._warned = True
            return {}
        except KeyedwmError as error:
            if self.outage.note(error.message, time.monotonic()):
                LOG.warning(
                    "the states of group %s cannot be fetched, until its coordinator answers every batch is read a "
                    "second time for its watermarks: %s", group, error.message,
                )  # fmt: skip
            return {}
        if self.outage.over():
            LOG.warning("the coordinator of group %s answers again", group)
        key = self._options.state_key(end.state_key)
        states = {}
        for tp, position in committed.items():
            if position.next_offset != expected[tp]:
                continue
            channel = end.channels[tp]
            state = _state_at(end, key, group, tp, position, channel.resets)
            if state is not None and not (group == end.group and _falls(channel, state)):
                states[tp] = state
            elif state is not None or _is_of_copy(end, key, group, tp, position):
                self._tell_copy(group, tp, end.batch)
        return states

    def _tell_copy(self, group: str, tp: TopicPartition, batch: int) -> None:
        """Name the copy, once: the states that it commits are not ours, and each costs a recovery read."""
        if not self._warned_of_copy:
            LOG.warning(
                "another query, on a copy of this checkpoint, commits to consumer group %s: its state of %s and batch "
                "%d is not taken, the batch is read a second time instead; stop one of the two, or give the copy a "
                "checkpoint of its own",
                group, tp, batch,
            )  # fmt: skip
        self._warned_of_copy = True

    def _joined(self, channel: Channel, parts: Sequence[CommittedState]) -> RangeResult:
        """Join the states of consecutive parts."""
        axes = dict(channel.axes)
        for part in parts:
            for axis in self._options.axes.values():
                key = axis.config.key
                before, own = axes.get(key, AxisState()), part.axes.get(key, AxisState())
                axes[key] = concatenate(axis.config, before, own)
        counts = reduce(Counts.plus, (part.counts for part in parts), channel.counts)
        return RangeResult(next_offset=channel.next_offset, counts=counts, axes=axes, in_parts=True)


def _state_at(  # noqa: PLR0917
    end: QueryOffset, key: bytes, group: str, tp: TopicPartition, position: Committed, resets: int
) -> CommittedState | None:
    """Return the state in a committed position if it is of this batch and of a channel reset as often."""
    place = state_place(group, tp, position.next_offset, end.settings, resets)
    state = try_decode(position.metadata, key, place)
    return state if state is not None and state.snapshot_id == end.batch else None


def _is_of_copy(end: QueryOffset, key: bytes, group: str, tp: TopicPartition, position: Committed) -> bool:
    """Whether the state was left by a query with our key whose channel was reset at other times than ours."""
    return any(_state_at(end, key, group, tp, position, other) for other in range(_MOST_RESETS_OF_COPY))


def _falls(channel: Channel, state: CommittedState) -> bool:
    """Whether the state of a range that was read whole has a lower watermark than the channel had before the batch."""
    for key, before in channel.axes.items():
        after = state.axes.get(key)
        if after is None or before.emitted_ms is None or after.emitted_ms is None:
            continue
        if after.emitted_ms < before.emitted_ms:
            return True
    return False


def _whole(tp: TopicPartition, channel: Channel, end: QueryOffset) -> ChannelRange:
    return ChannelRange(
        channel=tp, start=channel.start, end=channel.next_offset, counts=channel.counts, axes=channel.axes,
        topic_id=end.topic_ids.get(tp.topic),
    )  # fmt: skip


def _unemitted(channel: Channel, result: RangeResult) -> RangeResult:
    """Return the state of a range that was read in parts: none of its watermarks was emitted in band."""
    emitted = {key: channel.axes.get(key, AxisState()).emitted_ms for key in result.axes}
    axes = {key: replace(state, emitted_ms=emitted[key]) for key, state in result.axes.items()}
    return replace(result, axes=axes, in_parts=True)
