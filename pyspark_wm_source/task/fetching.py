"""Fetching ranges under `failOnDataLoss`: lost records fail the task, or are skipped and noted.

Rule (Spark's): a range wholly gone is skipped, one that begins before the log begins is read from there; no record is
given twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from keyedwm.core.errors import DataLossError, KeyedwmError
from keyedwm.kafka.client.errors import (
    CorruptRecordError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownTopicError,
)
from keyedwm.kafka.client.values import Isolation
from keyedwm.kafka.records.read import ColumnSelection, Records
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.ranges import ChannelRange

LOG = logging.getLogger("keyedwm.source")


class Chunk(NamedTuple):
    """Some records of range number `which`, following those before; `done` exactly once per range."""

    which: int
    records: Records
    done: bool


OnLoss = Callable[[KeyedwmError], None]


def by_option(options: SourceOptions) -> OnLoss:
    """Return the handler of `failOnDataLoss`: raise the loss, or note it and go on."""

    def on_loss(error: KeyedwmError) -> None:
        if options.fail_on_data_loss:
            raise error
        LOG.warning("%s; it is skipped (failOnDataLoss=false)", error.message)

    return on_loss


def fetch(
    cluster: Cluster, ranges: Sequence[ChannelRange], wanted: ColumnSelection, isolation: Isolation, on_loss: OnLoss
) -> Iterator[Chunk]:
    """Read every range to its end, in offset order per range.

    on_loss: is told each DataLossError and CorruptRecordError; where it does not raise, just what is lost or damaged is
    skipped.
    """
    # What is left of each range, in pieces: a damaged batch makes two of one.
    left = {i: [_offset_range(r)] for i, r in enumerate(ranges)}
    while left:
        indexes = sorted(left)
        try:
            for fetched in read_ranges(cluster, [left[i][0] for i in indexes], wanted, isolation):
                index = indexes[fetched.index]
                left[index][0] = left[index][0]._replace(start=fetched.next_offset)
                if fetched.done:
                    del left[index][0]
                done = not left[index]
                if done:
                    del left[index]
                yield Chunk(index, fetched.records, done)
        except OffsetOutOfRangeError as error:
            on_loss(error)
            left = {i: [_behind_the_loss(part, error) for part in parts] for i, parts in left.items()}
        except UnknownTopicError as error:
            on_loss(DataLossError(error.message))
            left = {i: [_behind_the_topic(part, cluster) for part in parts] for i, parts in left.items()}
        except TopicRecreatedError as error:
            on_loss(error)
            left = {i: [_behind_the_recreated(part, error.topic) for part in parts] for i, parts in left.items()}
        except LogTruncatedError as error:
            on_loss(error)  # what follows is read from the log as it is now
        except CorruptRecordError as error:
            if error.next_offset is None:
                raise
            on_loss(error)
            left = {i: _around_the_damage(parts, error, error.next_offset) for i, parts in left.items()}


def _offset_range(r: ChannelRange) -> OffsetRange:
    topic_id = None if r.topic_id is None else UUID(r.topic_id)
    return OffsetRange(r.channel.topic, r.channel.partition, r.start, r.end, topic_id)


def _behind_the_loss(part: OffsetRange, error: OffsetOutOfRangeError) -> OffsetRange:
    if (part.topic, part.partition) != (error.topic, error.partition):
        return part
    if part.start < error.earliest < part.end:
        return part._replace(start=error.earliest)
    return part._replace(start=part.end)


def _behind_the_topic(part: OffsetRange, cluster: Cluster) -> OffsetRange:
    present = cluster.partitions([part.topic], missing_ok=True)
    return part if part.partition in present.get(part.topic, ()) else part._replace(start=part.end)


def _behind_the_recreated(part: OffsetRange, topic: str) -> OffsetRange:
    """Nothing is left of a range of the deleted topic: the new one's records have no place in it."""
    return part._replace(start=part.end) if part.topic == topic else part


def _around_the_damage(parts: list[OffsetRange], error: CorruptRecordError, behind: int) -> list[OffsetRange]:
    """Cut the damaged batch out of the piece being read."""
    first, *rest = parts
    if (first.topic, first.partition) != (error.topic, error.partition):
        return parts
    before = [first._replace(end=error.offset)] if first.start < error.offset < first.end else []
    return [*before, first._replace(start=min(behind, first.end)), *rest]
