"""Rows of a frame apart: `events`, `late_rows` and `on_time_rows`, `rejected` and `with_rejected`.

Rule: each event row with a readable time is late or on time, by the coalesced watermark that its own batch is stamped
with. Spark drops late rows by the watermark of two batches before, so it drops no row that is on time. Rejected rows
are messages that no window accepted (an aggregation with a store and `late="emit"`), and unreadable records (a source
with `onBadEventTime=reject`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.lateness import delay_ms, has_ended, is_behind
from keyedwm.core.rows import REASON, REJECTED
from keyedwm.core.text import span_text
from keyedwm.operators.frames.plan import RowGapWindow, SessionWindow, SlidingWindow
from keyedwm.spark.api.watermark import axis_columns, followed
from keyedwm.spark.arguments import argument_text, require_frame, require_session
from keyedwm.spark.hosting.handed_on import refuse_records_twice
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.hosting.staged_rows import control_columns, rejected_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_IN_PIPELINE = "SESSION_MUTATION_IN_DECLARATIVE_PIPELINE"


def events(df: DataFrame | Source) -> DataFrame:
    """Return one row for each record, as `format("kafka")` does, without control rows and the column `control`.

    Unreadable records are dropped, too; `rejected` returns them. Use the rows for counts, `foreachBatch` and
    third-party sinks. `aggregate` and the keyedwm sink follow the control rows: give them the source's own rows. df:
    rows, or `keyedwm.spark.kafka(...)`. Raises OptionError for anything else.
    """
    from pyspark.sql import functions as F

    if isinstance(df, Source):
        df = df.load()
    require_frame(df, "events")
    for column in (*control_columns(df), *([REJECTED] if rejected_type(df) else [])):
        df = df.where(F.col(column).isNull()).drop(column)
    return df


def sql_view(spark: SparkSession, name: str, rows: DataFrame | Source) -> DataFrame:
    """Create or replace a temporary view of `events(rows)`, for streaming SQL: `spark.sql("SELECT ... FROM name")`.

    spark: the session that runs the SQL. rows: `keyedwm.spark.kafka(...)`, rows of the source, or results of an
    operator. Returns the frame of the view. Raises OptionError if the view is not in this session, or for an argument
    of another kind.
    """
    from pyspark.errors import PySparkException

    require_session(spark, "sql_view")
    if not isinstance(name, str) or not name.isidentifier():
        raise OptionError(f"sql_view: name={argument_text(name)}: letters, digits and _ are expected, such as 'orders'")
    view = events(rows)
    try:
        if not _is_of_session(view, spark, name):
            raise OptionError(
                f"sql_view: the rows of the view {name!r} are of another session: give the session that made them"
            )
        view.createOrReplaceTempView(name)
    except PySparkException as error:
        if not (error.getCondition() or "").startswith(_IN_PIPELINE):
            raise
        raise OptionError(
            f"sql_view: a pipeline rejects the view {name!r}: decorate a function that returns events(...) with "
            "pyspark.pipelines.temporary_view"
        ) from error
    return view


def _is_of_session(view: DataFrame, spark: SparkSession, name: str) -> bool:
    """Return whether a view of the frame appears in the session.

    The view for this question has a name that no session has: the session may have a view or a table `name` of its own.
    """
    probe = f"{name}_{uuid4().hex}"
    view.createOrReplaceTempView(probe)
    try:
        return spark.catalog.tableExists(probe)
    finally:
        view.sparkSession.catalog.dropTempView(probe)


def late_rows(
    df: DataFrame, window: SlidingWindow | SessionWindow | None = None, *, lateness: str | None = None, axis: str = ""
) -> DataFrame:
    """Return the event rows of `df` that came too late by the coalesced watermark of their batch, with the `reason`.

    df: rows of the keyedwm source, with their event time and watermark. window: `tumbling`, `sliding` or `session`: a
    row is late if every window that contains it is closed. Without a window, a row below the watermark is late.
    lateness: a time that is subtracted from the watermark first. axis: the time axis, if several are configured.

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

    Spark's own operators drop none of these rows; with `lateness` they keep their state longer by this time.
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
        """Whether a row is late; never without an event time or without a watermark."""
        from pyspark.sql import functions as F

        time, watermark = F.unix_millis(self.event_time), F.unix_millis(self.watermark)
        window, lateness_ms = self.window, self.lateness_ms
        if window is None:
            late = is_behind(time, watermark - delay_ms(lateness_ms))
        elif isinstance(window, SessionWindow):  # of a single row
            late = has_ended(time + window.gap_ms, watermark - delay_ms(lateness_ms, window.touching))
        else:
            last_start = time - F.pmod(time - window.offset_ms, F.lit(window.slide_ms))
            late = has_ended(last_start + window.size_ms, watermark - delay_ms(lateness_ms))
        return F.coalesce(late, F.expr("false"))

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
            f"{caller}: window={argument_text(window)}: tumbling(...), sliding(...) or session(gap) of keyedwm.spark "
            "is expected, without a time zone, as Spark's own window and session_window have none; or leave it out"
        )
    return _Rule(event_time, watermark, window, 0 if lateness is None else duration_ms("lateness", lateness))


def rejected(df: DataFrame) -> DataFrame:
    """Return the rejected messages, unchanged, with the `reason`; from a stream, or from a table of results.

    The other rows are the results: `df.where("rejected IS NULL")`.
    """
    from pyspark.sql.types import StructType

    require_frame(df, "rejected")
    if REJECTED not in df.columns:
        raise InputError(
            f"rejected: the frame has no column {REJECTED!r}: it is that of a source with onBadEventTime=reject, or of "
            "aggregate(..., store=Store(...), late='emit'); keep it when columns are chosen"
        )
    kind = df.schema[REJECTED].dataType
    if not isinstance(kind, StructType):
        raise InputError(
            f"rejected: the column {REJECTED!r} is of type {kind.simpleString()}: that of an aggregate with a store "
            "is a struct, the whole message; take it before it is changed"
        )
    return df.where(df[REJECTED].isNotNull()).select(f"{REJECTED}.*")


def with_rejected(results: DataFrame, *records: DataFrame) -> DataFrame:
    """Return `results` and one more row for each row of `late_rows` or `rejected`, in the column `rejected`.

    One query then writes both, to two places with the sink's option `errorsTo`: frames of one source are in the same
    batch, so counts add up. Results of an operator over a source with `onBadEventTime=reject` contain the unreadable
    records already, so `rejected` of the same rows is an error. Raises OptionError and InputError, in one sentence.
    """
    from pyspark.sql import functions as F

    require_frame(results, "with_rejected")
    for one in records:
        require_frame(one, "with_rejected")
        if REASON not in one.columns:
            raise InputError(
                f"with_rejected: a frame of records has no column {REASON!r} (it has {', '.join(one.columns)}): frames "
                "that late_rows or rejected returned are expected, behind the results"
            )
    refuse_records_twice([results, *records], "with_rejected")
    for one in records:
        rows = one.select(F.struct("*").alias(REJECTED))
        results = results.unionByName(rows, allowMissingColumns=True)
    return results
