"""The rows of a query for its table and for the table of rejected messages; and a task's rows by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED
from pyspark_wm_sink.batch.source_columns import check_inline, check_rejected, has_control, has_offsets
from pyspark_wm_sink.options.iceberg_target import IcebergTarget
from pyspark_wm_sink.options.sink_options import ControlRows, DeltaTarget, SinkOptions, SnapshotMode
from pyspark_wm_sink.tables.columns import table_columns

Target_contra = TypeVar("Target_contra", DeltaTarget, IcebergTarget, contravariant=True)
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRows:
    """The rows of one table. mode: the event that completes its snapshots; the other fields as in `StagePlan`."""

    schema: StructType
    mode: SnapshotMode
    has_control: bool
    inline: bool
    has_offsets: bool
    compares_content: bool

    def columns(self, table: str) -> pa.Schema:
        """Their columns in a table of the kind that `table` names, such as "a Delta table"."""
        return table_columns(self.schema, drop_control=self.has_control and not self.inline, table=table)


class Publish(Protocol[Target_contra, Result]):
    """How a format of tables publishes rows; errors: the publication of rejected messages."""

    def __call__(
        self, options: SinkOptions, target: Target_contra, rows: TableRows, *, overwrite: bool, errors: Result | None
    ) -> Result:
        """Reject a table that the rows do not fit, and create a missing table if the options ask for it."""


def with_errors(
    publish: Publish[Target_contra, Result],
    options: SinkOptions,
    target: Target_contra,
    mode: SnapshotMode,
    schema: StructType,
    *,
    overwrite: bool,
    stream: bool,
) -> Result:
    """Return the publication of the results; with a table of errors it has the publication of rejected messages.

    Runs all checks that need no row. Raises OptionError, InputError, UnavailableError.
    """
    errors_target = target.of_errors()
    results, rejected = _table_rows(
        options, mode, schema, has_errors=errors_target is not None, overwrite=overwrite, stream=stream
    )
    errors = None
    if errors_target is not None and rejected is not None:
        errors = publish(options, errors_target, rejected, overwrite=False, errors=None)
    return publish(options, target, results, overwrite=overwrite, errors=errors)


def _table_rows(
    options: SinkOptions, mode: SnapshotMode, schema: StructType, *, has_errors: bool, overwrite: bool, stream: bool
) -> tuple[TableRows, TableRows | None]:
    """Return the results, and the rejected messages if there is a table of errors."""
    inline = options.control_rows is ControlRows.INLINE
    if inline:
        check_inline(schema)
    errors = None
    if has_errors:
        errors = TableRows(
            schema=_rejected(schema, overwrite=overwrite), mode=SnapshotMode.BATCH, has_control=False, inline=False,
            has_offsets=False, compares_content=options.compares_content(mode),
        )  # fmt: skip
        schema = StructType([field for field in schema.fields if field.name != REJECTED])
    results = TableRows(
        schema=schema, mode=mode, has_control=has_control(schema), inline=inline, has_offsets=has_offsets(schema),
        compares_content=stream and options.compares_content(mode),
    )  # fmt: skip
    return results, errors


def _rejected(schema: StructType, *, overwrite: bool) -> StructType:
    """The columns of rejected messages, batch by batch as the results."""
    check_rejected(schema)
    kind = schema[REJECTED].dataType
    if not isinstance(kind, StructType):
        raise InputError(
            f"option errorsTo: column {REJECTED} has type {kind.simpleString()}, the rows of a table are made of the "
            f"struct that aggregate(..., late='emit') gives: leave it as it is"
        )
    if overwrite:
        raise OptionError("option errorsTo: output mode complete replaces the table's rows in each batch; use append")
    return kind


def grouped_by(rows: pa.Table, by: Sequence[pa.ChunkedArray]) -> Iterator[tuple[tuple[pa.Scalar, ...], pa.Table]]:
    """Yield the rows of each group with its values, in their order of arrival. by: columns of the rows."""
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
    """Return floats as their bits: for Arrow -0.0 equals 0.0, and a partition must give back the values of its rows."""
    kind = column.type
    if not pa.types.is_floating(kind):
        return column
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)
    return pa.chunked_array([one_nan.combine_chunks().view(pa.int64() if kind == pa.float64() else pa.int32())])
