"""`events`: the rows of the source without its control rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyedwm.core.rows import CONTROL, REJECTED
from keyedwm.spark.arguments import require_frame
from keyedwm.spark.hosting.staged_rows import rejected_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def events(df: DataFrame) -> DataFrame:
    """Return one row for each record, as `format("kafka")` does: no control rows and no column `control`, and none of
    the records that came back unread, which `rejected` returns.

    For counts, `foreachBatch` and sinks of others. `aggregate` and the keyedwm sink follow the control rows: give them
    the source's own rows. Raises OptionError if `df` is no frame.
    """
    require_frame(df, "events")
    for column in (*([CONTROL] if CONTROL in df.columns else []), *([REJECTED] if rejected_type(df) else [])):
        df = df.where(df[column].isNull()).drop(column)
    return df
