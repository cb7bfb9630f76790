"""The publication of a query to a Delta table, and the checks that run before a row is written."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pyspark_wm_sink.delta.features import row_rules
from pyspark_wm_sink.delta.foreign_files import check_no_foreign_files
from pyspark_wm_sink.delta.partitions import check_columns
from pyspark_wm_sink.delta.publish import DeltaPublication
from pyspark_wm_sink.delta.stage import DeltaStagePlan
from pyspark_wm_sink.delta.stats import indexed_columns
from pyspark_wm_sink.delta.storage import check_may_write
from pyspark_wm_sink.delta.table import arrow_schema, check_names, check_table, columns_of, delta_schema, open_table
from pyspark_wm_sink.options.sink_options import DeltaTarget, SinkOptions
from pyspark_wm_sink.tables.row_rules import NO_RULES, RowRules
from pyspark_wm_sink.tables.rows import TableRows


def delta_publication(
    options: SinkOptions, target: DeltaTarget, rows: TableRows, *, overwrite: bool, errors: DeltaPublication | None
) -> DeltaPublication:
    """Return the publication of rows to a table that they fit; see `tables.rows.with_errors`."""
    place = _checked_place(target, rows.columns("a Delta table"), overwrite=overwrite)
    return DeltaPublication(
        stage=DeltaStagePlan(
            path=target.path,
            storage=target.storage,
            schema=place.schema,
            has_control=rows.has_control,
            inline=rows.inline,
            has_offsets=rows.has_offsets,
            partition_by=place.partition_by,
            indexed=place.indexed,
            rules=place.rules,
            compares_content=rows.compares_content,
        ),
        mode=rows.mode,
        guarantee=options.guarantee,
        overwrite=overwrite,
        merge_schema=target.merge_schema,
        is_shared=target.is_shared,
        errors=errors,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """How rows are written to a table that is there, or to be made: their columns as it has them, and its rules."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    indexed: pa.Schema
    rules: RowRules = NO_RULES


def _checked_place(target: DeltaTarget, columns: pa.Schema, *, overwrite: bool) -> _Place:
    """Reject a table that these columns do not fit."""
    table = open_table(target.path, target.storage)
    rows_schema = delta_schema(columns)
    by = target.partition_by
    if by is None:
        by = () if table is None else tuple(table.metadata().partition_columns)
    partition_by = check_columns(by, columns) if by else ()
    if table is None:
        check_names(rows_schema)
        check_may_write(target.path)
        check_no_foreign_files(target.path, target.storage)
        return _Place(schema=columns, partition_by=partition_by, indexed=indexed_columns(columns, partition_by, {}))
    fitted = check_table(table, rows_schema, partition_by, merge=target.merge_schema, overwrite=overwrite)
    same = columns_of(fitted) == columns_of(rows_schema)
    schema = columns if same else arrow_schema(fitted)
    check_columns(partition_by, schema)
    rules = row_rules(table.schema(), schema, partition_by)
    there = arrow_schema(table.schema())
    every = pa.schema([*there, *(field for field in schema if field.name not in there.names)])  # as mergeSchema adds
    indexed = indexed_columns(every, partition_by, table.metadata().configuration)
    return _Place(schema=schema, partition_by=partition_by, indexed=indexed, rules=rules)
