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

from keyedwm.core.errors import InputError, OptionError
from keyedwm.savepoint import Files, OperatorState
from keyedwm.spark.frames import require_session
from keyedwm.windows.store import held, held_by_key, held_keys, held_sessions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_WINDOWS = (
    "window struct<start timestamp, end timestamp>, topic string, partition int, first_offset bigint, "
    "last_offset bigint, messages bigint, bytes bigint, is_complete boolean"
)


def held_windows(spark: SparkSession, checkpoint: str, name: str | None = None, *, by_key: bool = False) -> DataFrame:
    """Return the windows that an aggregate with a store keeps: one row for each window, topic and partition.

    Of windows that count a key's messages: one for each key, topic and partition, which is complete next. Of sessions:
    one for each session, topic and partition, beside the key's columns.
    by_key: one row also for each key, with the key's columns first, which reads the messages.
    `window` is start and end, or of rows the first and the last offset, as in the aggregate's results. checkpoint: of
    the query. name: of the aggregate, needed if the query has several with a store. Raises InputError,
    OptionError and FormatError in one sentence.
    """
    from pyspark.sql import functions as F

    require_session(spark, "held_windows")
    operator, blobs = store_of(spark, checkpoint, name)
    if by_key:
        return _by_key(operator, blobs)
    found: dict[int, dict[str, bytes]] = {number: {} for number in range(len(operator.facts))}
    for row in blobs.where(_begins(held.INDEX)).collect():
        found[row.bucket][row.name] = bytes(row.blob)
    if held_sessions.of_sessions(operator.told or {}):
        return _sessions(spark, held_sessions.windows(zip(operator.facts, found.values(), strict=True)))
    listed = held.windows(operator.told or {}, zip(operator.facts, found.values(), strict=True))
    rows = [astuple(one) for one in listed]
    made = spark.createDataFrame(
        [(start, end, *rest) for start, end, *rest in rows],
        "start bigint, end bigint, " + _WINDOWS.partition(">, ")[2],
    )
    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    if held.is_rows(operator.told or {}):
        window = F.struct(F.col("start").alias("first_offset"), (F.col("end") - 1).alias("last_offset"))
    return made.withColumn("window", window).select("window", *made.columns[2:])


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
    keys = held_by_key.key_names(told)
    found = (
        mine.mapInArrow(parts, from_arrow_schema(schema))
        .groupBy(*keys, *held_by_key.EDGES, *held_by_key.CHANNEL)
        .agg(
            F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"),
            F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"),
            F.bool_and("is_complete").alias("is_complete"),
        )
    )  # fmt: skip
    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    if held.is_rows(told):
        window = F.struct(F.col("start").alias("first_offset"), (F.col("end") - 1).alias("last_offset"))
    others = [*held_by_key.CHANNEL, *held_by_key.ADDED, held_by_key.COMPLETE]
    return found.withColumn("window", window).select(*keys, "window", *others)


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


def held_messages(spark: SparkSession, checkpoint: str, name: str | None = None) -> DataFrame:
    """Return the messages that an aggregate with a store keeps, with all their columns, in no order.

    checkpoint, name: as for `held_windows`.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    require_session(spark, "held_messages")
    operator, blobs = store_of(spark, checkpoint, name)
    mine = blobs.where(F.col("name").startswith(held.MESSAGES)).select("bucket", "name", "blob")
    first = mine.first()
    if first is None:
        return spark.createDataFrame([], "topic string, partition int, offset bigint")
    unpack = _unpack
    if held_keys.counts_keys(operator.told or {}) or held_sessions.of_sessions(operator.told or {}):
        unpack = _StillHeld(operator.told or {}, operator.facts, _known(blobs))
    return mine.mapInArrow(unpack, from_arrow_schema(held.messages(first.name, bytes(first.blob)).schema))


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for _, name, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield from held.messages(name, blob).to_batches()


def _sessions(spark: SparkSession, found: pa.Table | None) -> DataFrame:
    """Return sessions as rows: the key's columns before the others."""
    from pyspark.sql import functions as F

    if found is None:
        return spark.createDataFrame([], _WINDOWS)
    names = found.schema.names
    made = spark.createDataFrame(found)
    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    at = names.index("start")
    return made.withColumn("window", window).select(*names[:at], "window", *names[at + 2 :])


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
                    yield from held_sessions.messages(self.told, known, rows).to_batches()
                else:
                    yield from held_keys.messages(self.told, self.facts[bucket], known, rows).to_batches()


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


def store_of(spark: SparkSession, checkpoint: str, name: str | None) -> tuple[OperatorState, DataFrame]:
    """Return the aggregate with a store that is meant, and its blobs."""
    from keyedwm.spark.savepoint import read_operators

    files = Files(checkpoint)
    if files.names("state") is None:
        raise InputError(f"{checkpoint} is no checkpoint with state: that of a query with a store is expected")
    operators = list(read_operators(spark, files))
    found = {one.name: (one, blobs) for one, blobs in operators if "store" in (one.told or {})}
    if not found:
        joins = any("window_join" in (one.told or {}) for one, _ in operators)
        why = "what a window_join holds is not listed" if joins else "give aggregate(..., store=...) one"
        raise OptionError(f"{checkpoint}: the query has no aggregate with a store: {why}")
    if (name is None and len(found) > 1) or (name is not None and name not in found):
        raise OptionError(
            f"{checkpoint}: name={name!r}: the aggregates with a store are called {', '.join(sorted(found))}: give one"
        )
    return found[name or next(iter(found))]
