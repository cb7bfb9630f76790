"""Delta tables as users have them: partitioned, growing columns, compacted, with other writers, and copied queries."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from pyspark_wm_sink.delta.partitions import directory_of, partitions_of
from pyspark_wm_sink.limits import Limits
from tests.sink.second_query import PATIENCE_S, start
from tests.sink.test_delta_stream import values
from tests.tools import SPARK_SAW_TWO, Record, produce, wait_until

ROOT = Path(__file__).parents[2]
CHANNEL = "concat_ws('-', topic, partition)"


def files_by_partition(table: Path) -> list[dict]:
    actions = pa.table(DeltaTable(table).get_add_actions()).to_pylist()
    return [action["partition"] for action in actions]


def test_a_table_is_partitioned_as_the_option_says_and_keeps_that_without_it(spark, feed, drain, table):
    rows = feed.read(spark).withColumn("channel", F.expr(CHANNEL))
    feed.end_snapshot(0, (2, 2), 1_000)
    drain(rows, partitionBy="channel, timestampType")
    feed.end_snapshot(1, (4, 4), 2_000)
    drain(rows)
    assert DeltaTable(table).metadata().partition_columns == ["channel", "timestampType"]
    result_rows = DeltaTable(table).to_pyarrow_table(columns=["channel", "value", "timestampType"]).to_pylist()
    assert {(row["channel"], row["timestampType"]) for row in result_rows} == {("t-0", 0), ("t-1", 0)}
    assert len(result_rows) == 8
    by = [(partition["channel"], partition["timestampType"]) for partition in files_by_partition(table)]
    assert sorted(by) == [("t-0", 0), ("t-0", 0), ("t-1", 0), ("t-1", 0)]
    pruned = DeltaTable(table).file_uris(file_pruning_predicate="channel = 't-1'")
    assert len(pruned) == 2
    assert all("channel=t-1/" in uri for uri in pruned)
    assert all("channel" not in pa.parquet.read_schema(uri).names for uri in DeltaTable(table).file_uris())


def at(year: int, us: int) -> dt.datetime:
    return dt.datetime(year, 1, 1, 12, 0, 0, us, tzinfo=dt.timezone.utc)


def test_partition_values_come_back_as_they_were(spark, table):
    rows = [
        ("a b/c=d%e", 1, True, dt.date(2024, 2, 29), at(2024, 123456), 0),
        ("ü", -7, False, dt.date(1969, 12, 31), at(1970, 0), 1),
        (None, None, None, None, None, 2),
    ]
    schema = "text string, whole bigint, truth boolean, day date, at timestamp, n int"
    frame = spark.createDataFrame(rows, schema)
    by = "text,whole,truth,day,at"
    frame.write.format("keyedwm").mode("append").options(path=str(table), partitionBy=by).save()
    result_rows = DeltaTable(table).to_pyarrow_table().select([*by.split(","), "n"]).to_pylist()
    expected = [dict(zip([*by.split(","), "n"], row, strict=True)) for row in rows]
    assert sorted(result_rows, key=lambda row: row["n"]) == expected


def test_rows_of_a_partition_stay_in_order_and_none_gets_lost():
    rows = pa.table({"a": ["x", None, "y", "x", None, ""], "b": [1, 1, None, 1, 1, 1], "n": range(6)})
    rows_by_key = {key: part.column("n").to_pylist() for key, part in partitions_of(rows, ["a", "b"])}
    assert rows_by_key[None, "1"] in ([1, 4], [5])  # an empty text is null in Delta's log, in a file of its own
    assert (rows_by_key["x", "1"], rows_by_key["y", None]) == ([0, 3], [2])
    assert sum(part.num_rows for _, part in partitions_of(rows, ["a", "b"])) == 6
    assert directory_of({"a": "x/../y", "b": None}) == "a=x%2F..%2Fy/b=__HIVE_DEFAULT_PARTITION__/"
    assert directory_of({"a": "你" * 29, "b": "1"}) == directory_of({str(n): "x" * 99 for n in range(6)})


@pytest.mark.parametrize(
    ("zone", "worded"),
    [
        ("UTC", "0001-01-01T12:00:00.000001Z"),
        ("America/New_York", "0001-01-01T12:00:00.000001Z"),
        (None, "0001-01-01 12:00:00.000001"),
    ],
)
def test_a_timestamp_is_worded_as_an_instant_with_all_digits_of_its_year(zone, worded):
    column = pa.array([at(1, 1)], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    assert [values for values, _ in partitions_of(pa.table({"at": column, "n": [1]}), ["at"])] == [(worded,)]


def test_timestamps_partition_a_table_whatever_zone_spark_shows_them_in(spark, table):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql("select timestamp'2024-01-01 12:00:00Z' as at, timestamp'2024-01-01 12:00:00Z' as same")
        frame.write.format("keyedwm").mode("append").options(path=str(table), partitionBy="at").save()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    (row,) = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert row["at"] == row["same"] == at(2024, 0)


def test_dates_and_narrow_numbers_of_spark_go_into_wider_columns(spark, table):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for columns in (
            "timestamp'2024-01-01 00:00:00' as at, 1L as n, 0.5D as d",
            "date'2024-01-01' as at, 1 as n, 0.5F as d",
        ):
            spark.sql(f"select {columns}").write.format("keyedwm").mode("append").save(str(table))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    one, other = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert one == other == {"at": at(2024, 0) - dt.timedelta(hours=7), "n": 1, "d": 0.5}


def test_more_partitions_than_open_files_lose_nothing(spark, table):
    frame = spark.range(0, 300, 1, 1).selectExpr("id", "id % 150 as part")
    frame.write.format("keyedwm").mode("append").options(path=str(table), partitionBy="part").save()
    result_rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in result_rows) == list(range(300))
    assert all(row["part"] == row["id"] % 150 for row in result_rows)


@pytest.mark.parametrize(
    ("partition_by", "sentence"),
    [
        ("day", "option partitionBy: the rows have no column day"),
        ("value", "column value has type binary, which cannot partition a table"),
        ("price", "column price has type decimal128(5, 2), which cannot partition a table"),
        ("topic,", "option partitionBy: 'topic,' is wrong"),
        ("topic,topic", "must be different columns"),
        ("topic,TOPIC", "must be different columns"),
    ],
)
def test_what_cannot_partition_a_table_is_refused(spark, feed, drain, table, partition_by, sentence):
    feed.end_snapshot(0, (2,), 1_000)
    rows = feed.read(spark).selectExpr("*", "cast(1 as decimal(5, 2)) as price")
    with pytest.raises(StreamingQueryException) as error:
        drain(rows, partitionBy=partition_by)
    assert sentence in str(error.value)
    assert not table.exists()


def test_nested_values_may_be_null_in_a_later_batch_than_the_first(spark, table):
    for place in ("named_struct('x', 1, 'l', array(1))", "cast(null as struct<x: int, l: array<int>>)"):
        for part in (place, "named_struct('x', cast(null as int), 'l', array(cast(null as int)))"):
            frame = spark.sql(f"select {part} as s, map('k', {part}) as m")
            frame.write.format("keyedwm").mode("append").save(str(table))
    structs = [row["s"] for row in DeltaTable(table).to_pyarrow_table().to_pylist()]
    empty = {"x": None, "l": [None]}
    assert sorted(map(str, structs)) == sorted(map(str, [{"x": 1, "l": [1]}, None, empty, empty]))


def test_rows_of_an_append_only_table_are_not_replaced(spark, table):
    write_deltalake(table, pa.table({"n": [1]}), configuration={"delta.appendOnly": "true"})
    with pytest.raises(PySparkException, match=r"delta\.appendOnly=true, so its rows cannot be replaced: append"):
        spark.sql("select 2L as n").write.format("keyedwm").mode("overwrite").save(str(table))
    spark.sql("select 2L as n").write.format("keyedwm").mode("append").save(str(table))
    assert sorted(DeltaTable(table).to_pyarrow_table().column("n").to_pylist()) == [1, 2]


def test_a_table_that_forbids_nulls_inside_its_columns_is_refused(spark, table):
    part = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    DeltaTable.create(str(table), Schema.from_arrow(pa.schema([pa.field("s", pa.list_(part))])))
    frame = spark.sql("select array(named_struct('x', cast(null as int))) as s")
    with pytest.raises(PySparkException, match=r"field s\.element\.x is not null"):
        frame.write.format("keyedwm").mode("append").save(str(table))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ("null", "type void, and a Delta table cannot hold void: cast it"),
        ("array(null)", "type array<void>, and a Delta table cannot hold void: cast it"),
        ("parse_json('1')", "type variant, and a Delta table cannot hold variant: cast it"),
        ("interval '1' month", "type interval month, and a Delta table cannot hold interval month: cast it"),
        ("named_struct()", "type struct<>, and a Delta table cannot hold struct<>: cast it"),
    ],
)
def test_a_type_that_readers_of_tables_do_not_know_is_refused(spark, table, column, sentence):
    frame = spark.sql(f"select 1 as a, {column} as v")
    with pytest.raises(PySparkException) as error:
        frame.write.format("keyedwm").mode("append").save(str(table))
    assert f"column v has {sentence}" in str(error.value)
    assert not table.exists()


def test_another_partitioning_than_the_tables_is_refused(spark, feed, drain, table):
    feed.end_snapshot(0, (2,), 1_000)
    drain(feed.read(spark), partitionBy="topic")
    feed.end_snapshot(1, (4,), 2_000)
    with pytest.raises(StreamingQueryException, match="is partitioned by topic, option partitionBy says partition"):
        drain(feed.read(spark), partitionBy="partition")
    assert len(values(table)) == 2


def test_new_columns_are_refused_with_the_fix_and_added_with_it(spark, feed, drain, table):
    rows = feed.read(spark)
    feed.end_snapshot(0, (2,), 1_000)
    drain(rows)
    feed.end_snapshot(1, (4,), 2_000)
    wider = rows.withColumn("length", F.length("value")).drop("key")
    with pytest.raises(StreamingQueryException, match=r"length: integer in the rows, missing.*mergeSchema=true adds"):
        drain(wider)
    drain(wider, mergeSchema="true")
    feed.end_snapshot(2, (6,), 3_000)
    drain(rows, mergeSchema="true")  # and narrower rows again
    result_rows = DeltaTable(table).to_pyarrow_table(columns=["value", "length", "key"]).to_pylist()
    lengths = {row["value"].decode(): row["length"] for row in result_rows}
    assert lengths == {"0:0": None, "0:1": None, "0:2": 3, "0:3": 3, "0:4": None, "0:5": None}
    for keep, count in (("length is null", 4), ("length = 3", 2)):
        assert _count(spark, table, keep) == count


def _count(spark, table: Path, condition: str) -> int:
    from deltalake import QueryBuilder

    query = "select count(*) as n from t where " + condition  # noqa: S608 - a test's own words
    query_result = QueryBuilder().register("t", DeltaTable(table)).execute(query)
    return pa.table(query_result.read_all()).column("n")[0].as_py()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: rows.withColumn("offset", F.col("offset").cast("string")), "offset: string in the rows, long in"),
        (lambda rows: rows.withColumnRenamed("value", "VALUE"), "VALUE: spelled value in the table"),
    ],
)
def test_columns_of_another_type_or_spelling_are_refused_whatever_is_merged(
    spark, feed, drain, table, change, sentence
):
    feed.end_snapshot(0, (2,), 1_000)
    drain(feed.read(spark))
    feed.end_snapshot(1, (4,), 2_000)
    with pytest.raises(StreamingQueryException) as error:
        drain(change(feed.read(spark)), mergeSchema="true")
    assert sentence in str(error.value)
    assert DeltaTable(table).version() == 1


def test_a_table_compacted_and_vacuumed_between_batches_goes_on_and_replays_add_nothing(
    spark, feed, drain, table, tmp_path
):
    for snapshot in range(4):
        feed.end_snapshot(snapshot, (2 * snapshot + 2, 2 * snapshot + 2), 1_000 * (snapshot + 1))
    drain(feed.read(spark))
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    DeltaTable(table).create_checkpoint()
    assert len(DeltaTable(table).file_uris()) == 1
    for name in ("3", ".3.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    feed.end_snapshot(4, (10, 10), 5_000)
    drain(feed.read(spark))
    assert values(table) == sorted(f"{p}:{n}" for p in (0, 1) for n in range(10))


def test_foreign_writers_between_batches_disturb_nothing(spark, feed, drain, table):
    feed.end_snapshot(0, (2,), 1_000)
    drain(feed.read(spark))
    foreign = DeltaTable(table).to_pyarrow_table().slice(0, 1).set_column(1, "value", [[b"foreign"]])
    for snapshot in (1, 2):
        write_deltalake(table, foreign, mode="append")
        feed.end_snapshot(snapshot, (2 * snapshot + 2,), 1_000 * (snapshot + 1))
        drain(feed.read(spark))
    assert values(table) == sorted([f"0:{n}" for n in range(6)] + ["foreign"] * 2)


def test_large_tasks_make_several_files_of_a_good_size(spark, table):
    from pyspark_wm_sink.tables.stage import stage
    from tests.sink.delta_sink import how

    plan = replace(how(table).stage, limits=Limits(table_file_bytes=100_000, table_group_bytes=50_000))
    rows = [pa.record_batch({"value": pa.array([f"{n:08d}{n * 7919 % 10**9}" for n in range(k, k + 5_000)])})
            for k in range(0, 100_000, 5_000)]  # fmt: skip
    schema = pa.schema([("value", pa.string())])
    staged_files = stage(replace(plan, schema=schema, has_control=False, has_offsets=False), _task(), rows)
    assert sum(file.rows for file in staged_files.files) == 100_000
    assert len(staged_files.files) > 3
    assert all(file.size >= 100_000 for file in staged_files.files[:-1])


def _task():
    from pyspark_wm_sink.batch.task import Task

    return Task(query="q", run="r", batch=0, partition=0, attempt=0)


class Copies:
    """The first of two copies of one query, here, and the second in a Spark of its own."""

    def __init__(self, spark, kafka, topic: str, table: Path, directory: Path) -> None:
        self._spark, self._bootstrap, self._topic, self._table = spark, kafka.bootstrap, topic, table
        self._directory = directory
        self.first = self._started()

    def _started(self):
        return start(self._spark, self._bootstrap, self._topic, str(self._table), str(self._directory / "first"))

    def copy(self) -> None:
        """Stop the first for as long as copying its checkpoint takes."""
        self.first.processAllAvailable()
        self.first.stop()
        shutil.copytree(self._directory / "first", self._directory / "copy")
        self.first = self._started()

    def second(self, checkpoint: str) -> subprocess.Popen:
        place = [str(self._table), str(self._directory / checkpoint)]
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.sink.second_query",
            self._bootstrap,
            self._topic,
            *place,
        ]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def send(self, *texts: str) -> None:
        produce(self._bootstrap, self._topic, [Record(0, 1_000, value.encode()) for value in texts])

    def again(self) -> None:
        """Start the first again."""
        self.first = self._started()

    def reach(self, *texts: str, anew: bool = False) -> None:
        """Wait for the table to hold this; the first copy must be alive, or is started `anew` when it has stopped."""

        def there() -> bool:
            stopped = self.first.exception()
            if stopped is not None and anew:
                self.again()
            else:
                assert stopped is None, str(stopped)
            return (self._table / "_delta_log").exists() and values(self._table) == sorted(texts)

        wait_until(there, f"{texts} in the table", PATIENCE_S)


@pytest.fixture
def copies(spark, kafka, topic_of, table, tmp_path):
    pair_of_copies = Copies(spark, kafka, topic_of(1), table, tmp_path)
    yield pair_of_copies
    pair_of_copies.first.stop()


def ended(second: subprocess.Popen) -> str:
    """What stopped the second copy."""
    try:
        return second.communicate(timeout=2 * PATIENCE_S)[0]
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
            second.communicate()


def test_a_second_query_on_a_copied_checkpoint_stops_and_the_first_goes_on(copies):
    copies.send("a")
    copies.reach("a")
    copies.copy()
    copies.send("b")
    copies.reach("a", "b")
    copies.first.processAllAvailable()
    copies.send("c")
    copies.reach("a", "b", "c")
    copies.first.processAllAvailable()
    assert "two queries run from copies of one checkpoint" in ended(copies.second("copy"))
    copies.send("d")
    copies.reach("a", "b", "c", "d")
    assert copies.first.isActive


def test_of_two_queries_on_one_checkpoint_one_stops_and_nothing_is_doubled(copies):
    copies.send("a")
    copies.reach("a")
    second = copies.second("first")
    sent_texts = ["a"]

    def one_stopped() -> bool:
        sent_texts.append(f"{len(sent_texts)}")
        copies.send(sent_texts[-1])
        time.sleep(0.5)
        return second.poll() is not None or not copies.first.isActive

    try:
        wait_until(one_stopped, "one of the two stopped", PATIENCE_S)
        stopped = copies.first.exception()
        error_text = str(stopped) if stopped is not None else ended(second)
        assert re.search(f"{SPARK_SAW_TWO}|two queries run from", error_text), error_text
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
            second.communicate()
    # The first may still meet what the second has just written: then it stops too, once.
    copies.reach(*sent_texts, anew=True)
