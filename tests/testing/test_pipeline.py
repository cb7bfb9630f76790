"""`keyedwm.testing.pipeline`: made-up input through the real source; a real broker gives the same rows."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.spark import aggregate, count, early, sum, tumbling  # noqa: A004 (as Spark calls it)
from keyedwm.testing.pipeline import RESTART, Record, Schema, Silence, few_tasks, run
from tests.spark.started import Started
from tests.tools import Record as Produced

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

OPTIONS = {"watermarkLag": "5 minutes", "idleTimeout": "1 minute"}
FIRST = [Record("2026-01-01 10:00", "a", 1), Record("2026-01-01 10:30", "a", 2, partition=1)]
SECOND = [Record("2026-01-01 11:30", "a", 3), Record("2026-01-01 10:59", "b", 4, partition=1)]
LATE = [Record("2026-01-01T10:20:00Z", "a", 5, partition=1)]
STEPS = [FIRST, SECOND, Silence("2 minutes"), LATE]


def hours(rows: DataFrame) -> DataFrame:
    keyed = rows.selectExpr("*", "cast(key as string) k", "cast(cast(value as string) as bigint) v")
    return aggregate(keyed, "k", tumbling("1 hour"), {"n": count(), "total": sum("v")})


def pushed_hours(read: Any) -> DataFrame:
    return aggregate(read, {"k": "key::string"}, tumbling("1 hour"), {"n": count()})


def hours_by_key(rows: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    return sorted((row["k"], row["window"]["start"].hour, row["n"], row["total"]) for row in rows)


def produced(record: Record) -> Produced:
    return Produced(record.partition, record.timestamp_ms, json.dumps(record.value).encode(), record.key.encode())


@pytest.fixture(scope="module")
def results(spark):
    return run(spark, hours, STEPS, options=OPTIONS)


def test_silence_lets_windows_close_that_an_idle_partition_held(results):
    first, second, silence, late = results
    assert first.rows == second.rows == late.rows == []
    assert "input-1" in second.held_by
    assert (second.idle, silence.idle) == (0, 2)
    assert second.watermark == dt.datetime(2026, 1, 1, 10, 54, tzinfo=dt.timezone.utc)
    assert hours_by_key(silence.rows) == [("a", 10, 2, 3), ("b", 10, 1, 4)]


def test_a_late_record_is_counted_and_changes_nothing(results):
    assert results[-1].progress[0]["late_events"] == {"input": {"1": 1}}
    assert results[-1].watermark == results[-2].watermark


def test_a_restart_behind_every_step_changes_no_result(spark, results):
    again = run(spark, hours, [*STEPS[:2], RESTART, *STEPS[2:]], options=OPTIONS, restart_each_step=True)
    assert [hours_by_key(one.rows) for one in again if one is not again[2]] == [
        hours_by_key(one.rows) for one in results
    ]


def test_the_same_records_through_a_real_broker_give_the_same_rows(spark, kafka, topic_of, tmp_path: Path, results):
    topic = topic_of(2)

    def frame() -> DataFrame:
        options = {**OPTIONS, "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
        options |= {"startingOffsets": "earliest", "idleTimeout": "3 seconds"}
        return hours(spark.readStream.format("keyedwm").options(**options).load())

    with few_tasks(spark):
        real = Started(kafka.bootstrap, frame, tmp_path)
        rows: list[dict[str, Any]] = []
        for step in (FIRST, SECOND):
            rows += [row.asDict(recursive=True) for row in real.give(topic, [produced(one) for one in step])]
        while not any(row["control"] is None for row in rows):  # until both partitions are idle
            rows += [row.asDict(recursive=True) for row in real.give(topic, [])]
        real.stop()
    events = [row for row in rows if row["control"] is None]
    assert hours_by_key(events) == hours_by_key(results[2].rows)


def test_a_pipeline_over_the_source_itself_is_given_the_source(spark):
    steps = [[Record("2026-01-01 10:00", "a")], [Record("2026-01-01 12:00", "b")]]
    results = run(spark, pushed_hours, steps, options={"watermarkLag": "0 seconds"}, pushed=True)
    assert [(row["k"], row["n"]) for row in results[1].rows] == [("a", 1)]


def test_a_pipeline_by_the_clock_is_rejected_as_its_steps_would_have_no_end(spark):
    def panes(rows):
        return aggregate(rows, "key", tumbling("1 hour"), {"n": count()}, early=early(every="1 second"))

    with pytest.raises(OptionError, match="run: the pipeline follows the clock"):
        run(spark, panes, [[Record("2026-01-01 10:00", "a")]])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Record("soon"), "event_time='soon': a text such as"),
        (lambda: Record([1]), "event_time=.1.: a text such as"),
        (lambda: Record(0, partition=-1), "partition=-1: a whole number from 0 on"),
        (lambda: run(None, hours, [Record(0)]), "step 0 is Record"),
        (lambda: run(None, hours, [["10:00"]]), "step 0 is .*a list of records"),
        (lambda: run(None, hours, [[Record(0, partition=3)]], topics={"input": 2}), "for partition 3 of topic 'input'"),
    ],
)
def test_a_wrong_step_is_refused_before_anything_runs(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


@pytest.mark.parametrize("name", ["subscribe", "kafka.bootstrap.servers", "startingoffsets", "TestClock"])
def test_an_option_that_run_sets_itself_is_refused(name):
    with pytest.raises(OptionError, match=f"option {name} is set by run itself"):
        run(None, hours, [[Record(0)]], options={name: "x"})


def test_a_span_that_is_none_is_refused():
    with pytest.raises(OptionError, match="Silence"):
        Silence("a while")


ORDER = Schema(json.dumps({
    "type": "record", "name": "order", "fields": [
        {"name": "shop", "type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}))  # fmt: skip
ORDER_MESSAGE = Schema('syntax = "proto3"; message Order { string shop = 1; int64 at = 2; }', "PROTOBUF")


@pytest.mark.parametrize(("schema", "place"), [(ORDER, "avro"), (ORDER_MESSAGE, "proto")], ids=["avro", "protobuf"])
def test_values_of_schemas_make_windows_and_a_value_without_a_head_is_counted(spark, schema, place):
    def at(minute: int, partition: int = 0) -> Record:
        return Record(0, value=schema.of({"shop": "Oslo", "at": minute * 60_000}), partition=partition)

    options = OPTIONS | {
        "value.format": "avro-confluent" if place == "avro" else "protobuf-confluent", "onBadValue": "null",
        "eventTime": f"{place}:$.at",
    }  # fmt: skip
    steps = [[at(0), at(30, 1)], RESTART, [at(90), at(91, 1), Record(0, value=b"{}")], [at(92)]]
    of_shops = lambda read: aggregate(read, {"shop": f"{place}:$.shop"}, tumbling("1 hour"), {"n": count()})  # noqa: E731
    *_, closing, last = run(spark, of_shops, steps, options=options, pushed=True)
    assert [(row["shop"], row["n"]) for row in closing.rows] == [("Oslo", 2)]
    assert last.progress[0]["bad_values"] == {"no_head": {"input": {"0": 1}}}
