"""`deduplicate`: each key once within a time (docs/reference/windows.md).

Rule: a wrong call is refused here, before a row is read. The query plan is that of `process`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.arrow.schema import axis_column, nullable
from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.process.deduplicate import Deduplicate, DeduplicatePlan
from keyedwm.spark.api.process import OperatorPlacement, ProcessorSpec, processed
from keyedwm.spark.arguments import named
from keyedwm.spark.hosting.source_description import Source, frame_of
from keyedwm.spark.hosting.staged_rows import arrow_schema, check_keys, check_rows, columns_of, payload_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deduplicate(
    df: DataFrame | Source,
    on: str | Sequence[str],
    *,
    within: str = "1 hour",
    axis: str = "",
    buckets: int | None = None,
    name: str | None = None,
    continue_from: str | None = None,
) -> DataFrame:
    """Return the rows of `df` without duplicates: rows whose values in `on` equal those of a row that passed.

    df: rows of the keyedwm source with the control rows. on: key columns; null is equal to null. within: how far from a
    row that passed, before or behind it in event time, a row of its key is a duplicate (one hour, if not given); a key
    is held until the watermark is so far above it. It may change between starts. axis, buckets, name, continue_from: as
    for `process`.

    The first row of a key passes at once; rows of a batch are taken in the order of topic, partition and offset, where
    the frame has these columns. Rows below the watermark are left out and counted (`late_rows`), and so are rows
    without an event time (`null_event_time_rows`). Returns the columns of `df`, with `event_time`, `watermark` and
    `control` as the source has them, so that results can be sunk, aggregated or joined. Raises OptionError and
    InputError for what is wrong with the call, in one sentence.
    """
    frame = frame_of(df, "df", "deduplicate")
    keys = (on,) if isinstance(on, str) else on
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise OptionError(f"deduplicate: on={named(on)}: the names of columns are expected; compute others before")
    if not isinstance(axis, str):
        raise OptionError(f"deduplicate: axis={named(axis)}: the name of a time axis is expected, or leave it out")
    check_rows(frame, axis, "deduplicate", takes_panes=True)
    check_keys(frame, keys, "deduplicate")
    plan = DeduplicatePlan(
        schema=pa.schema([nullable(one) for one in arrow_schema(columns_of(frame, payload_columns(frame)))]),
        on=tuple(keys),
        within_ms=duration_ms("within", within),
        time=axis_column(EVENT_TIME, axis),
    )
    spec = ProcessorSpec(partial(Deduplicate, plan), "deduplicate", 1, plan.result_schema)
    return processed([frame], plan.on, spec, OperatorPlacement((axis,), buckets, name, continue_from), "deduplicate")
