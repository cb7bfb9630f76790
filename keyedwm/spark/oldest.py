"""`oldest_offsets`: where a query with a store must begin anew to hold what it holds now (W53 of the requirements).

Rule: it reads the checkpoint as its last batch left it and changes nothing there. What it returns is kept elsewhere by
whoever wants to be able to begin anew: with the checkpoint it would be lost, too.
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING

from keyedwm.core.errors import OptionError
from keyedwm.spark.frames import require_session
from keyedwm.spark.held import held_messages, store_of
from keyedwm.spark.savepoint import offsets_of
from keyedwm.windows.store import held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def oldest_offsets(spark: SparkSession, checkpoint: str, name: str | None = None) -> str:
    """Return the `startingOffsets` with which a query in a new checkpoint comes to hold what this one holds.

    Of each partition the offset of the oldest message that its store holds, or the next one to be read; of windows that
    count rows the first one that was read, since they are counted from there. The new query may have another number of
    buckets, other aggregates or other windows. It speaks of windows that were gone once more, with what is left of
    them. checkpoint: of a query that has stopped between two batches. name: of the aggregate, if the query has several
    with a store. Raises InputError, OptionError and FormatError in one sentence.
    """
    require_session(spark, "oldest_offsets")
    found: dict[tuple[str, int], int] = {}
    _, sources = offsets_of(checkpoint)
    for source in sources:
        found.update({(tp.topic, tp.partition): channel.next_offset for tp, channel in source.channels.items()})
    operator, _ = store_of(spark, checkpoint, name)
    told = operator.told or {}
    if held.is_rows(told):
        begun = sorted((one for facts in operator.facts for one in facts["channels"]), key=itemgetter(2), reverse=True)
        oldest = {(topic, partition): first for topic, partition, first, _ in begun}
    else:
        messages = held_messages(spark, checkpoint, name)
        by = told["record"]
        rows = messages.groupBy(*by[:2]).agg({by[2]: "min"}).collect()
        oldest = {(topic, partition): offset for topic, partition, offset in rows}
    for channel, offset in oldest.items():
        if channel not in found:
            raise OptionError(
                f"{checkpoint}: the store holds messages of {channel[0]}-{channel[1]}, which no source of the query "
                "reads now: where it must begin is not known"
            )
        found[channel] = min(found[channel], offset)
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(found.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)
