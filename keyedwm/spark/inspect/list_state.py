"""`held_windows`, `held_messages`: the content of the windows of a query with a store. `oldest_offsets`: where a
new query starts to read this content again.

Rule: Spark's own state reader reads the checkpoint and changes nothing; the query may be stopped or run, the answer is
that of its last committed batch. A user who wants to restart stores the offsets elsewhere: with the checkpoint they
would be lost, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.operators.messages.read_only_store import CHANNEL, COMPLETE, COUNTS, EDGES, check_by_key
from keyedwm.spark.api.savepoint import offsets_of
from keyedwm.spark.arguments import require_session
from keyedwm.spark.inspect.saved_store import SavedStore, saved_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How the parts of a window in several buckets are put together.
_TOGETHER = dict(zip((*COUNTS, COMPLETE), ("min", "max", "sum", "sum", "all"), strict=True))


def held_windows(
    spark: SparkSession, checkpoint: str, name: str | None = None, *, by_key: bool = False, side: str | None = None
) -> DataFrame:
    """Return the windows that an aggregate with a store keeps: one row for each window, topic and partition.

    Of windows that count a key's messages: one for each key, topic and partition, which is complete next. Of sessions
    and windows on demand: one for each of them, topic and partition, beside the key's columns.
    by_key: one row also for each key, with the key's columns first, which reads the messages. A key that is called as a
    column of the listing is `key_NAME` there.
    `window` is start and end, or of rows the first and the last offset, as in the aggregate's results. checkpoint: of
    the query. name: of the aggregate, needed if the query has several with a store. side: of a `window_join` the name
    of the side whose messages are asked for. Raises InputError, OptionError and FormatError in one sentence.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    require_session(spark, "held_windows")
    store = saved_store(spark, checkpoint, name).of(side)
    listed = methodcaller("windows", by_key=by_key)
    if by_key:
        check_by_key(store.windows)
    if by_key or store.windows.is_listed_by_messages:
        listing = store.frame(listed)
    else:
        windows = together(store.each(listed))
        listing = spark.createDataFrame(windows, from_arrow_schema(windows.schema))
    return _with_window(listing, of_rows=store.windows.is_rows)


def together(tables: list[pa.Table]) -> pa.Table:
    """Return the windows of all buckets in order of end, topic and partition; of all keys together each is one."""
    windows = pa.concat_tables(tables)
    if windows.column_names[0] == EDGES[0]:
        windows = windows.group_by([*EDGES, *CHANNEL], use_threads=False).aggregate(list(_TOGETHER.items()))
        windows = windows.rename_columns([*EDGES, *CHANNEL, *_TOGETHER])
    return windows.sort_by([(column, "ascending") for column in ("end", "start", *CHANNEL)])


def _with_window(windows: DataFrame, *, of_rows: bool) -> DataFrame:
    """Return windows as they are shown: their edges together."""
    from pyspark.sql import functions as F

    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    if of_rows:
        window = F.struct(F.col("start").alias("first_offset"), (F.col("end") - 1).alias("last_offset"))
    names = windows.columns[: -len((*EDGES, *CHANNEL, *COUNTS, COMPLETE))]
    keys = ["`{}`".format(name.replace("`", "``")) for name in names]
    return windows.select(*keys, window.alias("window"), *CHANNEL, *COUNTS, COMPLETE)


def held_messages(
    spark: SparkSession, checkpoint: str, name: str | None = None, *, side: str | None = None
) -> DataFrame:
    """Return the messages that an aggregate with a store keeps, with all their columns, in no order.

    checkpoint, name, side: as for `held_windows`.
    """
    require_session(spark, "held_messages")
    return saved_store(spark, checkpoint, name).of(side).frame(methodcaller("messages"))


def oldest_offsets(spark: SparkSession, checkpoint: str, name: str | None = None, *, side: str | None = None) -> str:
    """Return the `startingOffsets` with which a query in a new checkpoint reads the content of this store again.

    Of each partition the offset of the oldest message that its store holds, or the next one to be read; of windows that
    count rows the first one that was read, since they are counted from there. The new query may have another number of
    buckets, other aggregates or other windows. It emits windows again that were gone, with the rest of their messages.
    A `window_join` accepts messages again that were too late for windows which the other side keeps. checkpoint: of a
    query that has stopped between two batches. name: of the aggregate, if the query has several with a store. side: of
    a `window_join` the side whose windows are meant; without it both are, if they agree on one offset for each
    partition. Raises InputError, OptionError and FormatError in one sentence.
    """
    require_session(spark, "oldest_offsets")
    offsets: dict[tuple[str, int], int] = {}
    _, sources = offsets_of(checkpoint)
    for tp, channel in chain.from_iterable(source.channels.items() for source in sources):
        place = tp.topic, tp.partition
        offsets[place] = min(offsets.get(place, channel.next_offset), channel.next_offset)
    store = saved_store(spark, checkpoint, name)
    for (topic, partition), offset in _of_sides(store, store.sides if side is None else [side]).items():
        if (topic, partition) not in offsets:
            raise OptionError(
                f"{checkpoint}: the store holds messages of {topic}-{partition}, which no source of the query reads "
                "now: where it must begin is not known"
            )
        offsets[topic, partition] = min(offsets[topic, partition], offset)
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def _of_sides(store: SavedStore, sides: Sequence[str | None]) -> dict[tuple[str, int], int]:
    """Return what `_oldest` does of these sides together; windows of rows, which begin there, must begin as one."""
    offsets: dict[tuple[str, int], int] = {}
    for side in sides:
        for place, offset in _oldest(store.of(side)).items():
            before = offsets.setdefault(place, offset)
            if before != offset and store.windows.is_rows:
                raise OptionError(
                    f"{store.who}: both sides count the rows of {place[0]}-{place[1]}, one from offset {before} and "
                    f"the other from {offset}: give side={sides[0]!r} and side={sides[1]!r}, one after the other"
                )
            offsets[place] = min(before, offset)
    return offsets


def _oldest(store: SavedStore) -> dict[tuple[str, int], int]:
    """Return for each topic and partition where its records must be read from to have what is held again."""
    offsets: dict[tuple[str, int], int] = {}
    for of_bucket in store.each(methodcaller("oldest_offsets")):
        for place, offset in of_bucket.items():
            offsets[place] = min(offset, offsets.get(place, offset))
    return offsets
