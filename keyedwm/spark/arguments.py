"""Validation of DataFrame and SparkSession arguments."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

from keyedwm.core.errors import OptionError
from keyedwm.core.text import words_of
from keyedwm.operators.aggregates.functions import Aggregate

_PLAIN = (bool, float, int, str)


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
    if not hasattr(df, "columns"):
        raise OptionError(f"{caller}: df={argument_text(df)}: a frame is expected; load() a reader")


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
