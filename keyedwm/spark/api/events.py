"""`events`: the rows of the source without its control rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyedwm.core.rows import CONTROL
from keyedwm.spark.arguments import require_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def events(df: DataFrame) -> DataFrame:
    """Return one row for each record, as `format("kafka")` does: no control rows and no column `control`.

    For counts, `foreachBatch` and sinks of others. `aggregate` and the keyedwm sink follow the control rows: give them
    the source's own rows. Raises OptionError if `df` is no frame.
    """
    require_frame(df, "events")
    if CONTROL not in df.columns:
        return df
    return df.where(df[CONTROL].isNull()).drop(CONTROL)
