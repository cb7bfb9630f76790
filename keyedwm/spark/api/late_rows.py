"""`late_rows` and `on_time_rows`: what the coalesced watermark makes late, for Spark's own operators and by itself.

Rule: each event row with a readable time is in exactly one of both. Spark drops late rows by the watermark of two
batches before, so none of those that are on time by the one stamped on their own batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REASON
from keyedwm.core.text import span_text
from keyedwm.operators.frames.plan import RowGapWindow, SessionWindow, SlidingWindow
from keyedwm.operators.frames.session_rules import closed_ms
from keyedwm.spark.api.events import events
from keyedwm.spark.api.watermark import axis_columns, followed
from keyedwm.spark.arguments import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def late_rows(
    df: DataFrame, window: SlidingWindow | SessionWindow | None = None, *, lateness: str | None = None, axis: str = ""
) -> DataFrame:
    """Return the event rows of `df` that came too late by the coalesced watermark of their batch, with the `reason`.

    df: rows of the keyedwm source, with their event time and watermark. window: `tumbling`, `sliding` or `session`: a
    row is late once every window that takes it is closed; without one a row below the watermark is. lateness: how far
    the watermark may be above that. axis: the time axis, when several are configured.

    The columns are those of `df` without `control`. Raises OptionError and InputError, in one sentence.
    """
    rule = _rule(df, window, lateness, axis, "late_rows")
    if REASON in df.columns:
        raise InputError(
            f"late_rows: the frame has a column {REASON!r} already, which says why a row is late: rename it"
        )
    from pyspark.sql import functions as F

    return events(df).where(rule.is_late()).withColumn(REASON, F.lit(rule.reason))


def on_time_rows(
    df: DataFrame, window: SlidingWindow | SessionWindow | None = None, *, lateness: str | None = None, axis: str = ""
) -> DataFrame:
    """Return `with_watermark(df, axis)` without the rows that `late_rows` returns for the same arguments.

    Spark's own operators drop none of them; with lateness they hold their state that much longer.
    """
    rule = _rule(df, window, lateness, axis, "on_time_rows")
    return followed(df, axis, delay_ms=rule.lateness_ms, keep=~rule.is_late(), caller="on_time_rows")


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a row is late. event_time, watermark: the names of its columns."""

    event_time: str
    watermark: str
    window: SlidingWindow | SessionWindow | None
    lateness_ms: int

    def is_late(self) -> Column:
        """Whether a row is late; one without event time is not, and without a watermark none is."""
        from pyspark.sql import functions as F

        time, watermark = F.unix_millis(self.event_time), F.unix_millis(self.watermark)
        below = time < self._taken_from(watermark - F.lit(self.lateness_ms))
        return F.coalesce(below, F.expr("false"))

    def _taken_from(self, watermark: Column) -> Column:
        """The lowest event time that is on time. watermark: ms, less the allowed lateness."""
        from pyspark.sql import functions as F

        window = self.window
        if window is None:
            return watermark
        if isinstance(window, SessionWindow):  # of a single row
            return watermark + F.lit(closed_ms(window, 0) - window.gap_ms + 1)
        first_open = watermark - window.size_ms  # a window that begins here is the last one that is closed
        return first_open - F.pmod(first_open - window.offset_ms, F.lit(window.slide_ms)) + window.slide_ms

    @property
    def reason(self) -> str:
        """Why a row is late."""
        lateness = f" less the allowed lateness of {span_text(self.lateness_ms)}" if self.lateness_ms else ""
        if self.window is None:
            return f"late: below the watermark{lateness}"
        if isinstance(self.window, SessionWindow):
            kind = f"session of {span_text(self.window.gap_ms)}"
        else:
            kind = f"window of {span_text(self.window.size_ms)}"
        return f"late: the watermark{lateness} has closed every {kind} that takes it"


def _rule(df: DataFrame, window: object, lateness: str | None, axis: str, caller: str) -> _Rule:
    event_time, watermark = axis_columns(df, axis, caller)
    if isinstance(window, RowGapWindow) or not isinstance(window, (SlidingWindow, SessionWindow, type(None))):
        raise OptionError(
            f"{caller}: window={named(window)}: tumbling(...), sliding(...) or session(gap) of keyedwm.spark is "
            "expected, without a time zone, as Spark's own window and session_window have none; or leave it out"
        )
    return _Rule(event_time, watermark, window, 0 if lateness is None else duration_ms("lateness", lateness))
