"""What a user does whose checkpoint is not the one that the query left: words that neither lose nor double a row.

Rule: whoever follows a sentence of this file has each row once. A new checkpoint reads its input again, so it begins
behind what is published, and the offsets are printed; where they are unknown, or state would be missing, the sentence
offers no new checkpoint for this target.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from keyedwm.core.rows import is_of_operator, topic_partition
from pyspark_wm_sink.batch.batch_plan import BatchPlan
from pyspark_wm_sink.batch.record import Record

COPY = "an older copy of the checkpoint was restored, or two queries run from copies of one checkpoint"
FROM_THE_BEGINNING = "read the input from its beginning (startingOffsets=earliest)"


def starting_offsets(record: Record) -> str | None:
    """Return the option with which the input of a query begins behind its published batch, ready to paste.

    None if the record does not say that for every source, or if an operator's results are among the rows.
    """
    if any(is_of_operator(name) for name in record.channels):
        return None
    sources = _sources(record)
    if not sources or any(not source for source in sources):
        return None
    texts = [f"startingOffsets={_as_option(source)}" for source in sources if source]
    return " and, for its next source, ".join(texts)


def new_checkpoint(newest: Record | None, plan: BatchPlan | None, target: str) -> str:
    """Return how a query goes on with a new checkpoint; newest: the record of its newest batch in the target.

    target: what the query writes to, in a word: table or topic.
    """
    offsets = None if newest is None else starting_offsets(newest)
    if newest is None or offsets is None or (plan is not None and plan.is_stateful):
        return f"start with a new checkpoint and another {target}, and {FROM_THE_BEGINNING}"
    return (
        f"start with a new checkpoint that begins behind the published batch {newest.batch}: {offsets} "
        f"(-2 for partitions that are newer)"
    )


def begin_behind(newest: Record | None, plan: BatchPlan | None, target: str) -> str:
    """Return the ways on of a query whose checkpoint is older than what it has published; arguments as above."""
    return (
        f"if another one runs, stop this one, else restore the newest copy, or {new_checkpoint(newest, plan, target)}"
    )


def _sources(record: Record) -> list[Mapping[str, int] | None]:
    """How far each source was read; by barriers where the plan was not recorded."""
    if record.reads is not None and record.reads.sources is not None:
        return list(record.reads.sources)
    found: dict[str | None, dict[str, int]] = {}
    for name, channel in record.channels.items():
        if channel.offset is None:
            return []
        found.setdefault(channel.source, {})[name] = channel.offset
    return list(found.values())


def _as_option(ends: Mapping[str, int]) -> str:
    """Offsets in Spark's shape: topic → {partition → offset}."""
    shaped: dict[str, dict[str, int]] = {}
    for channel in sorted(ends, key=topic_partition):
        topic, partition = topic_partition(channel)
        shaped.setdefault(topic, {})[str(partition)] = ends[channel]
    return json.dumps(shaped, separators=(",", ":"))
