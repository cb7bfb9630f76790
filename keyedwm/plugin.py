"""The one class behind `format("keyedwm")`.

Rule: Spark's discovery keeps one class per format name, that of the package it read last. So both plugin packages
export this one class. It imports the reader or the writer only when Spark asks for one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from keyedwm.runtime import early_host
from keyedwm.runtime.worker import VersionChecked, leave_quietly

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

FORMAT = "keyedwm"


class DefaultSource(VersionChecked, DataSource):
    """A Kafka source with extra rows (control rows) for watermarks, idle partitions and barriers; and the sink."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the source's row schema; every option is checked here, so that `load()` fails cleanly."""
        early_host.start_for_source()
        return _half("pyspark_wm_source.reader").row_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch source."""
        return _half("pyspark_wm_source.reader").batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming source."""
        return _half("pyspark_wm_source.reader").stream_reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the streaming sink."""
        return _half("pyspark_wm_sink.writer").stream_writer(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the batch sink."""
        return _half("pyspark_wm_sink.writer").batch_writer(self.options, schema, overwrite)


def _half(module: str) -> Any:
    """Import the module of the reader or writer on demand: a worker that only reads never loads the writer."""
    return import_module(module)


leave_quietly()  # Spark imports this in each worker that it asks about the source or the sink
