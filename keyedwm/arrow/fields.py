"""Reading fields out of the source's columns.

Rule: whole columns; what does not read as the type that was asked for is null, as an event time is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from keyedwm.arrow.json_scan import Path, buffers, find
from keyedwm.arrow.text_values import floats, strings, whole_numbers
from keyedwm.arrow.valid_text import text_of
from keyedwm.core.field import Field, FieldType

_TYPES = {FieldType.STRING: pa.string(), FieldType.BIGINT: pa.int64(), FieldType.DOUBLE: pa.float64()}


class FieldReader:
    """Reads one field; `columns`: the source's."""

    def __init__(self, field: Field, columns: pa.Schema) -> None:
        self.field = field
        self.type = columns.field(field.column).type if field.kind is None else _TYPES[field.kind]
        self._path = Path(field.path) if field.path else None

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        """The field of each row."""
        values = batch.column(self.field.column)
        kind = self.field.kind
        if kind is None:
            return values
        if self._path is not None:
            data, start, end = find(values, self._path)
        elif kind is FieldType.STRING:
            return text_of(values)
        else:
            data, ends = buffers(values)
            start, end = ends[:-1].astype(np.int64), ends[1:].astype(np.int64)
            start[np.asarray(values.is_null())] = -1
        if kind is FieldType.STRING:
            return strings(data, start, end)
        return whole_numbers(data, start, end) if kind is FieldType.BIGINT else floats(data, start, end)
