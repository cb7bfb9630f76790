"""`rejected` and `with_rejected`: rows of a frame that are no results, out of it and into one.

They are messages that no window took, of an aggregation with a store and `late="emit"`, and records that came back
unread, of a source with `onBadEventTime=reject`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyedwm.core.errors import InputError
from keyedwm.core.rows import REASON, REJECTED
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
            f"rejected: the frame has no column {REJECTED!r}: it is that of a source with onBadEventTime=reject, or of "
            "aggregate(..., store=Store(...), late='emit'); keep it when columns are chosen"
        )
    found = df.schema[REJECTED].dataType
    if not isinstance(found, StructType):
        raise InputError(
            f"rejected: the column {REJECTED!r} is of type {found.simpleString()}: that of an aggregate with a store "
            "is a struct, the whole message; take it before it is changed"
        )
    return df.where(df[REJECTED].isNotNull()).select(f"{REJECTED}.*")


def with_rejected(results: DataFrame, *records: DataFrame) -> DataFrame:
    """Return results, and in a column `rejected` of further rows what `late_rows` or `rejected` returned.

    One query then writes both, to two places with the sink's option `errorsTo`: what was made of one source is of the
    same batch, so that counts add up. Raises OptionError and InputError, in one sentence.
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
    for one in records:
        rows = one.select(F.struct("*").alias(REJECTED))
        results = results.unionByName(rows, allowMissingColumns=True)
    return results
