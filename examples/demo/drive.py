"""Drives the queries through simulated time: a step's records, then wait until every query has dealt with them.

Rule: a step is visible to the queries as a whole, or the lag between the feeds would not be the one that is claimed: a
query that saw one feed's part of a step first would take the others' for a step late. Queries look at whole multiples
of TICK_MS and at no other time, so the loader writes half way between two ticks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from examples.demo.flights import ORIGINS
from examples.demo.load import Step, Topic
from examples.demo.queries import KEYEDWM, NATIVE, TICK_MS
from keyedwm.core.errors import OutOfTurnError
from pyspark_wm_source.values.offsets import QueryOffset

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)


@dataclass(slots=True)
class Trace:
    """The state after each step, all in ms: simulated time, watermarks by origin, the coalesced one, and Spark's."""

    step_ms: list[int] = field(default_factory=list)
    origins: dict[str, list[int | None]] = field(default_factory=lambda: {origin: [] for origin in ORIGINS})
    coalesced: list[int | None] = field(default_factory=list)
    native: list[int | None] = field(default_factory=list)


def drive(
    plan: Sequence[Step],
    last: Step,
    topic: Topic,
    queries: Mapping[str, StreamingQuery],
    report_step: Callable[[Step], None],
) -> Trace:
    """Plays all steps, then `last`, which is not traced; `report_step` is called after each step."""
    trace = Trace()
    for step in plan:
        _play(step, topic, queries)
        _note(trace, step, queries)
        report_step(step)
    _play(last, topic, queries)
    return trace


def _play(step: Step, topic: Topic, queries: Mapping[str, StreamingQuery]) -> None:
    if len(step.flights):
        tick_s = TICK_MS / 1000
        time.sleep((1.5 * tick_s - time.time() % tick_s) % tick_s)
        topic.write(step)
    for query in queries.values():
        query.processAllAvailable()


def _note(trace: Trace, step: Step, queries: Mapping[str, StreamingQuery]) -> None:
    """Reads what the sources and Spark themselves report."""
    trace.step_ms.append(step.end_ms)
    trace.native.append(_spark_watermark_ms(_last(queries[NATIVE])))
    offset = QueryOffset.from_json(end_offset(_last(queries[KEYEDWM])))
    trace.coalesced.append(offset.watermark_ms(0))
    axes_by_partition = {tp.partition: channel.axes for tp, channel in offset.channels.items()}
    for own, origin in enumerate(ORIGINS):
        axis = axes_by_partition.get(own, {}).get(0)
        trace.origins[origin].append(None if axis is None else axis.emitted_ms)


def rows_in(query: StreamingQuery) -> int:
    """The records that the query has read: where its source stands, summed over the partitions (they begin at 0)."""
    end = end_offset(_last(query))
    topics = end.get("offsets", end)  # ours carries Spark's own shape inside
    return sum(offset for partitions in topics.values() for offset in partitions.values())


def seconds(query: StreamingQuery) -> float:
    """Time spent in micro-batches."""
    return sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000


def end_offset(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Where the query's only source stands."""
    offset = progress["sources"][0]["endOffset"]
    return json.loads(offset) if isinstance(offset, str) else offset


def _last(query: StreamingQuery) -> Mapping[str, Any]:
    progress = query.lastProgress
    if progress is None:
        raise OutOfTurnError(f"query {query.name} reports no progress though it has dealt with a step")
    return progress


def _spark_watermark_ms(progress: Mapping[str, Any]) -> int | None:
    """Spark writes the epoch while it has no watermark."""
    timestamp = progress["eventTime"].get("watermark")
    if timestamp is None:
        return None
    ms = (datetime.fromisoformat(timestamp.replace("Z", "+00:00")) - _EPOCH) // _MS
    return ms or None
