"""`per_key` as a user writes it: durations are Spark interval strings."""

from __future__ import annotations

from collections.abc import Sequence

from keyedwm.config.validation import choice, duration_ms
from keyedwm.core.errors import OptionError
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.spark.api.store import Store


def per_key(
    lag: str,
    *,
    behind: str | None = None,
    by: str | Sequence[str] | None = None,
    idle: str | None = None,
    partitions: str = "slowest",
) -> PerKey:
    """A watermark for each key, its highest event time less `lag`, for `aggregate`, `process` and `running`.

    behind, which is required: how far a key may be behind the watermark of all; that less `behind` closes windows of
    every key, and is the watermark of the results. by: the key columns that own a watermark, by default all of them.
    idle: a key without rows while the watermark of all rises by so much closes by that one. partitions: a key that
    comes from several partitions follows the `slowest` that brought it within `behind`, or the `fastest`. See
    docs/how-to/per-key-watermarks.md.
    """
    if behind is None:
        raise OptionError(
            "per_key: behind is missing: it says how far a key may be behind the watermark of all, and bounds the "
            "state: give behind='1 day', for example"
        )
    return PerKey(
        lag_ms=duration_ms("lag", lag),
        behind_ms=duration_ms("behind", behind),
        by=(by,) if isinstance(by, str) else by if by is None else tuple(by),
        idle_ms=None if idle is None else duration_ms("idle", idle),
        partitions=choice("partitions", partitions, Partitions),
    )


def checked_key_watermark(given: object, asked_by: str) -> PerKey | None:
    """Return the argument; raise OptionError if it is something else."""
    if given is not None and not isinstance(given, PerKey):
        raise OptionError(
            f"{asked_by}: key_watermark={given!r}: keyedwm.spark.per_key('15 minutes', behind='1 day') is expected"
        )
    return given


def window_key_watermark(given: object, window: object, store: Store | None) -> dict[str, PerKey]:
    """Return the argument of a plan, none without one; refuse windows that keep messages, which have one watermark."""
    per_key = checked_key_watermark(given, "aggregate")
    if per_key is None:
        return {}
    if store is not None or not isinstance(window, (SlidingWindow, ZonedWindow, SessionWindow)):
        raise OptionError(
            "aggregate: key_watermark is possible with tumbling, sliding and session windows, and without a store, "
            "whose messages follow one watermark: leave key_watermark or the store out"
        )
    return {"key_watermark": per_key}
