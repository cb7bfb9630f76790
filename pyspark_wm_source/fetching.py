"""Fetching ranges under `failOnDataLoss`: lost records fail the task, or are skipped and noted.

Rule (Spark's): a range wholly gone is skipped, one that begins before the log begins is read from there; no record is
given twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keyedwm.core.errors import DataLossError
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.errors import OffsetOutOfRangeError, UnknownTopicError
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
    """Read every range to its end, in offset order per range; raises DataLossError unless failOnDataLoss=false."""
    left = {i: FetchRange(r.channel.topic, r.channel.partition, r.start, r.end) for i, r in enumerate(ranges)}
    while left:
        indexes = sorted(left)
        try:
            for fetched in read_ranges(cluster, [left[i] for i in indexes], wanted, options.client.isolation):
                index = indexes[fetched.index]
                if fetched.done:
                    del left[index]
                else:
                    left[index] = left[index]._replace(start=fetched.next_offset)
                yield Chunk(index, fetched.records, fetched.done)
        except OffsetOutOfRangeError as error:
            _accept(str(error), error, options)
            left = {i: _behind_the_loss(part, error) for i, part in left.items()}
        except UnknownTopicError as error:
            _accept(str(error), DataLossError(error.message), options)
            left = {i: _behind_the_topic(part, cluster) for i, part in left.items()}


def _accept(what: str, error: DataLossError, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise error
    LOG.warning("%s; the lost records are skipped (failOnDataLoss=false)", what)


def _behind_the_loss(part: FetchRange, error: OffsetOutOfRangeError) -> FetchRange:
    if (part.topic, part.partition) != (error.topic, error.partition):
        return part
    if part.start < error.earliest < part.end:
        return part._replace(start=error.earliest)
    return part._replace(start=part.end)


def _behind_the_topic(part: FetchRange, cluster: Cluster) -> FetchRange:
    present = cluster.partitions([part.topic], missing_ok=True)
    return part if part.partition in present.get(part.topic, ()) else part._replace(start=part.end)
