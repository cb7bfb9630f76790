"""Validation of DataFrame and SparkSession arguments."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import TypeVar

from keyedwm.core.errors import OptionError
from keyedwm.core.text import words_of
from keyedwm.operators.aggregates.functions import Aggregate

_PLAIN = (bool, float, int, str)
_IN_PIPELINE = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"

T = TypeVar("T")


def argument_text(value: object) -> str:
    """Return what stands for a wrong argument in a message: itself if it is plain, else its type; always one line."""
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


def are_names(value: object) -> bool:
    """Return whether a value is a list or tuple of texts."""
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def require_frame(df: object, caller: str) -> None:
    """Raise OptionError unless `df` has columns. caller: the function, in the message."""
    if not hasattr(type(df), "columns"):
        raise OptionError(f"{caller}: df={argument_text(df)}: a frame is expected; load() a reader")
    analysed(lambda: df.columns, caller)  # type: ignore[attr-defined]  # checked above


def analysed(ask: Callable[[], T], caller: str) -> T:
    """Return what Spark answers about a frame. Raise OptionError in a pipeline's function, where Spark answers nothing.

    ask: one question, such as for the columns. caller: the function of keyedwm, in the message.
    """
    from pyspark.errors import PySparkException

    try:
        return ask()
    except PySparkException as error:
        if error.getCondition() != _IN_PIPELINE:
            raise
        raise OptionError(
            f"{caller}: Spark gives no columns of a frame to a decorated function of a pipeline: call {caller} at the "
            "top of the file, outside of the function; inside, aggregate works over kafka(...) and source(...)"
        ) from error


def require_session(spark: object, caller: str) -> None:
    """Raise OptionError unless `spark` is a session, classic or of Spark Connect. caller: the function."""
    if not hasattr(type(spark), "readStream"):
        raise OptionError(
            f"{caller}: spark={argument_text(spark)}: the session that SparkSession.builder gives is expected"
        )


def check_own_aggregates(aggs: Mapping[str, object], caller: str) -> None:
    """Raise OptionError unless Spark can send the aggregates of a user's own to its workers."""
    for name, spec in aggs.items():
        if isinstance(spec, Aggregate):
            check_sendable(spec, f"{caller}: the aggregate {name!r}")


def check_sendable(one: object, subject: str) -> None:
    """Raise OptionError unless Spark can send a user's function to its workers. what: what it is, in the message."""
    from pyspark.cloudpickle import dumps
    from pyspark.errors import PySparkException

    try:
        dumps(one)
    except (pickle.PicklingError, PySparkException, TypeError, AttributeError, RecursionError) as error:
        raise OptionError(
            f"{subject} cannot be sent to Spark's workers ({words_of(error)}): create its unpicklable objects (a lock, "
            "a client, an open file) within the function, and leave the session out of it"
        ) from error
