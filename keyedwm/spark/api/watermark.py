"""Spark's own stateful operators, driven by the coalesced watermark (docs/design/operators.md#sparks-operators).

Rule: Spark's watermark becomes `watermark - 1 ms` with no delay: Spark drops event time <= its watermark, ours keeps an
event at W. No filter may sink below the node that tracks it, or the watermark would stick with the filtered rows.
"""

from __future__ import annotations

import warnings

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from keyedwm.arrow.schema import axis_column
from keyedwm.core.errors import InputError
from keyedwm.core.rows import CONTROL, EVENT_TIME, FOLLOWS_COALESCED, WATERMARK
from keyedwm.spark.arguments import require_frame
from keyedwm.spark.hosting.lineage import DRIVING, panes_of

_OF_AXIS = f"{WATERMARK}_"


def with_watermark(df: DataFrame, axis: str = "") -> DataFrame:
    """Return the event rows of `df` with `event_time` as Spark's event-time column, late by the coalesced watermark.

    window, session_window, stream-stream join, dropDuplicates(WithinWatermark) and transformWithState on the result all
    follow the keyedwm source's watermark. Control rows end here; the columns `control` (null) and `event_time` stay,
    `watermark` becomes Spark's own. axis: the time axis to follow, when several are configured.
    Raises OptionError if `df` is no frame, InputError if it lacks the source's columns.
    """
    require_frame(df, "with_watermark")
    event_time, watermark = axis_column(EVENT_TIME, axis), axis_column(WATERMARK, axis)
    known = [name.removeprefix(_OF_AXIS) for name in df.columns if name.startswith(_OF_AXIS)]
    if axis and axis not in known and (known or WATERMARK in df.columns):
        has = (
            ", ".join(known)
            or "a single one without a name: leave the axis out (a lag is the option watermarkLag of the source)"
        )
        raise InputError(f"with_watermark: the source has no time axis {axis!r}; it has {has}")
    for column in (event_time, watermark):
        if column not in df.columns:
            raise InputError(
                f"with_watermark: the frame has no column {column!r} (it has {', '.join(df.columns)}); "
                "apply it to the rows of the keyedwm source before other columns are chosen"
            )
    if df.isStreaming and panes_of(df) is not None:
        warnings.warn(
            "with_watermark: the frame holds early or late panes, each with the whole total of its window: Spark's own "
            "aggregates and joins count what several panes say several times, so filter by the column pane",
            RuntimeWarning,
            stacklevel=2,
        )
    followed = df.withColumn(DRIVING, F.expr(f"`{watermark}` - INTERVAL 1 MILLISECOND")).withWatermark(
        DRIVING, "0 seconds"
    )
    is_event = F.col(CONTROL).isNull() if CONTROL in df.columns else F.expr("true")
    # A condition that Spark takes for non-deterministic keeps its place: neither it nor any later filter is pushed
    # below the watermark node, and control-only batches still move the watermark.
    stays_here = F.when(F.spark_partition_id() < 0, F.expr("false")).otherwise(is_event)
    follows = {"spark.watermarkDelayMs": 0, FOLLOWS_COALESCED: True}
    return followed.where(stays_here).withMetadata(event_time, follows).drop(DRIVING, watermark)
