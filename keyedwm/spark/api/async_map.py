"""`async_map`: a coroutine over the event rows, many calls at once; no control row overtakes an event row.

Rule: every wrong argument is an error here, before a row is read. Calls are made within a task, over
its rows in order; nothing is shuffled and no state is held.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.config.validation import duration_ms, whole
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.process.async_calls import AsyncCalls
from keyedwm.spark.arguments import analysed, check_sendable
from keyedwm.spark.hosting.async_rows import AsyncRows, kept_columns
from keyedwm.spark.hosting.result_schema import declared
from keyedwm.spark.hosting.source_description import Source, frame_of
from keyedwm.spark.hosting.staged_rows import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def async_map(
    df: DataFrame | Source,
    fn: Callable[[pa.Table], Awaitable[pa.Table]],
    schema: pa.Schema | str,
    *,
    ordered: bool = True,
    capacity: int = 16,
    timeout: str = "30 seconds",
    rows_per_call: int = 1_000,
) -> DataFrame:
    """Run a coroutine over the event rows of `df`, with several calls at a time in each task.

    df: rows of the keyedwm source, or of an operator, control rows included. fn: `async def fn(rows)`, which gets an
    Arrow table with the columns of `df` but for watermarks, `control` and `rejected`. It returns a table with the
    columns of `schema` and the event times; further columns are dropped. fn can be an object with `async def __call__`:
    each task copies the object, and awaits its `async def aclose` at the end. schema: the columns of the result, as an
    Arrow schema or Spark's DDL. ordered: rows keep their order, and no row overtakes a control row. Otherwise each
    result is emitted when its call ends, and a control row after all rows that were before it. capacity: the most calls
    in flight in a task. timeout: the longest time that a call may last. rows_per_call: the most rows that a call gets.

    Returns the columns of the schema, and the event times, watermarks, `control` and `rejected` of `df`. Raises
    OptionError for a wrong argument; a call that fails or takes too long fails its task (CallError).
    """
    frame = frame_of(df, "df", "async_map")
    if not _is_coroutine(fn):
        raise OptionError(
            f"async_map: fn={_name_of(fn)}: a coroutine is expected, `async def fn(rows)`, which takes and returns an "
            f"Arrow table"
        )
    check_takes_rows(fn)
    if not isinstance(ordered, bool):
        raise OptionError(f"async_map: ordered={ordered!r}: True or False is expected")
    schema_in = analysed(lambda: arrow_schema(frame), "async_map")
    calls = AsyncCalls(
        run=fn,
        ordered=ordered,
        capacity=whole("capacity", str(capacity)),
        timeout_ms=duration_ms("timeout", timeout),
        name=_name_of(fn),
        hidden_columns=tuple(name for name in kept_columns(schema_in) if not name.startswith(EVENT_TIME)),
    )
    if not calls.timeout_ms:
        raise OptionError(f"async_map: timeout={timeout!r}: a time in which a call can answer is expected")
    columns = declared(schema, kept_columns(schema_in), "async_map")
    return _results(frame, AsyncRows(calls, schema_in, columns, whole("rows_per_call", str(rows_per_call))))


def _results(frame: DataFrame, task: AsyncRows) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    unnamed = frame.toDF(*map(str, range(len(task.schema_in))))  # Spark's mapInArrow takes no names with dots
    results = unnamed.mapInArrow(task, from_arrow_schema(task.result))
    for name in kept_columns(task.schema_in):
        if frame.schema[name].metadata:
            results = results.withMetadata(name, frame.schema[name].metadata)
    return results


def check_takes_rows(fn: Callable[..., object]) -> None:
    """Raise OptionError for a coroutine that cannot be called with one table, or cannot be sent to the workers."""
    try:
        inspect.signature(fn).bind(None)
    except TypeError as error:
        raise OptionError(
            f"async_map: fn={_name_of(fn)} cannot be called with the rows alone ({error}): write `async def fn(rows)`, "
            f"and bind other arguments with functools.partial"
        ) from error
    check_sendable(fn, f"async_map: fn={_name_of(fn)}")


def _is_coroutine(fn: object) -> bool:
    inner = fn.func if isinstance(fn, partial) else fn
    return any(map(inspect.iscoroutinefunction, (inner, getattr(type(inner), "__call__", None))))  # noqa: B004


def _name_of(fn: object) -> str:
    inner = fn.func if isinstance(fn, partial) else fn
    return getattr(inner, "__qualname__", None) or (type(inner).__qualname__ if callable(inner) else repr(fn))
