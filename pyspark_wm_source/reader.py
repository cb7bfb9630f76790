"""Spark's side of the source: one reader on the driver plans, its copies on the executors read.

Rule: `partitions` and `read` work from the two offsets alone, since a restart loses all other state; what is kept
on the reader only saves time. Spark compares offsets as strings: `start` is returned untouched when nothing is new.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import AXIS_KEY, WATERMARK
from keyedwm.runtime.worker import VersionChecked, freeze_gc, freeze_planner_gc
from pyspark_wm_source.options.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_wm_source.batch_reader import BatchReader
    from pyspark_wm_source.driver.planner import Planner

_NO_LIMIT = 2**31 - 1


def row_schema(options: Mapping[str, str]) -> StructType:
    """Check every option and return the rows' schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from keyedwm.arrow.schema import axis_column

    parsed = SourceOptions.parse(options)
    schema = from_arrow_schema(arrow_schema(parsed))
    # Operators behind the source learn from the column which watermark key its axis has.
    keys = {axis_column(WATERMARK, name): axis.config.key for name, axis in parsed.axes.items() if name}
    for field in schema:
        if field.name in keys:
            field.metadata = {AXIS_KEY: keys[field.name]}
    return schema


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader; a schema given by the user must be the source's own."""
    parsed = SourceOptions.parse(options).for_stream()
    _check_schema(options, schema)
    return StreamReader(parsed)


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the batch reader; a schema given by the user must be the source's own."""
    from pyspark_wm_source.batch_reader import BatchReader

    if not options:  # Spark asks for the schema only where a table has none of its own, and there options are checked
        raise OptionError(
            "a table of a catalog (CREATE TABLE ... USING keyedwm, toTable) cannot be read, since Spark hands none of "
            "its options on: drop it, and use CREATE TEMPORARY VIEW ... USING keyedwm OPTIONS (...) or "
            'spark.read.format("keyedwm") with options'
        )
    parsed = SourceOptions.parse(options)
    _check_schema(options, schema)
    return BatchReader(parsed.for_batch(), arrow_schema(parsed))


def _check_schema(options: Mapping[str, str], schema: StructType) -> None:
    if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in row_schema(options)]:
        raise OptionError("the keyedwm source has a fixed schema: leave .schema(...) out, or use the option columns")


def arrow_schema(options: SourceOptions) -> pa.Schema:
    """Return the rows' schema in Arrow."""
    from keyedwm.arrow.schema import row_schema as arrow_row_schema

    if options.stage is not None:
        from keyedwm.operators.shuffle import EXCHANGE_SCHEMA

        return EXCHANGE_SCHEMA
    return arrow_row_schema(
        list(options.axes),
        headers=options.include_headers,
        control=options.emit_control,
        columns=options.selection.names,
        rejected=options.has_rejected_column,
        fields=options.selection.schema,
    )


class StreamReader(VersionChecked, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming source."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner_or_none: Planner | None = None

    @property
    def _planner(self) -> Planner:
        from pyspark_wm_source.driver.planner import Planner

        if self._planner_or_none is None:
            self._planner_or_none = Planner(self._options)
            if self._options.formats.has_registry:
                from pyspark_wm_source.driver.latest_schemas import warn_of_paths

                warn_of_paths(self._options)
        return self._planner_or_none

    def __getstate__(self) -> dict[str, Any]:
        """Copies on executors have the options only, never the planner's connections."""
        return {"_options": self._options, "_planner_or_none": None}

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the log ends at the first planning: later records belong to the next run."""
        self._planner.freeze()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit always, so that Spark passes ReadAllAvailable for Trigger.Once only."""
        return ReadMaxRows(min(self._options.max_offsets or _NO_LIMIT, _NO_LIMIT))

    def initialOffset(self) -> dict:
        """Resolve the starting options; the first batch records the result in the offset log."""
        return self._planner.initial(uuid.uuid4().hex).to_json()

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """Plan the next batch, or return `start` itself when nothing is new."""
        end = self._planner.next(start, once=isinstance(limit, ReadAllAvailable))
        freeze_planner_gc()
        self._planner.idle_pause.after(is_new=end is not start)
        return end

    def reportLatestOffset(self) -> dict | None:
        """Return `latestOffset` of Spark's progress: log ends (`offsets`) and the channels that block the watermark."""
        return self._planner.reported()

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        """Cut the batch into tasks."""
        return list(self._planner.splits(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split on an executor."""
        from pyspark_wm_source.task.scan import scan

        yield from scan(partition, self._options, arrow_schema(self._options))  # type: ignore[arg-type]
        freeze_gc()

    def commit(self, end: dict) -> None:
        """Do nothing: the tasks have committed the states, and Spark calls this only when it builds the next batch."""
