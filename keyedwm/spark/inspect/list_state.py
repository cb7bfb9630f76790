"""`held_windows` and `held_messages`: what the windows of a query with a store hold, read from its checkpoint.

Rule: Spark's own state reader reads; the query may be stopped or run, the answer is that of its last committed batch.
"""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.operators.messages.read_only_store import CHANNEL, COMPLETE, EDGES, HELD, check_by_key
from keyedwm.spark.arguments import require_session
from keyedwm.spark.inspect.saved_store import saved_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How the parts of a window in several buckets are put together.
_TOGETHER = dict(zip((*HELD, COMPLETE), ("min", "max", "sum", "sum", "all"), strict=True))


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
        found = store.frame(listed)
    else:
        windows = together(store.each(listed))
        found = spark.createDataFrame(windows, from_arrow_schema(windows.schema))
    return _shown(found, of_rows=store.windows.is_rows)


def together(tables: list[pa.Table]) -> pa.Table:
    """Return the windows of all buckets in order of end, topic and partition; of all keys together each is one."""
    found = pa.concat_tables(tables)
    if found.column_names[0] == EDGES[0]:
        found = found.group_by([*EDGES, *CHANNEL], use_threads=False).aggregate(list(_TOGETHER.items()))
        found = found.rename_columns([*EDGES, *CHANNEL, *_TOGETHER])
    return found.sort_by([(column, "ascending") for column in ("end", "start", *CHANNEL)])


def _shown(found: DataFrame, *, of_rows: bool) -> DataFrame:
    """Return windows as they are shown: their edges together."""
    from pyspark.sql import functions as F

    window = F.struct(F.timestamp_millis("start").alias("start"), F.timestamp_millis("end").alias("end"))
    if of_rows:
        window = F.struct(F.col("start").alias("first_offset"), (F.col("end") - 1).alias("last_offset"))
    names = found.columns[: -len((*EDGES, *CHANNEL, *HELD, COMPLETE))]
    keys = ["`{}`".format(name.replace("`", "``")) for name in names]
    return found.select(*keys, window.alias("window"), *CHANNEL, *HELD, COMPLETE)


def held_messages(
    spark: SparkSession, checkpoint: str, name: str | None = None, *, side: str | None = None
) -> DataFrame:
    """Return the messages that an aggregate with a store keeps, with all their columns, in no order.

    checkpoint, name, side: as for `held_windows`.
    """
    require_session(spark, "held_messages")
    return saved_store(spark, checkpoint, name).of(side).frame(methodcaller("messages"))
