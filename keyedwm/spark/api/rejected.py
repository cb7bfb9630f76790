"""`rejected`: the messages that no window took, of an aggregation with a store and `late="emit"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyedwm.core.errors import InputError
from keyedwm.core.rows import REJECTED
from keyedwm.spark.arguments import require_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rejected(df: DataFrame) -> DataFrame:
    """Return the messages that were given back, as they came, with the `reason`; of a stream, or of a table of results.

    The other rows are the results: `df.where("rejected IS NULL")`.
    """
    from pyspark.sql.types import StructType

    require_frame(df, "rejected")
    if REJECTED not in df.columns:
        raise InputError(
            f"rejected: the frame has no column {REJECTED!r}: it is that of aggregate(..., store=Store(...), "
            "late='emit'); keep it when columns are chosen"
        )
    found = df.schema[REJECTED].dataType
    if not isinstance(found, StructType):
        raise InputError(
            f"rejected: the column {REJECTED!r} is of type {found.simpleString()}: that of an aggregate with a store "
            "is a struct, the whole message; take it before it is changed"
        )
    return df.where(df[REJECTED].isNotNull()).select(f"{REJECTED}.*")
