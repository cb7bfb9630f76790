"""The sink as Spark drives it: what is in the table after each batch, and what a refused batch leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from pyspark_wm_sink.batch.record import Record


def values(table: Path, version: int | None = None) -> list[str]:
    column = DeltaTable(table, version=version).to_pyarrow_table(columns=["value"]).column("value")
    return sorted(v.decode() for v in column.to_pylist())


def records(table: Path) -> list[Record]:
    """Oldest first."""
    history = DeltaTable(table).history()
    return [Record.from_json(commit["keyedwm"]) for commit in reversed(history) if "keyedwm" in commit]


def staged_files(table: Path) -> set[str]:
    """Parquet files next to the table that its newest version does not name."""
    there = {file.name for file in table.glob("*.parquet")} if table.exists() else set()
    return (
        there - {Path(uri).name for uri in DeltaTable(table).file_uris()} if (table / "_delta_log").exists() else there
    )


def test_each_snapshot_is_one_version_with_its_record(spark, feed, drain, table):
    feed.end_snapshot(0, (2, 2), 1_000)
    feed.end_snapshot(1, (4, 3), 2_000)
    drain(feed.read(spark))
    assert values(table) == sorted(["0:0", "0:1", "0:2", "0:3", "1:0", "1:1", "1:1", "1:2"])
    first, second = records(table)
    assert (first.batch, first.snapshot, first.rows) == (0, 0, 4)
    assert (second.batch, second.snapshot, second.rows) == (1, 1, 4)
    assert second.channels["t-0"].offset == 4
    assert second.channels["t-1"].offset == 3
    assert second.channels["t-1"].watermarks == {0: 2_000}
    assert first.query == second.query
    assert values(table, version=1) == ["0:0", "0:1", "1:0", "1:1"]
    assert "control" not in DeltaTable(table).schema().to_arrow().names


def test_control_rows_inline_are_written_too(spark, feed, drain, table):
    feed.end_snapshot(0, (1,), 1_000, count=1)
    drain(feed.read(spark), controlRows="inline")
    rows = DeltaTable(table).to_pyarrow_table().column("control").to_pylist()
    assert sorted("event" if row is None else row["kind"] for row in rows) == ["barrier", "event", "watermark"]


def test_a_replayed_batch_adds_nothing(spark, feed, drain, table, tmp_path):
    feed.end_snapshot(0, (2,), 1_000)
    feed.end_snapshot(1, (4,), 2_000)
    drain(feed.read(spark))
    version, files = DeltaTable(table).version(), staged_files(table)
    # As if the driver had died after publishing and before Spark wrote its own commit log.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    drain(feed.read(spark))
    assert DeltaTable(table).version() == version
    assert values(table) == ["0:0", "0:1", "0:2", "0:3"]
    assert staged_files(table) == files == set()


def test_a_restarted_query_goes_on_from_the_record_in_the_table(spark, feed, drain, table):
    feed.end_snapshot(0, (2,), 1_000)
    drain(feed.read(spark))
    feed.end_snapshot(1, (4,), 2_000)
    drain(feed.read(spark))
    assert [record.snapshot for record in records(table)] == [0, 1]


def test_a_regression_fails_the_query_naming_channel_key_and_both_values(spark, feed, drain, table):
    feed.end_snapshot(0, (2, 2), 2_000)
    feed.batch(
        feed.event(0, 2), feed.watermark(0, 3, 3_000), feed.watermark(1, 2, 1_500),
        feed.barrier(0, 3, 1, 2), feed.barrier(1, 2, 1, 2),
    )  # fmt: skip
    with pytest.raises(StreamingQueryException) as error:
        drain(feed.read(spark))
    assert (
        "RegressionError: the watermark of channel t-1, key 0 went from 2000 ms (1970-01-01T00:00:02.000Z) "
        "to 1500 ms (1970-01-01T00:00:01.500Z), it must increase"
    ) in str(error.value)
    assert values(table) == ["0:0", "0:1", "1:0", "1:1"]
    assert staged_files(table) == set()


def test_at_least_once_swallows_and_counts_a_regression(spark, feed, drain, table):
    feed.end_snapshot(0, (2,), 2_000)
    feed.end_snapshot(1, (4,), 2_000)
    drain(feed.read(spark), guarantee="at-least-once")
    assert [record.ignored for record in records(table)] == [0, 1]
    assert records(table)[1].channels["t-0"].watermarks == {0: 2_000}


def test_dropped_barriers_fail_the_first_batch_with_the_fix(spark, feed, drain, table):
    feed.end_snapshot(0, (2, 2), 1_000)
    with pytest.raises(StreamingQueryException) as error:
        drain(feed.read(spark).where("control IS NULL"))
    assert "none of the barrier rows of the first snapshot arrived" in str(error.value)
    assert 'keep the rows where control is not null, for example with .where("control IS NOT NULL OR (...)")' in str(
        error.value
    )
    assert "snapshot=batch" in str(error.value)
    assert not DeltaTable.is_deltatable(str(table))
    assert staged_files(table) == set()


def test_a_filter_that_loses_some_barriers_is_told_how_many(spark, feed, drain, table):
    feed.end_snapshot(0, (2, 2, 2), 1_000)
    with pytest.raises(StreamingQueryException, match=r"2 of 3 barrier rows of snapshot 0 arrived \(t-0, t-1\)"):
        drain(feed.read(spark).where("partition < 2"))
    assert staged_files(table) == set()


def test_the_fix_in_the_message_works(spark, feed, drain, table):
    feed.end_snapshot(0, (2, 2), 1_000)
    drain(feed.read(spark).where("control IS NOT NULL OR partition = 1"))
    assert values(table) == ["1:0", "1:1"]


def test_a_lost_snapshot_is_refused(spark, feed, drain, table):
    feed.end_snapshot(0, (2,), 1_000)
    feed.end_snapshot(2, (4,), 2_000)
    with pytest.raises(StreamingQueryException, match=r"snapshot 2 of channels t-0 follows snapshot 0"):
        drain(feed.read(spark))
    assert values(table) == ["0:0", "0:1"]


def test_an_event_behind_its_barrier_is_refused(spark, feed, drain, table):
    feed.batch(feed.event(0, 0), feed.barrier(0, 1, 0, 1), feed.event(0, 1))
    with pytest.raises(StreamingQueryException, match=r"channel t-0 has an event at offset 1, behind the barrier"):
        drain(feed.read(spark))
    assert staged_files(table) == set()


def test_two_sources_in_one_query_cut_separately(spark, feed, drain, table):
    # Source A: channels 0 and 1, snapshot 7 of 2. Source B: channel 2, snapshot 3 of 1; then A alone, then both.
    feed.batch(feed.event(0, 0), feed.barrier(0, 1, 7, 2), feed.barrier(1, 0, 7, 2), feed.barrier(2, 5, 3, 1))
    feed.batch(feed.event(1, 0), feed.barrier(0, 1, 8, 2), feed.barrier(1, 1, 8, 2))
    feed.batch(feed.event(2, 5), feed.barrier(0, 1, 9, 2), feed.barrier(1, 1, 9, 2), feed.barrier(2, 6, 4, 1))
    drain(feed.read(spark))
    assert [record.snapshot for record in records(table)] == [7, 8, 9]
    assert records(table)[-1].channels["t-2"].snapshot == 4
    assert values(table) == ["0:0", "1:0", "2:5"]


def test_a_batch_without_rows_still_leaves_its_record(spark, feed, drain, table):
    feed.end_snapshot(0, (2,), 1_000)
    feed.batch(feed.watermark(0, 2, 5_000), feed.watermark(None, None, 4_000), feed.barrier(0, 2, 1, 1))
    drain(feed.read(spark))
    assert records(table)[-1].rows == 0
    assert records(table)[-1].channels["t-0"].watermarks == {0: 5_000}
    assert records(table)[-1].coalesced == {0: 4_000}
    assert len(DeltaTable(table).file_uris()) == 1


def test_a_copied_checkpoint_is_caught(spark, feed, drain, table, tmp_path):
    feed.end_snapshot(0, (2,), 1_000)
    drain(feed.read(spark))
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    feed.end_snapshot(1, (4,), 2_000)
    drain(feed.read(spark))
    # The copy meets other rows as its batch 1.
    (feed.directory / "000001.parquet").unlink()
    feed.end_snapshot(1, (9,), 2_000)
    with pytest.raises(StreamingQueryException) as error:
        drain(feed.read(spark), checkpoint="copy")
    assert "FencedError: batch 1 of query" in str(error.value)
    assert "snapshot 1 at next offset 4 for channel t-0, now it comes with snapshot 1 at next offset 9" in str(
        error.value
    )
    assert values(table) == ["0:0", "0:1", "0:2", "0:3"]
    assert staged_files(table) == set()


def test_snapshot_batch_writes_any_frame(spark, drain, table, feed, tmp_path):
    feed.end_snapshot(0, (2, 2), 1_000)
    plain = feed.read(spark).where("control IS NULL").selectExpr(
        "offset", "event_time", "cast(value as string) v", "array(struct(partition as p)) deep",
        "cast(1.5 as decimal(9,2)) d", "to_date(event_time) day", "cast(event_time as timestamp_ntz) n",
    )  # fmt: skip
    drain(plain)
    rows = DeltaTable(table).to_pyarrow_table().sort_by("v").to_pylist()
    assert [(row["v"], row["offset"], row["deep"]) for row in rows] == [
        ("0:0", 0, [{"p": 0}]), ("0:1", 1, [{"p": 0}]), ("1:0", 0, [{"p": 1}]), ("1:1", 1, [{"p": 1}]),
    ]  # fmt: skip
    assert all(row["n"] == row["event_time"].replace(tzinfo=None) for row in rows)


def test_complete_mode_replaces_the_table(spark, feed, drain, table):
    feed.end_snapshot(0, (2, 2), 1_000)
    feed.end_snapshot(1, (4, 2), 2_000)
    counts = feed.read(spark).where("control IS NULL").groupBy("partition").count()
    drain(counts, mode="complete")
    rows = DeltaTable(table).to_pyarrow_table().sort_by("partition").to_pylist()
    assert [(row["partition"], row["count"]) for row in rows] == [(0, 4), (1, 4)]


def test_a_table_with_another_schema_is_refused_before_anything_is_written(spark, feed, drain, table):
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(table, pa.table({"value": ["text"], "other": [1]}))
    feed.end_snapshot(0, (2,), 1_000)
    with pytest.raises(StreamingQueryException) as error:
        drain(feed.read(spark))
    assert "InputError" in str(error.value)
    assert "value: binary in the rows, string in the table" in str(error.value)
    assert "other: long in the table, missing in the rows" in str(error.value)
    assert DeltaTable(table).version() == 0
    assert staged_files(table) == set()


def test_an_unknown_option_gets_the_nearest_name(spark, feed, drain):
    feed.end_snapshot(0, (2,), 1_000)
    with pytest.raises(
        StreamingQueryException, match=r"option snapshots is unknown to the keyedwm sink: did you mean snapshot\?"
    ):
        drain(feed.read(spark), snapshots="batch")


def test_two_targets_are_refused_in_one_sentence(spark, feed, drain):
    feed.end_snapshot(0, (2,), 1_000)
    with pytest.raises(StreamingQueryException, match=r"options path and topic name two targets"):
        drain(feed.read(spark), topic="out")


def test_a_batch_write_appends_and_overwrites(spark, table):
    frame = spark.range(10).withColumnRenamed("id", "n")
    for _ in range(2):
        frame.write.format("keyedwm").mode("append").save(str(table))
    assert DeltaTable(table).to_pyarrow_table().num_rows == 20
    frame.write.format("keyedwm").mode("overwrite").option("path", str(table)).save()
    assert sorted(DeltaTable(table).to_pyarrow_table().column("n").to_pylist()) == list(range(10))
