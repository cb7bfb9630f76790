"""Fetching ranges under `failOnDataLoss`: lost records fail the task, or are skipped and noted.

Rule (Spark's): a range wholly gone is skipped, one that begins before the log begins is read from there; no record is
given twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keyedwm.core.errors import DataLossError, KeyedwmError
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.errors import CorruptRecordError, OffsetOutOfRangeError, UnknownTopicError
from keyedwm.kafka.fetch import Range as FetchRange
from keyedwm.kafka.fetch import read_ranges
from keyedwm.kafka.records import Records, Wanted
from pyspark_wm_source.channel import Range
from pyspark_wm_source.options import SourceOptions

LOG = logging.getLogger("keyedwm.source")


class Chunk(NamedTuple):
    """Some records of range number `which`, following those before; `done` exactly once per range."""

    which: int
    records: Records
    done: bool


def fetch(cluster: Cluster, ranges: Sequence[Range], wanted: Wanted, options: SourceOptions) -> Iterator[Chunk]:
    """Read every range to its end, in offset order per range.

    Raises DataLossError or CorruptRecordError; with failOnDataLoss=false just what is lost or damaged is skipped.
    """
    # What is left of each range, in pieces: a damaged batch makes two of one.
    left = {i: [FetchRange(r.channel.topic, r.channel.partition, r.start, r.end)] for i, r in enumerate(ranges)}
    while left:
        indexes = sorted(left)
        try:
            for fetched in read_ranges(cluster, [left[i][0] for i in indexes], wanted, options.client.isolation):
                index = indexes[fetched.index]
                left[index][0] = left[index][0]._replace(start=fetched.next_offset)
                if fetched.done:
                    del left[index][0]
                done = not left[index]
                if done:
                    del left[index]
                yield Chunk(index, fetched.records, done)
        except OffsetOutOfRangeError as error:
            _accept(error, error, options)
            left = {i: [_behind_the_loss(part, error) for part in parts] for i, parts in left.items()}
        except UnknownTopicError as error:
            _accept(error, DataLossError(error.message), options)
            left = {i: [_behind_the_topic(part, cluster) for part in parts] for i, parts in left.items()}
        except CorruptRecordError as error:
            if error.next_offset is None:
                raise
            _accept(error, error, options)
            left = {i: _around_the_damage(parts, error, error.next_offset) for i, parts in left.items()}


def _accept(what: KeyedwmError, error: KeyedwmError, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise error
    LOG.warning("%s; it is skipped (failOnDataLoss=false)", what.message)


def _behind_the_loss(part: FetchRange, error: OffsetOutOfRangeError) -> FetchRange:
    if (part.topic, part.partition) != (error.topic, error.partition):
        return part
    if part.start < error.earliest < part.end:
        return part._replace(start=error.earliest)
    return part._replace(start=part.end)


def _behind_the_topic(part: FetchRange, cluster: Cluster) -> FetchRange:
    present = cluster.partitions([part.topic], missing_ok=True)
    return part if part.partition in present.get(part.topic, ()) else part._replace(start=part.end)


def _around_the_damage(parts: list[FetchRange], error: CorruptRecordError, behind: int) -> list[FetchRange]:
    """Cut the damaged batch out of the piece being read."""
    first, *rest = parts
    if (first.topic, first.partition) != (error.topic, error.partition):
        return parts
    before = [first._replace(end=error.offset)] if first.start < error.offset < first.end else []
    return [*before, first._replace(start=min(behind, first.end)), *rest]
