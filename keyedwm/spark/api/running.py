"""`running`: each row with the aggregates of all rows of its key up to it. `deduplicate`: each key once within a time.

Rule: a wrong call is an error here, before a row is read. The query plan is that of `process`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.arrow.schema import axis_column, nullable
from keyedwm.config.validation import choice, duration_ms
from keyedwm.core.errors import InputError
from keyedwm.core.rows import EVENT_TIME
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates.functions import check_aggregate
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.process.deduplicate import Deduplicate, DeduplicatePlan
from keyedwm.operators.process.running import VERSION, Running
from keyedwm.operators.process.running_state import RECORD, RunningPlan
from keyedwm.spark.api.common_arguments import CommonArguments, check_aggregates, check_axis, column_names
from keyedwm.spark.api.process import ProcessorSpec, processed
from keyedwm.spark.api.window_specs import checked_key_watermark
from keyedwm.spark.hosting.source_description import Source, frame_of
from keyedwm.spark.hosting.staged_rows import arrow_schema, check_keys, check_rows, columns_of, payload_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def running(
    df: DataFrame | Source,
    by: str | Sequence[str],
    aggs: Mapping[str, AggregateSpec],
    *,
    keep: str | None = None,
    late: str = "drop",
    axis: str = "",
    buckets: int | None = None,
    name: str | None = None,
    continue_from: str | None = None,
    key_watermark: PerKey | None = None,
) -> DataFrame:
    """Return the rows of `df`, each with aggregates over all rows of its key up to it, in order of event time.

    df: rows of the keyedwm source with `topic`, `partition` and `offset`, which order rows of equal event time, and the
    control rows. by: key columns, none for all rows together. aggs: result column → aggregate; aggregates that keep
    every value, such as collect or median, are errors. keep: after a gap of this length in a key's event times, the
    key's aggregates restart and its state is dropped. Without `keep`, the state of every key is kept. late: what
    becomes of rows below the watermark, `drop` or `fail`. axis, buckets, name, continue_from: as for `process`.
    key_watermark: rows wait for, and are late by, the watermark of their key (`keyedwm.spark.per_key`).

    A row is emitted when the watermark has passed it. Returns the columns of `df` and one for each aggregate.
    `event_time`, `watermark` and `control` are as the source has them, so that results can be sunk, aggregated or
    joined again. Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    frame = frame_of(df, "df", "running")
    common = CommonArguments("running", buckets, name, continue_from)
    keys = column_names("by", by, "running")
    check_aggregates(aggs, "running")
    check_axis(axis, "running")
    for called, spec in aggs.items():
        check_aggregate(called, spec)
    check_rows(frame, axis, "running")
    check_keys(frame, keys, "running")
    missing = [column for column in RECORD if column not in frame.columns]
    if missing:
        raise InputError(
            f"running: the frame has no column {missing[0]!r}: rows of equal event time are ordered by topic, "
            "partition and offset, as the source's rows have them; keep them when columns are chosen"
        )
    plan = RunningPlan(
        schema=arrow_schema(columns_of(frame, payload_columns(frame))),
        by=keys,
        time=axis_column(EVENT_TIME, axis),
        aggregates=tuple(aggs.items()),
        keep_ms=None if keep is None else duration_ms("keep", keep),
        late=choice("late", late, LatePolicy),
    )
    per_key = checked_key_watermark(key_watermark, "running")
    processor = ProcessorSpec(partial(Running, plan), plan.called, VERSION, plan.result_schema, per_key)
    return processed([frame], plan.by, processor, [axis], common)


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

    df: rows of the keyedwm source with the control rows. on: key columns; null is equal to null. within: the distance
    in event time, to either side of a row that passed, in which a row of its key is a duplicate (default: one hour). A
    key is kept until the watermark is above it by this distance. `within` may change between starts. axis, buckets,
    name, continue_from: as for `process`.

    The first row of a key passes at once; rows of a batch are processed in the order of topic, partition and offset, if
    the frame has these columns. Rows below the watermark are dropped and counted (`late_rows`), and so are rows without
    an event time (`null_event_time_rows`). Returns the columns of `df`, with `event_time`, `watermark` and `control` as
    the source has them, so that results can be sunk, aggregated or joined. Raises OptionError and InputError for what
    is wrong with the call, in one sentence.
    """
    frame = frame_of(df, "df", "deduplicate")
    common = CommonArguments("deduplicate", buckets, name, continue_from)
    keys = column_names("on", on, "deduplicate")
    check_axis(axis, "deduplicate")
    check_rows(frame, axis, "deduplicate", takes_panes=True)
    check_keys(frame, keys, "deduplicate")
    plan = DeduplicatePlan(
        schema=pa.schema([nullable(one) for one in arrow_schema(columns_of(frame, payload_columns(frame)))]),
        on=keys,
        within_ms=duration_ms("within", within),
        time=axis_column(EVENT_TIME, axis),
    )
    spec = ProcessorSpec(partial(Deduplicate, plan), "deduplicate", 1, plan.result_schema)
    return processed([frame], plan.on, spec, [axis], common)
