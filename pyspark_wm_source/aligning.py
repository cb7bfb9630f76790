"""Where a batch ends when snapshots cross jobs: `propagate=true` under exactly-once (DESIGN rule 12).

Rule: a batch ends behind the barriers of one snapshot of each topic, in all of its partitions. Rows behind a barrier
wait until every partition shows that barrier, so what a batch holds is whole snapshots of the query upstream. Barriers
stand at the ends of that query's batches, so they are looked for backwards from the log's end, which reads little.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.core.inline import HEADER, Cut, decode_cut
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.errors import OffsetOutOfRangeError
from keyedwm.kafka.fetch import Range, read_ranges
from keyedwm.kafka.records import Wanted
from keyedwm.kafka.values import Isolation, TopicPartition
from pyspark_wm_source.plan import shared_out
from pyspark_wm_source.propagated import Reached, place

LOG = logging.getLogger("keyedwm.source")
_FIRST_LOOK = 64  # offsets: the control rows of a batch, and the markers behind them
_GROWTH = 4
_BARRIERS = Wanted(key=False, value=False, headers=False, apart=HEADER)

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """A barrier, and the offset behind it."""

    cut: Cut
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A channel when a batch is planned: next offset, log end, and the last barrier read."""

    position: int
    end: int
    reached: Reached | None


class Aligner:
    """Finds the ends of batches; keeps the last answer, since planning asks again and again while nothing is new."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: tuple[Mapping[TopicPartition, Standing], dict[TopicPartition, int]] | None = None

    def ends(self, channels: Mapping[TopicPartition, Standing], limit: int | None) -> dict[TopicPartition, int]:
        """Return where each channel's range ends: behind a barrier, or where it stands.

        limit: how many offsets are wanted at most; a snapshot is not cut, so it can be more.
        """
        if self._kept is not None and self._kept[0] == channels:
            return self._kept[1]
        shares = shared_out({tp: max(c.end - c.position, 0) for tp, c in channels.items()}, limit)
        found = self._candidates(channels, shares)
        ends = {tp: channel.position for tp, channel in channels.items()}
        for topic in sorted({tp.topic for tp in channels}):
            own = {tp: channel for tp, channel in channels.items() if tp.topic == topic}
            ends |= self._of_topic(own, {tp: found[tp] for tp in own if tp in found})
        self._kept = (dict(channels), ends)
        return ends

    def _candidates(
        self, channels: Mapping[TopicPartition, Standing], shares: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Found]:
        """The newest barrier within each channel's share, else the next one behind it."""
        found: dict[TopicPartition, Found] = {}
        spans = {tp: (c.position, c.position + shares[tp]) for tp, c in channels.items() if c.position < c.end}
        while spans:
            found |= newest_barriers(self._cluster, spans)
            spans = {
                tp: (high, min(channels[tp].end, high + 2 * (high - channels[tp].position)))
                for tp, (_, high) in spans.items()
                if tp not in found and high < channels[tp].end
            }
        for tp, at in found.items():
            reached = channels[tp].reached
            if reached is not None:
                reached.check_query(at.cut, place(tp, at.end - 1))
        return found

    def _of_topic(
        self, channels: Mapping[TopicPartition, Standing], found: dict[TopicPartition, Found]
    ) -> dict[TopicPartition, int]:
        """The ends behind the newest snapshot whose barrier every channel shows."""
        shown = []
        for tp, channel in sorted(channels.items()):
            if tp in found:
                shown.append(found[tp].cut.snapshot)
            elif channel.reached is not None:
                shown.append(channel.reached.snapshot)
            elif channel.position < channel.end:
                LOG.warning(
                    "%s: the records from offset %d on wait for a barrier, the topic holds none for them yet; with "
                    "propagate=true it must be written with controlRows=inline", tp, channel.position,
                )  # fmt: skip
                return {}
        snapshot = min(shown, default=None)
        behind = {tp: (channels[tp].position, at.end) for tp, at in found.items() if at.cut.snapshot != snapshot}
        aligned = {tp: at for tp, at in found.items() if tp not in behind}
        if behind and snapshot is not None:
            aligned |= newest_barriers(self._cluster, behind, at_most=snapshot)
        return {tp: at.end for tp, at in aligned.items()}


def newest_barriers(
    cluster: Cluster, spans: Mapping[TopicPartition, Span], *, at_most: int | None = None
) -> dict[TopicPartition, Found]:
    """Return the last barrier in each span [low, high), of a snapshot up to `at_most`; looks backwards."""
    found: dict[TopicPartition, Found] = {}
    width = _FIRST_LOOK
    left = {tp: span for tp, span in spans.items() if span[0] < span[1]}
    while left:
        looks = {tp: (max(low, high - width), high) for tp, (low, high) in left.items()}
        found |= _last_barriers(cluster, looks, at_most)
        left = {tp: (left[tp][0], first) for tp, (first, _) in looks.items() if tp not in found and first > left[tp][0]}
        width *= _GROWTH
    return found


def _last_barriers(
    cluster: Cluster, looks: dict[TopicPartition, Span], at_most: int | None
) -> dict[TopicPartition, Found]:
    found: dict[TopicPartition, Found] = {}
    while True:
        ranges = [Range(tp.topic, tp.partition, low, high) for tp, (low, high) in sorted(looks.items())]
        try:
            for part in read_ranges(cluster, ranges, _BARRIERS, Isolation.READ_COMMITTED):
                for record in part.records.apart:
                    cut = decode_cut(record.header, record.value, place(part.where, record.offset))
                    if cut is not None and (at_most is None or cut.snapshot <= at_most):
                        found[part.where] = Found(cut, record.offset + 1)
        except OffsetOutOfRangeError as error:
            tp = TopicPartition(error.topic, error.partition)
            low, high = looks[tp]
            if not low < error.earliest <= high:
                raise
            # What is gone holds no barrier any more; whether that is a loss is judged where rows are read.
            looks = {**looks, tp: (error.earliest, high)}
            continue
        return found
