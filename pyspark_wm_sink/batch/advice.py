"""Advice for a user who has lost the query's checkpoint or restored an older one.

Rule: a user who follows a sentence of this file loses and duplicates no row. With a new checkpoint the query would read
its input again, so it must start after the published offsets; the sentence names them. If the offsets are unknown, or
state would be missing, the sentence offers no new checkpoint for this target.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.core.rows import is_of_operator, topic_partition
from pyspark_wm_sink.batch.batch_plan import BatchPlan
from pyspark_wm_sink.batch.record import Reads, Record

# A fence request may be answered so late that the client repeats it. The brokers can then carry out the first request
# after the second, and this run fences itself.
NO_OTHER = "if there is no other run, a request of this one reached the brokers late: start the query again"
COPY = "an older copy of the checkpoint was restored, or two queries run from copies of one checkpoint"
FROM_THE_BEGINNING = "read the input from its beginning (startingOffsets=earliest)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """How far a query has published. batch: its newest batch in the target. operators: those whose results it holds."""

    batch: int | None
    reads: Reads
    operators: frozenset[str] = frozenset()

    @staticmethod
    def of(record: Record | None) -> Published | None:
        """Return how far a record has published; by its barriers if the plan was not recorded."""
        if record is None:
            return None
        operators = frozenset(name.rpartition("#")[0] for name in record.channels if is_of_operator(name))
        reads = record.reads
        if reads is None or reads.sources is None:
            reads = Reads(sources=_by_barriers(record), is_stateful=reads is not None and reads.is_stateful)
        return Published(batch=record.batch, reads=reads, operators=operators)

    def starting_offsets(self) -> str | None:
        """Return the option with which the input begins behind all published rows, ready to paste.

        None if the published offsets of a source are unknown, or operators would lack their state.
        """
        sources = self.reads.sources
        if not sources or not all(sources) or self.operators or self.reads.is_stateful:
            return None
        return " and, for its next source, ".join(f"startingOffsets={_as_option(of)}" for of in sources if of)


def new_checkpoint(published: Published | None, plan: BatchPlan | None, target: str) -> str:
    """Return how a query continues with a new checkpoint; plan: the plan of the present batch.

    target: what the query writes to, table or topic.
    """
    offsets = None if published is None else published.starting_offsets()
    if published is None or offsets is None or (plan is not None and plan.is_stateful):
        return f"start with a new checkpoint and another {target}, and {FROM_THE_BEGINNING}"
    return (
        f"start with a new checkpoint that begins behind the published batch {published.batch}: {offsets} "
        f"(-2 for partitions that are newer)"
    )


def behind_others(published: Published | None) -> str:
    """Return advice for a new query that would read again what another has published: where to start.

    Empty if the offsets are unknown.

    The checkpoint of the rejected run has planned its first batch, and Spark ignores new offsets there.
    """
    offsets = None if published is None else published.starting_offsets()
    if offsets is None:
        return ""
    return f"start behind those rows ({offsets}) with a new checkpoint, since that of this run keeps its offsets, or "


def begin_behind(published: Published | None, plan: BatchPlan | None, target: str) -> str:
    """Return the advice for a query whose checkpoint is older than its published batches; arguments as above."""
    way_on = new_checkpoint(published, plan, target)
    return f"if another one runs, stop this one, else restore the newest copy, or {way_on}"


def _by_barriers(record: Record) -> tuple[Mapping[str, int], ...] | None:
    """How far each source was read by the barriers of its channels; None if one has no offset."""
    by_source: dict[str | None, dict[str, int]] = {}
    for name, channel in record.channels.items():
        if is_of_operator(name) or channel.offset is None:
            return None
        by_source.setdefault(channel.source, {})[name] = channel.offset
    return tuple(by_source.values()) or None


def _as_option(ends: Mapping[str, int]) -> str:
    """Offsets in Spark's shape: topic → {partition → offset}."""
    shaped: dict[str, dict[str, int]] = {}
    for channel in sorted(ends, key=topic_partition):
        topic, partition = topic_partition(channel)
        shaped.setdefault(topic, {})[str(partition)] = ends[channel]
    return json.dumps(shaped, separators=(",", ":"))
