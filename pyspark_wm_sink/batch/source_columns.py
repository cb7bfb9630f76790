"""The columns of a DataFrame that come from the keyedwm source.

Rule: a column is the source's if name and type agree; one of the same name and another type is the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import CONTROL, CONTROL_FIELDS, CONTROL_FIELDS_1

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_OFFSET_COLUMNS: Mapping[str, type[DataType]] = {"topic": StringType, "partition": IntegerType, "offset": LongType}


def has_control(schema: StructType) -> bool:
    """Whether the rows carry the source's control column."""
    if CONTROL not in schema.fieldNames():
        return False
    kind = schema[CONTROL].dataType
    return isinstance(kind, StructType) and tuple(kind.fieldNames()) in (CONTROL_FIELDS, CONTROL_FIELDS_1)


def check_inline(schema: StructType) -> None:
    """Refuse `controlRows=inline` for rows without control column: there is nothing to keep."""
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
