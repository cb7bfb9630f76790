"""`spark.read.format("keyedwm")`: a bounded read of the records between two offsets of each partition.

Rule: there is no stream, so no watermark, no control rows and no committed offsets. Spark plans a frame once and runs
it often: the cuts between tasks stay the same, but `earliest` and `latest` mean the log ends when a task reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from keyedwm.core.axis import Counts
from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import shared
from keyedwm.runtime.worker import VersionChecked
from pyspark_wm_source.driver.resolve_offsets import assigned, resolve
from pyspark_wm_source.driver.splits import equal_ranges, groups_of, parts_of
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.start_offsets import EARLIEST, LATEST
from pyspark_wm_source.task.scan import scan
from pyspark_wm_source.values.offsets import CutLimits
from pyspark_wm_source.values.ranges import ChannelRange, Split

# No group and no key: a bounded read leaves no state behind.
_NOBODY = ""


class BatchReader(VersionChecked, DataSourceReader):
    """The batch source."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve both ends and cut the records between them into tasks."""
        options, cluster = self._options, shared(self._options.client)
        places = assigned(cluster, options.topics, running=False)
        first = resolve(cluster, options.start, places, EARLIEST)
        last = self._at_least_start(first, resolve(cluster, options.end, places, LATEST))
        limits = CutLimits(least_tasks=options.least_tasks, most_records=options.most_records)
        groups = groups_of(list(_ranges(first, last, limits)), limits, options.limits)
        return [
            Split(
                ranges=group,
                control=(),
                stamps=dict.fromkeys(options.axes),
                batch=0,
                channels=len(places),
                source=_NOBODY,
                group=_NOBODY,
                state_key=_NOBODY,
                now_ms=0,
            )
            for group in groups
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split on an executor."""
        split: Split = partition  # type: ignore[assignment]
        return scan(replace(split, ranges=self._as_of_now(split.ranges)), self._options, self._schema)

    def _at_least_start(
        self, first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return the ends; the present end at least at the log start.

        Kafka answers a lower last stable offset if records of an open transaction were deleted.
        """
        start, end = self._options.start, self._options.end
        return {
            tp: max(first[tp], offset)
            if start.word_of(tp, EARLIEST) == EARLIEST and end.word_of(tp, LATEST) == LATEST
            else offset
            for tp, offset in last.items()
        }

    def _as_of_now(self, ranges: Sequence[ChannelRange]) -> tuple[ChannelRange, ...]:
        """Return the ranges, with open outer ends replaced by the present ends of the log."""
        start, end = self._options.start, self._options.end
        cluster = shared(self._options.client)
        from_first = [r.channel for r in ranges if r.part == 0 and start.word_of(r.channel, EARLIEST) == EARLIEST]
        to_last = [r.channel for r in ranges if r.part == r.parts - 1 and end.word_of(r.channel, LATEST) == LATEST]
        firsts = cluster.earliest(from_first) if from_first else {}
        lasts = cluster.latest(to_last) if to_last else {}
        bounded = []
        for r in ranges:
            first = firsts.get(r.channel, r.start) if r.part == 0 else r.start
            last = lasts.get(r.channel, r.end) if r.part == r.parts - 1 else r.end
            bounded.append(replace(r, start=min(first, last), end=last))
        return tuple(bounded)


def _ranges(
    first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int], limits: CutLimits
) -> Iterator[ChannelRange]:
    sizes = [max(last[tp] - first[tp], 1) for tp in sorted(first)]
    parts = parts_of(sizes, limits)
    for tp, count in zip(sorted(first), parts, strict=True):
        if first[tp] > last[tp]:
            raise OptionError(
                f"{tp} would be read from offset {first[tp]} to {last[tp]}: its start lies behind its end"
            )
        for part, (start, end) in enumerate(equal_ranges(first[tp], last[tp], count)):
            yield ChannelRange(channel=tp, start=start, end=end, counts=Counts(), axes={}, part=part, parts=count)
