"""The statistics in the footer of a Parquet file.

Rule: Parquet's bounds of floats leave NaN out, which Spark takes for the largest number: it would pass over a row group
with NaN. So the footer has none of floats.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def columns_with_statistics(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns that the Parquet file has statistics of: all but floats, nested ones as well."""
    empty = pa.BufferOutputStream()
    pq.write_metadata(schema, empty)
    columns = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    every = [columns.column(i) for i in range(len(columns))]
    floats = {column.path for column in every if column.physical_type in {"FLOAT", "DOUBLE"}}
    return [column.path for column in every if column.path not in floats]  # a.b may be a column and a field of a
