"""The open transaction of an attempt that was not used is aborted soon; the brokers are simulated (tests/system)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.kafka.requests.cluster import shared
from keyedwm.kafka.requests.transactions import lingering
from pyspark_wm_sink.batch.reports import merge_reports
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.publish import KafkaPublication, publish_to_kafka
from pyspark_wm_sink.kafka.stage import StagedRecords, stage
from tests.sink.test_decided import brokers, how, publish  # noqa: F401 (fixtures)


def stage_records(how: KafkaPublication, batch: int, partition: int, number: int) -> StagedRecords:  # noqa: F811
    task = Task(query="q", run="run-0", batch=batch, partition=partition, attempt=0, number=number)
    return stage(how.plan, task, [pa.record_batch({"value": [f"{partition}"], "topic": ["x"]})])


def left_open(how: KafkaPublication) -> list[str]:  # noqa: F811
    return [one.transactional_id for one in lingering(shared(how.plan.client), "q-")]


@pytest.mark.parametrize(("batch", "is_swept"), [(5, True), (6, False)])
def test_an_unused_twin_is_looked_for_where_spark_counted_more_attempts(
    how: KafkaPublication,  # noqa: F811
    batch: int,
    is_swept: bool,
) -> None:
    for before in range(batch):
        publish(how, before, "x")
    used_records = [stage_records(how, batch, 0, 10), stage_records(how, batch, 1, 12)]
    stage_records(how, batch, 1, 11)  # the twin that the driver never hears of
    publish_to_kafka(how, used_records, batch=batch)
    assert left_open(how) == ([] if is_swept else [f"q-{batch}-1-run0-11"])


@pytest.mark.parametrize(("numbers", "has_gaps"), [((4,), False), ((4, 6, 5), False), ((4, 6), True), ((), False)])
def test_a_gap_is_a_number_that_no_task_reports(how: KafkaPublication, numbers: tuple, has_gaps: bool) -> None:  # noqa: F811
    reports = [stage_records(how, 0, partition, number) for partition, number in enumerate(numbers)]
    assert merge_reports(reports, 0).has_gaps is has_gaps
