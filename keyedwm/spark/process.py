"""`process`: an operator of the user's own over in-band rows, with the guarantees of the package's operators.

Rule: everything that can be wrong with a call is told here, before a row is read. The plan is that of `aggregate`: rows
by bucket → one group per bucket, where the processor runs → result columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.options import whole
from keyedwm.core.rows import CONTROL, EVENT_TIME, WATERMARK
from keyedwm.spark.bucket_batch import EMITTED, BucketLayout
from keyedwm.spark.conf import PARTITIONS, check_provider
from keyedwm.spark.declared import declared
from keyedwm.spark.source import Source
from keyedwm.spark.stage_one import CONTROL_TEXT, StageOne
from keyedwm.spark.staged_rows import arrow_schema, axis_key, check_columns, check_rows, columns_of, timed_rows
from keyedwm.windows.buckets import bucket_ids
from keyedwm.windows.process import Processor, ProcessPlan
from keyedwm.windows.shuffle import SHIPPED, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TAKEN = (EVENT_TIME, WATERMARK, CONTROL)
_METRICS = {"late_rows": "late_rows", "null_event_time_rows": "null_event_time_rows", "held_rows": "frames"}


def process(
    inputs: DataFrame | Source,
    by: str | Sequence[str],
    processor: Callable[[], Processor],
    schema: pa.Schema | str,
    *,
    axis: str = "",
    buckets: int | None = None,
    name: str | None = None,
) -> DataFrame:
    """Run a processor of your own over the event rows of `inputs`, one instance for each bucket of keys and batch.

    inputs: rows of the keyedwm source, or of another operator, control rows included, with the columns that the
    processor needs. by: key columns, none for all rows together; rows of equal keys come to the same instance.
    processor: the class, or a `functools.partial` of it. schema: of what it emits, beside `event_time`, as an Arrow
    schema or as Spark's text of one. axis: the time axis, when several are configured. buckets: how many groups the
    keys are spread over, by default spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the result's
    channels (`NAME#BUCKET`) and metrics.

    Returns the schema's columns, `event_time`, `watermark` and `control`, so that results can be sunk, aggregated or
    processed again. Rows without an event time are left out and counted. Raises OptionError and InputError for what is
    wrong with the call, in one sentence.
    """
    frame = _frame(inputs)
    keys = (by,) if isinstance(by, str) else tuple(by)
    made, called = _made(processor)
    result = declared(schema, _TAKEN, "process")
    if name is not None and not (isinstance(name, str) and name):
        raise OptionError(f"process: name={name!r}: a text is expected, or leave it out")
    check_rows(frame, axis, "process")
    check_columns(frame, keys, "process")
    check_provider(frame.sparkSession, "process")
    timed = timed_rows(frame, axis)
    payload = [column for column in frame.columns if column != CONTROL and not column.startswith(WATERMARK)]
    rows = columns_of(timed, [*payload, TIME, CONTROL_TEXT])
    plan = ProcessPlan(
        schema=arrow_schema(columns_of(timed, [*payload, TIME])),
        by=keys,
        make=processor,
        result=result,
        called=called,
        version=made.version,
        time=TIME,
    )
    wanted = frame.sparkSession.conf.get(PARTITIONS) if buckets is None else buckets
    ids = bucket_ids(whole("buckets", str(wanted)) if keys else 1)
    layout = BucketLayout(name or f"process-{plan.digest()[:6]}", tuple(ids), axis_key(frame, axis), "process")
    if type(made).on_rows is Processor.on_rows:
        raise OptionError(f"process: {called} has no on_rows(input_number, rows), which takes the rows: write one")
    return _wired(rows, plan, layout, by_clock=made.uses_clock)


def _wired(rows: DataFrame, plan: ProcessPlan, layout: BucketLayout, *, by_clock: bool) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    from keyedwm.spark.bucket import Bucket
    from keyedwm.spark.unpack import Unpack, output_schema

    rows = rows.toDF(*map(str, range(len(rows.columns))))  # Spark's mapInArrow takes no names with dots
    shipped = rows.mapInArrow(StageOne(plan, layout.ids), from_arrow_schema(SHIPPED))
    mode = "ProcessingTime" if by_clock else "None"
    emitted = shipped.groupBy("bucket").transformWithStateInPandas(Bucket(plan, layout), EMITTED, "append", mode)
    metrics = [F.sum(column).alias(metric) for metric, column in _METRICS.items()]
    output = output_schema(plan.result_schema)
    return emitted.observe(layout.name, *metrics).mapInArrow(Unpack(output), from_arrow_schema(output))


def _frame(inputs: object) -> DataFrame:
    from pyspark.sql import DataFrame

    if isinstance(inputs, Source):
        return inputs.load()
    if isinstance(inputs, DataFrame):
        return inputs
    raise OptionError(
        f"process: inputs={inputs!r}: a frame, or keyedwm.spark.source(spark), is expected; unite several frames before"
    )


def _made(processor: object) -> tuple[Processor, str]:
    """A processor as the buckets will make it, and what it is called."""
    made = processor() if callable(processor) else None
    if not isinstance(made, Processor):
        raise OptionError(
            f"process: processor={processor!r}: a subclass of keyedwm.spark.Processor, or a function that returns one, "
            f"is expected"
        )
    return made, f"{type(made).__module__}.{type(made).__qualname__}"
