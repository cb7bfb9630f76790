"""Rows that go elsewhere (`errorsTo`): those whose column `rejected` is not null, as a source or an operator gives
records back.

Rule: a row is a result or a rejected message, and goes to one place only.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import REJECTED


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
