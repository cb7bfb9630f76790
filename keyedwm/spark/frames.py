"""The checks of what callers hand over as a frame or as a session."""

from __future__ import annotations

from keyedwm.core.errors import OptionError

_PLAIN = (bool, float, int, str)


def named(value: object) -> str:
    """Return what stands for a wrong argument in a message: itself if it is plain, else its type; always one line."""
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


def require_frame(df: object, asked_by: str) -> None:
    """Raise OptionError unless `df` has columns. asked_by: the function, in the message."""
    if not hasattr(df, "columns"):
        raise OptionError(f"{asked_by}: df={named(df)}: a frame is expected; load() a reader")


def require_session(spark: object, asked_by: str) -> None:
    """Raise OptionError unless `spark` is a session, classic or of Spark Connect. asked_by: the function."""
    if not hasattr(type(spark), "readStream"):
        raise OptionError(f"{asked_by}: spark={named(spark)}: the session that SparkSession.builder gives is expected")
