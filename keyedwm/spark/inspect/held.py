"""`held_windows` and `held_messages`: what the windows of a query with a store hold, read from its checkpoint.

Rule: Spark's own state reader reads; the query may be stopped or run, the answer is that of its last committed batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.operators.messages import held, held_by_key, held_keys, held_on_demand, held_sessions
from keyedwm.operators.messages.join import held as held_join
from keyedwm.operators.messages.listed_keys import key_columns, shown_names
from keyedwm.operators.messages.opened_windows import OPENED
from keyedwm.savepoint import OperatorState
from keyedwm.spark.arguments import require_session
from keyedwm.spark.inspect.held_store import held_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_WINDOWS = (
    "window struct<start timestamp, end timestamp>, topic string, partition int, first_offset bigint, "
    "last_offset bigint, messages bigint, bytes bigint, is_complete boolean"
)


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
    operator, blobs = held_store(spark, checkpoint, name).of(side)
    if by_key:
        return _by_key(operator, blobs)
    if held.is_on_demand(operator.told or {}):
        return _on_demand(operator, blobs)
    found: dict[int, dict[str, bytes]] = {number: {} for number in range(len(operator.facts))}
    for row in blobs.where(_begins(held.INDEX)).collect():
        found[row.bucket][row.name] = bytes(row.blob)
    told = operator.told or {}
    if held_sessions.of_sessions(told):
        sessions = held_sessions.windows(told, zip(operator.facts, found.values(), strict=True))
        if sessions is None:
            return spark.createDataFrame([], _WINDOWS)
        mine = held_join.sessions_of(told, sessions) if held_join.is_half(told) else sessions
        return _shown(told, spark.createDataFrame(mine, from_arrow_schema(mine.schema)))
    listed = held.windows(told, zip(operator.facts, found.values(), strict=True))
    edges_and_rest = "start bigint, end bigint, " + _WINDOWS.partition(">, ")[2]
    return _shown({**told, "by": []}, spark.createDataFrame([astuple(one) for one in listed], edges_and_rest))


def _shown(told: Mapping[str, Any], found: DataFrame) -> DataFrame:
    """Return windows as they are shown: the keys by their names, the edges together."""
    from pyspark.sql import functions as F

    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    if held.is_rows(told):
        window = F.struct(F.col("start").alias("first_offset"), (F.col("end") - 1).alias("last_offset"))
    others = ["window", *held_by_key.CHANNEL, *held_by_key.ADDED, held_by_key.COMPLETE]
    keys = [F.col(column).alias(name) for column, name in shown_names(told, others).items()]
    return found.withColumn("window", window).select(*keys, *others)


def _by_key(operator: OperatorState, blobs: DataFrame) -> DataFrame:
    """Return the windows of each key; what the blobs of a window tell is added up."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    told = operator.told or {}
    held_by_key.check_lists_keys(told)
    mine = blobs.where(F.col("name").startswith(held.MESSAGES)).select("bucket", "name", "blob")
    first = mine.first()
    if first is None:
        return blobs.sparkSession.createDataFrame([], _WINDOWS)
    parts = _Parts(told, operator.facts)
    schema = parts.of(first.bucket, first.name, bytes(first.blob)).schema
    keys = key_columns(told)
    found = (
        mine.mapInArrow(parts, from_arrow_schema(schema))
        .groupBy(*keys, *held_by_key.EDGES, *held_by_key.CHANNEL)
        .agg(
            F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"),
            F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"),
            F.bool_and("is_complete").alias("is_complete"),
        )
    )  # fmt: skip
    return _shown(told, found)


def _on_demand(operator: OperatorState, blobs: DataFrame) -> DataFrame:
    """Return windows on demand, each key its own; which messages are in them is found bucket by bucket."""
    from pyspark.sql.pandas.types import from_arrow_schema

    mine = blobs.where(_begins(held_on_demand.BLOBS)).select("bucket", "name", "blob")
    first = mine.where(_begins([OPENED])).first()
    if first is None:
        return blobs.sparkSession.createDataFrame([], _WINDOWS)
    told = operator.told or {}
    schema = held_on_demand.schema_of(told, first.name, bytes(first.blob))
    facts = operator.facts

    def opened(rows: pa.Table) -> pa.Table:  # Spark counts the arguments of a plain function only
        bucket, blobs = rows["bucket"][0].as_py(), zip(rows["name"].to_pylist(), rows["blob"].to_pylist(), strict=True)
        found = held_on_demand.windows(told, facts[bucket], dict(blobs))
        return schema.empty_table() if found is None else found.cast(schema)

    return _shown(told, mine.groupBy("bucket").applyInArrow(opened, from_arrow_schema(schema)))


@dataclass(frozen=True)
class _Parts:
    """What blobs of messages tell of the windows of keys."""

    told: Mapping[str, Any]
    facts: Sequence[Mapping[str, Any]]

    def of(self, bucket: int, name: str, blob: bytes) -> pa.Table:
        """Return what one of them does."""
        return held_by_key.parts(self.told, self.facts[bucket], name, blob)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket, name, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from self.of(bucket, name, blob).to_batches()


def held_messages(
    spark: SparkSession, checkpoint: str, name: str | None = None, *, side: str | None = None
) -> DataFrame:
    """Return the messages that an aggregate with a store keeps, with all their columns, in no order.

    checkpoint, name, side: as for `held_windows`.
    """
    require_session(spark, "held_messages")
    return messages_of(*held_store(spark, checkpoint, name).of(side))


def messages_of(operator: OperatorState, blobs: DataFrame) -> DataFrame:
    """Return the messages that an aggregate with a store, or a side of a join, holds in these blobs."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    told = operator.told or {}
    mine = blobs.where(F.col("name").startswith(held.MESSAGES)).select("bucket", "name", "blob")
    first = mine.first()
    if first is None:
        return blobs.sparkSession.createDataFrame([], "topic string, partition int, offset bigint")
    unpack, found = _unpack, held.messages(first.name, bytes(first.blob))
    if held_keys.counts_keys(told) or held_sessions.of_sessions(told):
        unpack = _StillHeld(told, operator.facts, _known(blobs))
        found = held_join.messages_of(told, found) if held_join.is_half(told) else found
    return mine.mapInArrow(unpack, from_arrow_schema(found.schema))


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for _, name, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield from held.messages(name, blob).to_batches()


@dataclass(frozen=True)
class _StillHeld:
    """Messages beside which others lie that are needed no more: of sessions, or of windows that count a key's.

    known: of each bucket its log of sessions, or of keys.
    """

    told: Mapping[str, Any]
    facts: Sequence[Mapping[str, Any]]
    known: Mapping[int, Mapping[str, bytes]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket, name, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                rows, known = held.messages(name, blob), self.known.get(bucket, {})
                if held_sessions.of_sessions(self.told):
                    rows = held_sessions.messages(self.told, known, rows)
                    rows = held_join.messages_of(self.told, rows) if held_join.is_half(self.told) else rows
                else:
                    rows = held_keys.messages(self.told, self.facts[bucket], known, rows)
                yield from rows.to_batches()


def _known(blobs: DataFrame) -> dict[int, dict[str, bytes]]:
    found: dict[int, dict[str, bytes]] = {}
    for row in blobs.where(_begins((held_keys.INDEX, held_sessions.INDEX))).collect():
        found.setdefault(row.bucket, {})[row.name] = bytes(row.blob)
    return found


def _begins(prefixes: Sequence[str]) -> Column:
    """Whether the name of a blob begins with one of these."""
    from pyspark.sql import functions as F

    begins = [F.col("name").startswith(prefix) for prefix in prefixes]
    return reduce(or_, begins)
