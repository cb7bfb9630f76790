"""Fetching ranges under `failOnDataLoss`: lost records fail the task, or are skipped and noted.

Rule (Spark's): a range that is wholly deleted is skipped. A range that begins before the log is read from the log's
beginning. No record is returned twice.
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
    """The next records of range number `range_index`. done: true exactly once per range, at its end."""

    range_index: int
    records: Records
    done: bool


OnLoss = Callable[[KeyedwmError], None]


def by_option(options: SourceOptions) -> OnLoss:
    """Return the handler of `failOnDataLoss`: it raises the loss, or logs it and continues."""

    def on_loss(error: KeyedwmError) -> None:
        if options.fail_on_data_loss:
            raise error
        LOG.warning("%s; it is skipped (failOnDataLoss=false)", error.message)

    return on_loss


def fetch(
    cluster: Cluster, ranges: Sequence[ChannelRange], selection: ColumnSelection, isolation: Isolation, on_loss: OnLoss
) -> Iterator[Chunk]:
    """Read every range to its end, in offset order per range.

    on_loss: called with each DataLossError and CorruptRecordError. If it does not raise, only lost and damaged records
    are skipped.
    """
    # The unread pieces of each range: a damaged batch cuts a piece in two.
    pieces = {i: [_offset_range(r)] for i, r in enumerate(ranges)}
    while pieces:
        indexes = sorted(pieces)
        try:
            for fetched in read_ranges(cluster, [pieces[i][0] for i in indexes], selection, isolation):
                index = indexes[fetched.index]
                pieces[index][0] = pieces[index][0]._replace(start=fetched.next_offset)
                if fetched.done:
                    del pieces[index][0]
                done = not pieces[index]
                if done:
                    del pieces[index]
                yield Chunk(index, fetched.records, done)
        except OffsetOutOfRangeError as error:
            on_loss(error)
            pieces = {i: [_after_the_loss(part, error) for part in parts] for i, parts in pieces.items()}
        except UnknownTopicError as error:
            on_loss(DataLossError(error.message))
            pieces = {i: [_unless_deleted(part, cluster) for part in parts] for i, parts in pieces.items()}
        except TopicRecreatedError as error:
            on_loss(error)
            pieces = {i: [_unless_recreated(part, error.topic) for part in parts] for i, parts in pieces.items()}
        except LogTruncatedError as error:
            on_loss(error)  # what follows is read from the log as it is now
        except CorruptRecordError as error:
            if error.next_offset is None:
                raise
            on_loss(error)
            pieces = {i: _around_the_damage(parts, error, error.next_offset) for i, parts in pieces.items()}


def _offset_range(r: ChannelRange) -> OffsetRange:
    topic_id = None if r.topic_id is None else UUID(r.topic_id)
    return OffsetRange(r.channel.topic, r.channel.partition, r.start, r.end, topic_id)


def _after_the_loss(part: OffsetRange, error: OffsetOutOfRangeError) -> OffsetRange:
    if (part.topic, part.partition) != (error.topic, error.partition):
        return part
    if part.start < error.earliest < part.end:
        return part._replace(start=error.earliest)
    return part._replace(start=part.end)


def _unless_deleted(part: OffsetRange, cluster: Cluster) -> OffsetRange:
    present = cluster.partitions([part.topic], missing_ok=True)
    return part if part.partition in present.get(part.topic, ()) else part._replace(start=part.end)


def _unless_recreated(part: OffsetRange, topic: str) -> OffsetRange:
    """Return an empty range for the deleted topic: records of the new topic are not part of it."""
    return part._replace(start=part.end) if part.topic == topic else part


def _around_the_damage(parts: list[OffsetRange], error: CorruptRecordError, next_offset: int) -> list[OffsetRange]:
    """Cut the damaged batch out of the piece being read."""
    first, *rest = parts
    if (first.topic, first.partition) != (error.topic, error.partition):
        return parts
    before = [first._replace(end=error.offset)] if first.start < error.offset < first.end else []
    return [*before, first._replace(start=min(next_offset, first.end)), *rest]
