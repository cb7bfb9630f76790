"""What tests/conftest.py hands out is real."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa

from keyedwm.testing.broker import WAYS, answers


def test_the_shared_kafka_answers_and_says_how_it_was_found(kafka):
    assert answers(kafka.bootstrap)
    assert kafka.way in WAYS


def test_topic_names_are_fresh(topic, new_topic):
    assert len({topic, new_topic(), new_topic()}) == 3


def test_sparks_workers_run_the_interpreter_of_the_tests(spark):
    def interpreter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    rows = spark.range(1).mapInArrow(interpreter, "path string").collect()
    assert [row.path for row in rows] == [sys.executable]


def test_spark_keeps_utc(spark):
    assert spark.sql("SELECT current_timezone() AS zone").first().zone == "UTC"
