"""What the tasks of the last batch left behind: from Kafka's committed offsets, else by reading again.

Rule: a committed state counts only if it is exactly the one expected: this query's token, this batch, this next offset.
Everything else, and every refusal, costs a recovery read and changes no result (DESIGN section 5.3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from keyedwm.core.axis import AxisState, concatenate
from keyedwm.core.counts import Counts
from keyedwm.core.encoding import CommittedState, try_decode
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.errors import GroupAccessError
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.channel import After, Range
from pyspark_wm_source.cutting import cut
from pyspark_wm_source.offsets import Channel, QueryOffset
from pyspark_wm_source.options import SourceOptions
from pyspark_wm_source.scan import recover
from pyspark_wm_source.splits import Cutting, part_group

LOG = logging.getLogger("keyedwm.source")


class Settler:
    """Finds the states at the end of a batch; keeps the last answer, since planning may ask many times.

    recovered: how many channels' ranges it had to read a second time so far, in this process.
    """

    def __init__(self, options: SourceOptions, cutting: Cutting) -> None:
        self._options = options
        self._cutting = cutting
        self._kept: tuple[tuple[str, int], Mapping[TopicPartition, After]] | None = None
        self._warned = False
        self.recovered = 0

    def settle(self, cluster: Cluster, end: QueryOffset) -> Mapping[TopicPartition, After]:
        """Return the state of every channel that the batch ending at `end` read, once it was read."""
        if self._kept is not None and self._kept[0] == (end.group, end.batch):
            return self._kept[1]
        moved = dict(end.moved())
        parts = self._cutting.parts(end)
        states = self._committed(cluster, end, moved, parts) if moved else {}
        lacking = [_whole(tp, channel) for tp, channel in moved.items() if tp not in states]
        if lacking:
            self.recovered += len(lacking)
            LOG.info("recovery read of %d channels of batch %d", len(lacking), end.batch)
            stamps = {name: end.watermark_ms(axis.config.key) for name, axis in self._options.axes.items()}
            found = recover(cluster, lacking, self._options, stamps, end.now_ms)
            states |= {tp: _untold(moved[tp], after) if parts[tp] > 1 else after for tp, after in found.items()}
        self._kept = ((end.group, end.batch), states)
        return states

    def _committed(
        self, cluster: Cluster, end: QueryOffset, moved: Mapping[TopicPartition, Channel], parts: Mapping
    ) -> dict[TopicPartition, After]:
        """States by channel where every part of it left one; what was read whole, as nearly all is, is one part."""
        whole = {tp: channel.next_offset for tp, channel in moved.items() if parts[tp] == 1}
        states = {
            tp: After(next_offset=whole[tp], counts=state.counts, axes=state.axes)
            for tp, state in self._ask(cluster, end, end.group, whole).items()
        }
        expected: dict[str, dict[TopicPartition, int]] = {}
        found: dict[TopicPartition, list[CommittedState]] = {tp: [] for tp in moved if tp not in whole}
        for tp in found:
            for part, (_, last) in enumerate(cut(moved[tp].start, moved[tp].next_offset, parts[tp])):
                expected.setdefault(part_group(end.group, part, parts[tp]), {})[tp] = last
        for group, positions in expected.items():
            for tp, state in self._ask(cluster, end, group, positions).items():
                found[tp].append(state)
        return states | {tp: self._joined(moved[tp], own) for tp, own in found.items() if len(own) == parts[tp]}

    def _ask(
        self, cluster: Cluster, end: QueryOffset, group: str, expected: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, CommittedState]:
        try:
            committed = cluster.fetch_offsets(group, expected)
        except GroupAccessError as error:
            if not self._warned:
                LOG.warning("%s: every batch is read a second time for its watermarks", error)
            self._warned = True
            return {}
        states = {}
        for tp, position in committed.items():
            state = try_decode(position.metadata) if position.next_offset == expected[tp] else None
            if state is not None and state.token == end.token and state.snapshot_id == end.batch:
                states[tp] = state
        return states

    def _joined(self, channel: Channel, parts: Sequence[CommittedState]) -> After:
        """Join the states of consecutive parts."""
        axes = dict(channel.axes)
        for part in parts:
            for axis in self._options.axes.values():
                key = axis.config.key
                before, own = axes.get(key, AxisState()), part.axes.get(key, AxisState())
                axes[key] = concatenate(axis.config, before, own)
        counts = reduce(Counts.plus, (part.counts for part in parts), channel.counts)
        return After(next_offset=channel.next_offset, counts=counts, axes=axes, cut=True)


def _whole(tp: TopicPartition, channel: Channel) -> Range:
    return Range(channel=tp, start=channel.start, end=channel.next_offset, counts=channel.counts, axes=channel.axes)


def _untold(channel: Channel, after: After) -> After:
    """The state of a range that was read in parts: what it would have said in band was told to nobody."""
    told = {key: channel.axes.get(key, AxisState()).emitted_ms for key in after.axes}
    axes = {key: replace(state, emitted_ms=told[key]) for key, state in after.axes.items()}
    return replace(after, axes=axes, cut=True)
