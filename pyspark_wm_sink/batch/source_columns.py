"""The columns of a DataFrame that come from the keyedwm source, and rows for another target (`errorsTo`).

Rule: a column is the source's if name and type agree; one of the same name and another type is the user's own. A row
is a result, or with a value in the column `rejected` a rejected message, and goes to one place only.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import CONTROL, CONTROL_FIELDS, CONTROL_FIELDS_1, FOLLOWS_COALESCED, REJECTED

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from pyspark_wm_sink.batch.batch_plan import BatchPlan
    from pyspark_wm_sink.batch.reports import TaskReport

_log = logging.getLogger("keyedwm.sink")
_SPARKS_WATERMARK = "spark.watermarkDelayMs"  # Spark's own, in the metadata of an event-time column and of its windows
_OFFSET_COLUMNS: Mapping[str, type[DataType]] = {"topic": StringType, "partition": IntegerType, "offset": LongType}


def has_control(schema: StructType) -> bool:
    """Whether the rows carry the source's control column."""
    return CONTROL in schema.fieldNames() and _is_control(schema[CONTROL].dataType)


def _is_control(kind: DataType) -> bool:
    return isinstance(kind, StructType) and tuple(kind.fieldNames()) in (CONTROL_FIELDS, CONTROL_FIELDS_1)


def check_control_name(schema: StructType) -> None:
    """Raise OptionError if the control column has another name: its rows would be written as rows of the user.

    SQL gives a column the capitals with which it is selected.
    """
    renamed = [field.name for field in schema.fields if field.name != CONTROL and _is_control(field.dataType)]
    if renamed and not has_control(schema):
        raise OptionError(
            f"column {renamed[0]} is the source's column control, and control rows would be written as events: call it "
            f"control, or drop these rows (keyedwm.spark.events, or WHERE {renamed[0]} IS NULL) and the column"
        )


def check_inline(schema: StructType) -> None:
    """Raise OptionError for `controlRows=inline` if the rows have no control column."""
    if not has_control(schema):
        raise OptionError(
            "option controlRows: 'inline' needs the source's control column, which the rows lack; keep the column"
        )


def has_offsets(schema: StructType) -> bool:
    """Whether the rows carry Kafka's topic, partition and offset."""
    return all(
        name in schema.fieldNames() and isinstance(schema[name].dataType, kind)
        for name, kind in _OFFSET_COLUMNS.items()
    )


def late_by_spark(schema: StructType) -> tuple[str, ...]:
    """Return the columns on which Spark's own watermark was set, except by `with_watermark`."""
    return tuple(
        field.name
        for field in schema.fields
        if _SPARKS_WATERMARK in (field.metadata or {}) and FOLLOWS_COALESCED not in field.metadata
    )


@functools.cache  # a query's commits share a process: once for each start
def warn_of_sparks_watermark(columns: tuple[str, ...]) -> None:
    """Warn that Spark drops late rows by its own watermark, which is set on these columns."""
    if columns:
        _log.warning(
            "Spark's own watermark is set on column %s (withWatermark): Spark drops rows as late by the highest event "
            "time of all partitions, and counts them only in its progress (numRowsDroppedByWatermark); for rows of the "
            "keyedwm source take keyedwm.spark.with_watermark(df) in its place, or aggregate", ", ".join(columns),
        )  # fmt: skip


def warn_of_null_rows(reports: Sequence[TaskReport], plan: BatchPlan | None) -> None:
    """Warn, once, that rows are probably control rows: of nulls alone, from a keyedwm source, without `control`."""
    if any(report.null_rows for report in reports) and plan is not None and any(plan.sources):
        _warn_of_lost_control()


@functools.cache  # as above
def _warn_of_lost_control() -> None:
    _log.warning(
        "rows of nulls alone are written, and the rows have no column control: control rows of a keyedwm source become "
        "such rows if columns are chosen without it; keep the column control, or drop control rows first with "
        "keyedwm.spark.events(df)"
    )


def check_rejected(schema: StructType) -> None:
    """Raise OptionError for rows that do not mark rejected messages."""
    if REJECTED not in schema.fieldNames():
        raise OptionError(
            f"option errorsTo: the rows have no column {REJECTED}: it is that of a source with onBadEventTime=reject, "
            f"of aggregate(..., store=Store(...), late='emit') or of with_rejected; keep it when columns are chosen, "
            f"or leave the option out"
        )


def split_rejected(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the results and the rejected messages, each in the order in which they came."""
    is_result = pc.is_null(rows.column(REJECTED))
    return rows.filter(is_result), rows.filter(pc.invert(is_result))
