"""`oldest_offsets`: where a query with a store must begin anew to hold what it holds now (W53 of the requirements).

Rule: it reads the checkpoint as its last batch left it and changes nothing there. What it returns is kept elsewhere by
whoever wants to be able to begin anew: with the checkpoint it would be lost, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING

from keyedwm.core.errors import OptionError
from keyedwm.spark.api.savepoint import offsets_of
from keyedwm.spark.arguments import require_session
from keyedwm.spark.inspect.saved_store import SavedStore, saved_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def oldest_offsets(spark: SparkSession, checkpoint: str, name: str | None = None, *, side: str | None = None) -> str:
    """Return the `startingOffsets` with which a query in a new checkpoint comes to hold what this one holds.

    Of each partition the offset of the oldest message that its store holds, or the next one to be read; of windows that
    count rows the first one that was read, since they are counted from there. The new query may have another number of
    buckets, other aggregates or other windows. It speaks of windows that were gone once more, with what is left of
    them, and of a `window_join` it takes messages again that came too late for windows which the other side keeps.
    checkpoint: of a query that has stopped between two batches. name: of the aggregate, if the query has several with a
    store. side: of a `window_join` the side whose windows are meant; both are if it is left out, where they agree on
    one offset for each partition. Raises InputError, OptionError and FormatError in one sentence.
    """
    require_session(spark, "oldest_offsets")
    found: dict[tuple[str, int], int] = {}
    _, sources = offsets_of(checkpoint)
    for tp, channel in chain.from_iterable(source.channels.items() for source in sources):
        place = tp.topic, tp.partition
        found[place] = min(found.get(place, channel.next_offset), channel.next_offset)
    store = saved_store(spark, checkpoint, name)
    for (topic, partition), offset in _of_sides(store, store.sides if side is None else [side]).items():
        if (topic, partition) not in found:
            raise OptionError(
                f"{checkpoint}: the store holds messages of {topic}-{partition}, which no source of the query reads "
                "now: where it must begin is not known"
            )
        found[topic, partition] = min(found[topic, partition], offset)
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(found.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def _of_sides(store: SavedStore, sides: Sequence[str | None]) -> dict[tuple[str, int], int]:
    """Return what `_oldest` does of these sides together; windows of rows, which begin there, must begin as one."""
    found: dict[tuple[str, int], int] = {}
    for side in sides:
        for place, offset in _oldest(store.of(side)).items():
            before = found.setdefault(place, offset)
            if before != offset and store.windows.is_rows:
                raise OptionError(
                    f"{store.who}: both sides count the rows of {place[0]}-{place[1]}, one from offset {before} and "
                    f"the other from {offset}: give side={sides[0]!r} and side={sides[1]!r}, one after the other"
                )
            found[place] = min(before, offset)
    return found


def _oldest(store: SavedStore) -> dict[tuple[str, int], int]:
    """Return for each topic and partition where its records must be read from to have what is held again."""
    found: dict[tuple[str, int], int] = {}
    for of_bucket in store.each(methodcaller("oldest_offsets")):
        for place, offset in of_bucket.items():
            found[place] = min(offset, found.get(place, offset))
    return found
