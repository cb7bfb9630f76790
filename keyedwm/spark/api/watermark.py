"""Spark's own stateful operators, driven by the coalesced watermark (docs/design/operators.md#sparks-operators).

Rule: Spark's watermark becomes `watermark - 1 ms` with no delay: Spark drops event time <= its watermark, ours keeps an
event at W. No filter may sink below the node that tracks it, or the watermark would stick with the filtered rows.
"""

from __future__ import annotations

import warnings
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from keyedwm.arrow.schema import axis_column
from keyedwm.core.errors import InputError
from keyedwm.core.rows import EVENT_TIME, FOLLOWS_COALESCED, REJECTED, WATERMARK
from keyedwm.spark.arguments import analysed, require_frame
from keyedwm.spark.hosting.lineage import SPARK_TIMES, panes_of, warn_of_moved_times
from keyedwm.spark.hosting.staged_rows import control_columns, rejected_type

_OF_AXIS = f"{WATERMARK}_"


def with_watermark(df: DataFrame, axis: str = "") -> DataFrame:
    """Return the event rows of `df` with `event_time` as Spark's event-time column, late by the coalesced watermark.

    window, session_window, stream-stream join, dropDuplicates(WithinWatermark) and transformWithState on the result all
    follow the keyedwm source's watermark. Control rows end here; the columns `control` (null) and `event_time` stay,
    `watermark` becomes Spark's own, and unreadable records (the column `rejected`) are dropped: `rejected` returns
    them. axis: the time axis to follow, if several are configured. Raises OptionError if `df` is no frame, InputError
    if it lacks the source's columns.
    """
    return followed(df, axis, delay_ms=0, keep=None, caller="with_watermark")


def axis_columns(df: DataFrame, axis: str, caller: str) -> tuple[str, str]:
    """Return the names of the event time and the watermark of a time axis. Raises OptionError and InputError."""
    require_frame(df, caller)
    event_time, watermark = axis_column(EVENT_TIME, axis), axis_column(WATERMARK, axis)
    known = [name.removeprefix(_OF_AXIS) for name in df.columns if name.startswith(_OF_AXIS)]
    if axis and axis not in known and (known or WATERMARK in df.columns):
        has = (
            ", ".join(known)
            or "a single one without a name: leave the axis out (a lag is the option watermarkLag of the source)"
        )
        raise InputError(f"{caller}: the source has no time axis {axis!r}; it has {has}")
    for column in (event_time, watermark):
        if column not in df.columns:
            raise InputError(
                f"{caller}: the frame has no column {column!r} (it has {', '.join(df.columns)}); "
                "apply it to the rows of the keyedwm source before other columns are chosen"
            )
    return event_time, watermark


def followed(df: DataFrame, axis: str, *, delay_ms: int, keep: Column | None, caller: str) -> DataFrame:
    """Return the event rows, with Spark's watermark `delay_ms` below ours. keep: the rows that stay, None for all."""
    event_time, watermark = axis_columns(df, axis, caller)
    is_streaming = analysed(lambda: df.isStreaming, caller)
    if is_streaming:
        warn_of_moved_times(df, caller)
    if is_streaming and panes_of(df) is not None:
        warnings.warn(
            f"{caller}: the frame holds early or late panes, each with the whole total of its window: Spark's own "
            "aggregates and joins count what several panes say several times, so filter by the column pane",
            RuntimeWarning,
            stacklevel=3,
        )
    driven = F.expr(f"`{watermark}` - INTERVAL {delay_ms + 1} MILLISECOND")
    tracked = df.withColumn(SPARK_TIMES, driven).withWatermark(SPARK_TIMES, "0 seconds")
    rejected = [REJECTED] if rejected_type(df) else []
    stays = reduce(
        and_,
        [F.col(one).isNull() for one in (*control_columns(df), *rejected)],
        F.expr("true") if keep is None else keep,
    )
    # A condition that Spark takes for non-deterministic keeps its place: neither it nor any later filter is pushed
    # below the watermark node, and control-only batches still move the watermark.
    stays_here = F.when(F.spark_partition_id() < 0, F.expr("false")).otherwise(stays)
    follows = {"spark.watermarkDelayMs": 0, FOLLOWS_COALESCED: True}
    return tracked.where(stays_here).withMetadata(event_time, follows).drop(SPARK_TIMES, watermark, *rejected)
