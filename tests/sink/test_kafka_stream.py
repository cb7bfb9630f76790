"""The sink to Kafka as Spark drives it: what a read_committed reader finds, and what is refused before anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from tests.sink.conftest import records_of
from tests.sink.failing_task import ROWS
from tests.tools import Record, cluster_at, produce


@pytest.fixture
def to_kafka(spark, kafka, tmp_path):
    """Run a stream into Kafka until its input is used up."""

    def run(frame, topic: str | None, checkpoint: str = "checkpoint", **options: str):
        writer = frame.writeStream.format("keyedwm").trigger(availableNow=True)
        all_options = {
            "kafka.bootstrap.servers": kafka.bootstrap, "checkpointLocation": str(tmp_path / checkpoint),
            **({} if topic is None else {"topic": topic}), **options,
        }  # fmt: skip
        query = writer.options(**all_options).start()
        try:
            query.awaitTermination()
            return query.recentProgress
        finally:
            query.stop()

    return run


def values(records: list[tuple]) -> list[str]:
    return sorted((value.decode() for _, _, value, _ in records), key=lambda text: (len(text), text))


def test_o24_each_batch_is_there_once_and_counted(spark, kafka, topic_of, to_kafka, tmp_path, feed):
    topic = topic_of(1)
    rows = feed.read(spark).select(F.col("value").cast("string").alias("value"))
    progress = []
    for first in (1, 6):
        feed.batch(*[{"value": b"%d" % n} for n in range(first, first + 5)])
        progress += to_kafka(rows, topic, snapshot="batch")
        assert values(records_of(kafka.bootstrap, topic)) == [str(n) for n in range(1, first + 5)]
    assert [batch["sink"]["numOutputRows"] for batch in progress if batch["numInputRows"]] == [5, 5]


def test_o25_headers_of_a_batch_write_come_back_as_they_were(spark, kafka, topic_of):
    topic = topic_of(1)
    headers_by_value = {
        "0": None,
        "1": [],
        "2": [("once", b"1")],
        "3": [("a", b"x"), ("b", None)],
        "4": [("twice", b"2"), ("twice", b"1")],
    }
    frame = spark.createDataFrame(
        list(headers_by_value.items()), "value string, headers array<struct<key: string, value: binary>>"
    ).coalesce(1)
    frame.write.format("keyedwm").mode("append").option("kafka.bootstrap.servers", kafka.bootstrap).option(
        "topic", topic
    ).save()
    stored_headers = {
        value.decode(): headers and [(pair["key"], pair["value"]) for pair in headers]
        for _, _, value, headers in records_of(kafka.bootstrap, topic)
    }
    assert stored_headers == {**headers_by_value, "1": None}


def test_rows_go_where_the_topic_and_partition_columns_and_the_keys_say(spark, kafka, topic_of):
    from kafka.partitioner.default import murmur2

    one, two = topic_of(3), topic_of(5)
    rows = [(f"k{n}", f"v{n}", (one, two)[n % 2], n % 3 if n % 4 == 0 else None) for n in range(40)]
    frame = spark.createDataFrame(rows, "key string, value string, topic string, partition int")
    frame.write.format("keyedwm").mode("append").option("kafka.bootstrap.servers", kafka.bootstrap).save()
    for topic, count in ((one, 3), (two, 5)):
        partition_of_value = {
            value.decode(): partition for partition, _, value, _ in records_of(kafka.bootstrap, topic)
        }
        assert partition_of_value == {
            value: (murmur2(key.encode()) & 0x7FFFFFFF) % count if partition is None else partition
            for key, value, name, partition in rows
            if name == topic
        }


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_kafka_to_kafka_keeps_every_row_and_the_order_of_each_key(
    spark, kafka, topic_of, to_kafka, tmp_path, guarantee
):
    source, target = topic_of(2), topic_of(4)
    records = [Record(n % 2, 1_000 + n, b"%d" % n, b"k%d" % (n % 2)) for n in range(2_000)]
    produce(kafka.bootstrap, source, records)
    frame = (
        spark.readStream.format("keyedwm")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source})
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="700")
        .load()
    )
    to_kafka(frame.drop("partition"), target, guarantee=guarantee, **{"kafka.compression.type": "lz4"})
    stored_records = records_of(kafka.bootstrap, target)
    for key in (b"k0", b"k1"):
        assert [value for _, k, value, _ in stored_records if k == key] == [r.value for r in records if r.key == key]
    ledger = sorted(path.name for path in (tmp_path / "checkpoint" / "keyedwm").glob("*.json"))
    # Three batches with rows, one at the end, run.json and epoch.json.
    assert len(ledger) == (6 if guarantee == "exactly-once" else 0), ledger


def test_a_batch_that_spark_runs_again_adds_nothing(spark, kafka, topic_of, to_kafka, tmp_path, feed):
    topic = topic_of(2)
    for offset in (0, 1):
        feed.end_snapshot(offset, (2 * offset + 2,), 1_000 * (offset + 1))
    to_kafka(feed.read(spark).drop("partition"), topic)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    to_kafka(feed.read(spark).drop("partition"), topic)
    assert values(records_of(kafka.bootstrap, topic)) == ["0:0", "0:1", "0:2", "0:3"]
    entry = json.loads((tmp_path / "checkpoint" / "keyedwm" / "000000000001.published.json").read_text())
    assert json.loads(json.loads(entry["body"])["record"])["channels"]["t-0"]["offset"] == 4


def test_a_task_that_fails_after_writing_leaves_nothing_doubled(kafka, topic_of, tmp_path):
    """In a Spark of its own: local mode gives a task one attempt unless it is told otherwise."""
    import subprocess
    import sys

    topic = topic_of(1)
    command = [sys.executable, "-W", "ignore", "-m", "tests.sink.failing_task", kafka.bootstrap, topic, str(tmp_path)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert (tmp_path / "failed").exists()
    stored_numbers = sorted(int(value) for _, _, value, _ in records_of(kafka.bootstrap, topic))
    assert stored_numbers == list(range(ROWS))
    place = (topic, 0)
    assert cluster_at(kafka.bootstrap).latest([place])[place] > ROWS + 2  # and the two markers of what was published


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (["value"], {"topic": "TOPIC", "transactionTimeout": "1 hour"}, "3600000 ms is more than the brokers'"),
        (["value", "cast(null as string) as topic"], {}, "column topic is null in 1 rows"),
        (["value", "7 as partition"], {"topic": "TOPIC"}, "column partition says 7, topic"),
        (["repeat('x', 2000000) as value"], {"topic": "TOPIC"}, "raise the topic's max.message.bytes"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_nothing_becomes_visible(
    spark, kafka, topic_of, to_kafka, feed, columns, options, sentence
):
    topic = topic_of(2)
    feed.batch({"value": b"a"})
    rows = feed.read(spark).selectExpr(*columns)
    all_options = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(StreamingQueryException) as error:
        to_kafka(rows, all_options.pop("topic", None), snapshot="batch", **all_options)
    assert sentence in str(error.value)
    assert records_of(kafka.bootstrap, topic, only_committed=False) == []


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ("key string", {"topic": "TOPIC"}, "the rows have no column value"),
        ("value string, Key string", {"topic": "TOPIC"}, "the rows have a column Key, Kafka's sink takes key: rename"),
        ("value string", {}, "option topic is missing, and the rows have no column topic"),
        ("value string", {"topic": "missing"}, "topic 'missing', which the rows go to, does not exist"),
        ("value timestamp", {"topic": "TOPIC"}, "column value has type timestamp, Kafka's sink takes string or"),
        ("value string, partition bigint", {"topic": "TOPIC"}, "column partition has type bigint, Kafka's sink takes"),
        ("value string, headers array<string>", {"topic": "TOPIC"}, "column headers has type array<string>"),
        ("value string", {"topic": "TOPIC", "controlRows": "inline"}, "'inline' needs the source's control column"),
        ("value string", {"topic": "TOPIC", "ledger": "FILE/ledger"}, "/file is a file, a directory is expected"),
    ],
)
def test_what_can_be_known_is_refused_when_the_writer_is_made(
    spark, kafka, topic_of, tmp_path, schema, options, sentence
):
    from pyspark.sql.types import _parse_datatype_string

    from keyedwm.core.errors import KeyedwmError
    from pyspark_wm_sink.writer import stream_writer

    (tmp_path / "file").write_text("")
    topic = topic_of(1)
    all_options = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    all_options |= {"kafka.bootstrap.servers": kafka.bootstrap, "checkpointLocation": str(tmp_path / "checkpoint")}
    if "ledger" in all_options:
        all_options["ledger"] = str(tmp_path / "file" / "ledger")
    with pytest.raises(KeyedwmError) as error:
        stream_writer(all_options, _parse_datatype_string(schema), overwrite=False)
    assert sentence in error.value.message
    assert not (tmp_path / "checkpoint").exists()


def test_without_a_checkpoint_option_the_ledger_is_asked_for(spark, kafka, topic, tmp_path, feed):
    from pyspark.sql.types import StringType, StructType

    from keyedwm.core.errors import OptionError
    from pyspark_wm_sink.writer import batch_writer, stream_writer

    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    schema = StructType().add("value", StringType())
    with pytest.raises(OptionError, match=r"option ledger is missing: .* or checkpointLocation as an option"):
        stream_writer(options, schema, overwrite=False)
    with pytest.raises(OptionError, match="save mode overwrite"):
        batch_writer(options, schema, overwrite=True)


def test_a_damaged_ledger_stops_the_query_before_it_writes(spark, kafka, topic_of, to_kafka, tmp_path, feed):
    topic = topic_of(1)
    rows = feed.read(spark).select("value")
    feed.batch({"value": b"a"})
    to_kafka(rows, topic, snapshot="batch")
    entry = tmp_path / "checkpoint" / "keyedwm" / "000000000000.published.json"
    entry.write_text(entry.read_text()[:-9])
    feed.batch({"value": b"b"})
    with pytest.raises(StreamingQueryException, match=r"the ledger file .*000000000000\.published\.json is damaged"):
        to_kafka(rows, topic, snapshot="batch")
    assert values(records_of(kafka.bootstrap, topic)) == ["a"]


def test_a_failing_batch_write_leaves_nothing_visible(spark, kafka, topic_of):
    topic = topic_of(1)
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "if(id = 99, raise_error('the last row is broken'), cast(id as string)) as value"
    )
    with pytest.raises(PySparkException, match="the last row is broken"):
        frame.write.format("keyedwm").mode("append").options(
            **{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
        ).save()
    assert records_of(kafka.bootstrap, topic, only_committed=False) == []
