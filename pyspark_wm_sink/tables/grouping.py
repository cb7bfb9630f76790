"""Groups the rows of a task by the values that partition a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def grouped_by(rows: pa.Table, by: Sequence[pa.ChunkedArray]) -> Iterator[tuple[tuple[pa.Scalar, ...], pa.Table]]:
    """Yield the rows of each group with its values, in the order in which they came; by: columns of the rows."""
    if not by or not rows.num_rows:
        yield (), rows
        return
    codes = np.zeros(rows.num_rows, np.int64)
    for column in by:
        encoded = pc.dictionary_encode(_as_bits(column)).combine_chunks()
        count = len(encoded.dictionary)
        codes = codes * (count + 1) + encoded.indices.fill_null(count).to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]  # small again, whatever the number of columns
    order = np.argsort(codes, kind="stable")
    ordered = rows.take(pa.array(order))
    _, starts = np.unique(codes[order], return_index=True)
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield tuple(column[int(order[start])] for column in by), ordered.slice(start, end - start)


def _as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats by their bits: Arrow takes -0.0 for 0.0, and a partition must give back the values of its rows."""
    kind = column.type
    if not pa.types.is_floating(kind):
        return column
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)
    return pa.chunked_array([one_nan.combine_chunks().view(pa.int64() if kind == pa.float64() else pa.int32())])
