"""Logs that lost records which were read, even if they have grown again: an unclean leader election (KIP-320).

Rule: only a change of leaders can truncate a log. Only then the planner asks where the epoch of the last planning ends
in the present log. A position behind that end has read lost records. The epoch of a planning is at least that
of every record before the position. So a log that lost nothing never counts as truncated. Some servers answer with a
wrong end, so the record before the position decides.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.values.offsets import Channel, QueryOffset, RetiredChannel

LOG = logging.getLogger("keyedwm.source")
Epochs = Mapping[TopicPartition, int | None]


class Truncation(NamedTuple):
    """A log that was truncated to `end`; it was read up to `position` in leader epoch `epoch`."""

    channel: TopicPartition
    position: int
    epoch: int
    end: int


class TruncationCheck:
    """Asks once about each change of leaders that turns out to have lost nothing."""

    def __init__(self) -> None:
        # Channel → position, leader epoch before and now.
        self._proven: dict[TopicPartition, tuple[int, int, int]] = {}

    def find(
        self, cluster: Cluster, start: QueryOffset, epochs: Epochs, recreated: Collection[TopicPartition]
    ) -> Iterator[Truncation]:
        """Yield the logs that were truncated since `start` was planned. epochs: the present leaders' epochs."""
        changed: dict[TopicPartition, tuple[int, int, int]] = {}
        for tp, channel in _stood(start).items():
            before, now = channel.leader_epoch, epochs.get(tp)
            if before is not None and now is not None and before != now and tp not in recreated:
                changed[tp] = channel.next_offset, before, now
        changed_leaders = {tp: before for tp, (_, before, _) in changed.items() if self._proven.get(tp) != changed[tp]}
        ends = cluster.epoch_ends(changed_leaders) if changed_leaders else {}
        short = {tp: changed[tp][:2] for tp, end in ends.items() if end is not None and end < changed[tp][0]}
        losses = cluster.lost_records(short) if short else set()
        for tp, end in sorted(ends.items()):
            position, before, _ = changed[tp]
            if end is not None and tp in losses:
                yield Truncation(tp, position, before, end)
                continue
            self._proven[tp] = changed[tp]
            if tp in short:
                LOG.warning(
                    "the brokers answer that leader epoch %d of %s ends at %s, but its log lost no record before the "
                    "next offset %d: the answer is ignored", before, tp, end, position,
                )  # fmt: skip


def not_behind(epochs: Epochs, start: QueryOffset, recreated: Collection[TopicPartition]) -> Epochs:
    """Return the leader epochs; the known one if a deposed leader has answered (KAFKA-7703) or the answer has none."""
    latest = dict(epochs)
    for tp, channel in _stood(start).items():
        known, now = channel.leader_epoch, epochs.get(tp)
        if known is not None and tp in epochs and tp not in recreated and (now is None or now < known):
            latest[tp] = known
    return latest


def _stood(start: QueryOffset) -> dict[TopicPartition, Channel | RetiredChannel]:
    """Return the channels that were read, also missing ones: their logs may have been truncated meanwhile."""
    return {**start.retired, **start.channels}
