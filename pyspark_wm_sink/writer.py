"""The sink's entry points: check the options and return the writer of their target, a Delta or Iceberg table, or Kafka.

Rule: only the module of the target is imported: Spark starts new processes for it, and the user waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from keyedwm.core.errors import OptionError
from keyedwm.last_error import leaving_error
from pyspark_wm_sink.batch.source_columns import check_control_name, has_control, late_by_spark
from pyspark_wm_sink.options.iceberg_target import IcebergTarget
from pyspark_wm_sink.options.kafka_target import KafkaTarget
from pyspark_wm_sink.options.sink_options import DeltaTarget, SinkOptions, SnapshotMode

if TYPE_CHECKING:
    from pyspark_wm_sink.tables.publication import Publication


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return the streaming sink; every check that needs no row runs here.

    overwrite: Spark's complete mode, each batch replaces the table's rows.
    """
    sink_options = SinkOptions.parse(options)
    with leaving_error(sink_options.checkpoint, None):
        return _stream_writer(sink_options, schema, overwrite=overwrite)


def _stream_writer(sink_options: SinkOptions, schema: StructType, *, overwrite: bool) -> DataSourceStreamArrowWriter:
    check_control_name(schema)
    mode = sink_options.snapshot or (SnapshotMode.BARRIER if has_control(schema) else SnapshotMode.BATCH)
    if mode is SnapshotMode.BARRIER and not has_control(schema):
        raise OptionError(
            "option snapshot: 'barrier' needs the source's control column, which the rows lack; "
            "keep the column, or set snapshot=batch"
        )
    if isinstance(sink_options.target, KafkaTarget):
        from pyspark_wm_sink.kafka.writer import KafkaStreamWriter, kafka_publication

        how = kafka_publication(sink_options, sink_options.target, mode, schema, stream=True)
        return KafkaStreamWriter(how, late_by_spark(schema), sink_options.checkpoint)
    from pyspark_wm_sink.tables.writer import TableStreamWriter

    how_table = _table_publication(sink_options, sink_options.target, mode, schema, overwrite=overwrite, stream=True)
    return TableStreamWriter(how_table, late_by_spark(schema), sink_options.checkpoint)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return the batch sink; a batch write is one snapshot."""
    sink_options = SinkOptions.parse(options)
    target = sink_options.target
    if sink_options.snapshot is SnapshotMode.BARRIER:
        raise OptionError("option snapshot: 'barrier' is for streams; a batch write is one snapshot: leave it out")
    if target.errors_to is not None:
        raise OptionError("option errorsTo is for streams; of a batch write take rejected(df), and write it by itself")
    if sink_options.replay_check is not None:
        raise OptionError("option replayCheck is for streams; a batch write is never replayed: leave it out")
    if isinstance(target, KafkaTarget):
        from pyspark_wm_sink.kafka.writer import KafkaBatchWriter, kafka_publication

        if "ledger" in {name.lower() for name in options}:
            raise OptionError("option ledger is for streams; a batch write keeps none: leave it out")
        if overwrite:
            raise OptionError("save mode overwrite: Kafka's records cannot be replaced; use append")
        return KafkaBatchWriter(kafka_publication(sink_options, target, SnapshotMode.BATCH, schema, stream=False))
    from pyspark_wm_sink.tables.writer import TableBatchWriter

    return TableBatchWriter(
        _table_publication(sink_options, target, SnapshotMode.BATCH, schema, overwrite=overwrite, stream=False)
    )


def _table_publication(
    sink_options: SinkOptions,
    target: DeltaTarget | IcebergTarget,
    mode: SnapshotMode,
    schema: StructType,
    *,
    overwrite: bool,
    stream: bool,
) -> Publication:
    from pyspark_wm_sink.tables.rows import with_errors

    if isinstance(target, IcebergTarget):
        from pyspark_wm_sink.iceberg.publish import iceberg_publication

        return with_errors(iceberg_publication, sink_options, target, mode, schema, overwrite=overwrite, stream=stream)
    from pyspark_wm_sink.delta.publish import delta_publication

    return with_errors(delta_publication, sink_options, target, mode, schema, overwrite=overwrite, stream=stream)
