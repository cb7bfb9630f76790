"""The median of each key and minute by Spark's own means that keep rows, for `benchmarks.store`.

Rule: each is written as cheaply as that can be done. By key they are what Spark's documentation shows: the offsets of a
group as one binary value, a timer at the window's end. By bucket, thousands of keys are one group, its rows one Arrow
stream: Spark then calls Python a few times a batch instead of once a key, which is the best that we found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MINUTE = "1 minute"
MINUTE_MS = 60_000
BUCKETS = 8
OUTPUT = "k string, start_ms bigint, median double"


def with_buckets(rows: DataFrame) -> DataFrame:
    """`applyInPandasWithState`: a group for each of a few buckets, all its rows in one value."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    timed = rows.withColumn("start_ms", F.unix_millis(F.window("timestamp", MINUTE).start))
    spread = timed.withColumn("bucket", F.pmod(F.hash("k"), F.lit(BUCKETS)))
    return spread.groupBy("bucket").applyInPandasWithState(
        _fold_bucket, OUTPUT, "held binary", "append", GroupStateTimeout.EventTimeTimeout
    )


def _fold_bucket(_key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    held_rows = [pa.ipc.open_stream(state.get[0]).read_pandas()] if state.exists else []
    rows = pd.concat([*held_rows, *(frame[["k", "start_ms", "offset"]] for frame in frames)])
    ended = rows["start_ms"] + MINUTE_MS <= state.getCurrentWatermarkMs()
    if ended.any():
        medians = rows[ended].groupby(["k", "start_ms"], sort=False)["offset"].median()
        yield medians.rename("median").reset_index()
    kept_rows = rows[~ended]
    if not len(kept_rows):
        state.remove()
        return
    table, buffer = pa.Table.from_pandas(kept_rows, preserve_index=False), pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    state.update((buffer.getvalue().to_pybytes(),))
    state.setTimeoutTimestamp(int(kept_rows["start_ms"].min()) + MINUTE_MS)


def with_apply(rows: DataFrame) -> DataFrame:
    """`applyInPandasWithState`: a group for each key and minute."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    timed = rows.withColumn("start_ms", F.unix_millis(F.window("timestamp", MINUTE).start))
    return timed.groupBy("k", "start_ms").applyInPandasWithState(
        _fold, OUTPUT, "offsets binary", "append", GroupStateTimeout.EventTimeTimeout
    )


def _fold(key: tuple[str, int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    k, start_ms = key[0], int(key[1])
    if state.hasTimedOut:
        (offsets,) = state.get
        state.remove()
        yield pd.DataFrame({"k": [k], "start_ms": [start_ms], "median": [_median(offsets)]})
        return
    offsets = state.get[0] if state.exists else b""
    state.update((offsets + b"".join(frame["offset"].to_numpy().tobytes() for frame in frames),))
    state.setTimeoutTimestamp(start_ms + MINUTE_MS)


def with_processor(rows: DataFrame) -> DataFrame:
    """`transformWithStateInPandas`: a group for each key, its minutes in a map, a timer for each."""
    timed = rows.selectExpr("k", "offset", "timestamp", "unix_millis(window(timestamp, '1 minute').start) start_ms")
    return timed.groupBy("k").transformWithStateInPandas(_Medians(), OUTPUT, "append", "EventTime")


class _Medians(StatefulProcessor):
    """One key at a time."""

    def init(self, handle: Any) -> None:
        """Ask for the map of minutes."""
        self._handle = handle
        self._offsets = handle.getMapState("held", "start_ms bigint", "offsets binary")

    def handleInputRows(self, key: tuple[str], rows: Iterable[pd.DataFrame], timerValues: Any) -> Iterator[Any]:  # noqa: N803, ARG002
        """Append to the minutes that the rows lie in."""
        for frame in rows:
            for start_ms, of_minute in frame.groupby("start_ms"):
                at = (int(start_ms),)
                known = self._offsets.containsKey(at)
                if not known:
                    self._handle.registerTimer(at[0] + MINUTE_MS)
                before = self._offsets.getValue(at)[0] if known else b""
                self._offsets.updateValue(at, (before + of_minute["offset"].to_numpy().tobytes(),))
        yield from ()

    def handleExpiredTimer(self, key: tuple[str], timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N803, ARG002
        """Tell the median of the minute that has ended."""
        start_ms = expiredTimerInfo.getExpiryTimeInMs() - MINUTE_MS
        (offsets,) = self._offsets.getValue((start_ms,))
        self._offsets.removeKey((start_ms,))
        k = pd.Series([key[0]], dtype=object)  # Spark cannot take pandas' own texts here
        yield pd.DataFrame({"k": k, "start_ms": [start_ms], "median": [_median(offsets)]})

    def close(self) -> None:
        """Nothing is open."""


def _median(offsets: bytes) -> float:
    return float(np.median(np.frombuffer(offsets, np.int64)))
