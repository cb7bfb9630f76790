"""`process`: an operator of the user's own over in-band rows, with the guarantees of the package's operators.

Rule: every fault of a call is an error here, before a row is read. The plan is that of `aggregate`: rows
by bucket → one group per bucket, where the processor runs → result columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Union

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import CONTROL, EVENT_TIME, WATERMARK
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.shuffle import TIME
from keyedwm.spark.api.common_arguments import CommonArguments, column_names
from keyedwm.spark.api.window_specs import checked_key_watermark
from keyedwm.spark.arguments import are_names, argument_text, check_sendable
from keyedwm.spark.hosting.handed_on import once_each
from keyedwm.spark.hosting.lineage import marked
from keyedwm.spark.hosting.result_schema import declared
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT
from keyedwm.spark.hosting.staged_rows import (
    arrow_schema,
    axis_key,
    check_free,
    check_keys,
    check_rows,
    columns_of,
    payload_columns,
    ship_inputs,
    timed_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Input = Union["DataFrame", Source]
_RESERVED = (EVENT_TIME, WATERMARK, CONTROL)


def process(
    inputs: Input | Sequence[Input],
    by: str | Sequence[str],
    processor: Callable[[], Processor],
    schema: pa.Schema | str,
    *,
    axis: str | Sequence[str] = "",
    buckets: int | None = None,
    name: str | None = None,
    continue_from: str | None = None,
    key_watermark: PerKey | None = None,
) -> DataFrame:
    """Run a processor of your own over the event rows of `inputs`: one instance for each bucket of keys and each batch.

    inputs: rows of the keyedwm source, or of another operator, control rows included, with the columns that the
    processor needs; the inputs of a list are numbered from 0. by: key columns, which every input has, none for all rows
    together; rows of equal keys come to the same instance. processor: the class, or a `functools.partial` of it.
    schema: the columns that it emits, beside `event_time`, as an Arrow schema or as Spark's text of one. axis: the time
    axis, if several are configured, or a list with one for each input. buckets: how many groups the keys are spread
    over, by default spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the result's channels (`NAME#BUCKET`)
    and metrics. continue_from: a savepoint; the processor continues from the state of the savepoint's processor of the
    same name, or of its only processor. key_watermark: each key has its own watermark (`keyedwm.spark.per_key`), by
    which its rows are late; `on_key_watermark` gives it to the processor. Only for one input.

    Returns the schema's columns, `event_time`, `watermark` and `control`, so that results can be sunk, aggregated or
    processed again. Rows without an event time are dropped and counted. Raises OptionError and InputError for what is
    wrong with the call, in one sentence.
    """
    frames = _frames(inputs)
    axes = [axis] * len(frames) if isinstance(axis, str) else axis
    if not are_names(axes) or len(axes) != len(frames):
        raise OptionError(f"process: axis={axis!r}: one axis, or a list of one for each of {len(frames)} inputs")
    keys = column_names("by", by, "process")
    instance, called = _instance_of(processor)
    result = declared(schema, _RESERVED, "process")
    whose = ["process"] if len(frames) == 1 else [f"process, input {number}" for number in range(len(frames))]
    for frame, of_axis, who in zip(frames, axes, whose, strict=True):
        check_rows(frame, of_axis, who, takes_panes=True)
        check_keys(frame, keys, who)
    check_sendable(processor, f"process: {called}")
    spec = ProcessorSpec(processor, called, instance.version, result, checked_key_watermark(key_watermark, "process"))
    common = CommonArguments("process", buckets, name, continue_from)
    results = processed(frames, keys, spec, axes, common)
    results = marked(results, None)  # panes that came in are the processor's business
    if type(instance).on_rows is Processor.on_rows:
        raise OptionError(f"process: {called} has no on_rows(input_number, rows), which takes the rows: write one")
    return results


class ProcessorSpec(NamedTuple):
    """A processor: what creates it, its name, its version, the columns that it emits, and watermarks of keys."""

    make: Callable[[], Processor]
    called: str
    version: int
    result: pa.Schema
    key_watermark: PerKey | None = None


def processed(
    frames: Sequence[DataFrame],
    keys: tuple[str, ...],
    spec: ProcessorSpec,
    axes: Sequence[str],
    common: CommonArguments,
) -> DataFrame:
    """Return the results of a processor over frames that were checked. axes: one for each frame."""
    for frame in frames:
        check_free(payload_columns(frame), common.caller)
    once, times = once_each(frames), [{TIME: axis} for axis in axes]
    timed = map(timed_rows, once, times)
    owners = () if spec.key_watermark is None else spec.key_watermark.by or ()
    plan = ProcessPlan(
        inputs=tuple(_input(frame, keys, owners) for frame in timed), short_name=common.caller, **spec._asdict()
    )
    ids = common.bucket_ids(frames[0], one=not keys)
    keys_of_axes = tuple((axis_key(frame, axis),) for frame, axis in zip(frames, axes, strict=True))
    return common.results(ship_inputs(once, plan.inputs, times, ids), plan, ids, keys_of_axes, frames)


def _input(timed: DataFrame, keys: tuple[str, ...], owners: tuple[str, ...]) -> ProcessInput:
    """The description of an input for stage one, whose rows are timed."""
    payload = [column for column in payload_columns(timed) if column not in (TIME, CONTROL_TEXT)]
    return ProcessInput(schema=arrow_schema(columns_of(timed, [*payload, TIME])), by=keys, time=TIME, owners=owners)


def _frames(inputs: object) -> list[DataFrame]:
    from pyspark.sql import DataFrame

    frames = []
    for one in inputs if isinstance(inputs, (list, tuple)) else (inputs,):
        frame = one.load() if isinstance(one, Source) else one
        if not isinstance(frame, DataFrame):
            raise OptionError(
                f"process: inputs={argument_text(one)}: a frame, or keyedwm.spark.kafka(...), is expected, or a list "
                "of them"
            )
        frames.append(frame)
    if not frames:
        raise OptionError("process: inputs=[]: one frame at least is expected")
    return frames


def _instance_of(processor: object) -> tuple[Processor, str]:
    """Return an instance, created as the buckets will do it, and the name of its class."""
    instance = processor() if callable(processor) and _takes_nothing(processor) else None
    if not isinstance(instance, Processor):
        raise OptionError(
            f"process: processor={processor!r}: a subclass of keyedwm.spark.Processor, or a function that returns one, "
            f"is expected"
        )
    return instance, f"{type(instance).__module__}.{type(instance).__qualname__}"


def _takes_nothing(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # compiled code has no signature
        return True
    return True
