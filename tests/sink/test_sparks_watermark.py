"""Spark's own watermark above the sink drops late rows: the first commit of a start says so."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from keyedwm.core.rows import FOLLOWS_COALESCED
from pyspark_wm_sink.batch.source_columns import warn_of_sparks_watermark
from pyspark_wm_sink.writer import stream_writer
from tests.sink.delta_sink import how, stage_rows


def schema(metadata):
    return StructType([StructField("window", TimestampType(), metadata=metadata), StructField("n", LongType())])


@pytest.fixture(autouse=True)
def _a_new_process():
    warn_of_sparks_watermark.cache_clear()
    yield
    warn_of_sparks_watermark.cache_clear()


def commits(path, metadata):
    """Two batches of a query whose rows have such a column."""
    writer, to = stream_writer({"path": str(path)}, schema(metadata), overwrite=False), how(path)
    for batch in range(2):
        writer.commit([stage_rows(to, [batch], batch=batch)], batch)


def test_rows_that_sparks_watermark_makes_late_are_warned_of_once_in_a_start(tmp_path, caplog):
    commits(tmp_path, {"spark.timeWindow": True, "spark.watermarkDelayMs": 10_000})
    assert caplog.text.count("Spark's own watermark is set on column window (withWatermark)") == 1
    assert "take keyedwm.spark.with_watermark(df)" in caplog.text


@pytest.mark.parametrize("metadata", [None, {"spark.watermarkDelayMs": 0, FOLLOWS_COALESCED: True}])
def test_rows_that_the_coalesced_watermark_makes_late_are_not_warned_of(tmp_path, caplog, metadata):
    commits(tmp_path, metadata)
    assert "Spark's own watermark" not in caplog.text
