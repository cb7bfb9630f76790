"""The driver's commit against a real Kafka, step by step, broken off in every place where a driver can die."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, RegressionError, UnavailableError
from keyedwm.core.rows import ControlKind
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.stage import stage
from tests.sink.conftest import records_of
from tests.sink.kafka_sink import Died, Sink


def test_a_batch_is_invisible_until_it_is_published_and_then_there_once(sink, committed):
    reports = [sink.written(0, "a", "b"), sink.written(0, "c", partition=1), sink.written(0, partition=2)]
    assert reports[2].transaction is None
    assert committed(sink.topic, only_committed=False) == []
    sink.publish(0, *reports)
    assert committed(sink.topic) == ["a", "b", "c"]
    sink.publish(0, *reports)  # the same commit asked for twice
    assert committed(sink.topic) == ["a", "b", "c"]
    assert sink.open() == 0


def test_small_batches_and_writes_without_keys_reach_every_partition(sink, kafka, topic_of):
    sink.write_and_publish(0, "a")
    sink.write_and_publish(1, "b")
    assert [(place, value) for place, _, value, _ in records_of(kafka.bootstrap, sink.topic)] == [(0, b"a"), (1, b"b")]
    topic = topic_of(2)
    for n in range(8):
        one_sink = Sink(kafka.bootstrap, topic, None, f"write-{n}")
        one_sink.publish(None, one_sink.written(None, "c"))
    assert {place for place, *_ in records_of(kafka.bootstrap, topic)} == {0, 1}


def test_a_batch_that_comes_again_after_its_publication_adds_nothing(sink, committed):
    sink.write_and_publish(0, "a")
    sink.restart()
    sink.write_and_publish(0, "a")
    assert committed(sink.topic) == ["a"]
    assert sink.open() == 0


@pytest.mark.parametrize("step", ["decide", "seal"])
def test_a_driver_that_dies_before_its_decision_has_published_nothing(sink, committed, monkeypatch, dies_at, step):
    sink.publish_and_settle(0, sink.written(0, "a"))
    with monkeypatch.context():
        dies_at(step)
        with pytest.raises(Died):
            sink.write_and_publish(1, "b")
        monkeypatch.undo()
    assert sink.open() == 1
    sink.restart()
    assert committed(sink.topic, only_committed=False) == ["a"]
    sink.write_and_publish(1, "b")
    assert sink.open() == 0
    assert committed(sink.topic) == ["a", "b"]


def test_a_driver_that_dies_after_its_decision_publishes_at_its_next_start(sink, committed, monkeypatch, dies_at):
    sink.write_and_publish(0, "a")
    dies_at("decide", after=True)
    with pytest.raises(Died):
        sink.publish(1, sink.written(1, "b"), sink.written(1, "c", partition=1))
    monkeypatch.undo()
    assert sink.open() == 2
    sink.restart()
    assert committed(sink.topic) == ["a", "b", "c"]
    sink.publish(1, sink.written(1, "b"), sink.written(1, "c", partition=1))  # Spark runs the batch again
    assert committed(sink.topic) == ["a", "b", "c"]
    assert sink.open() == 0


def test_a_driver_that_dies_between_two_ends_publishes_the_rest_once(sink, committed, monkeypatch):
    import pyspark_wm_sink.kafka.publish as module

    def half(cluster, transactions, *, commit):
        real(cluster, transactions[:1], commit=commit)
        raise Died

    real = module.end
    with monkeypatch.context() as dying:
        dying.setattr(module, "end", half)
        with pytest.raises(Died):
            sink.publish(0, sink.written(0, "a"), sink.written(0, "b", partition=1))
    assert sink.open() == 1
    sink.run = "run-1"  # even if nobody looked before: the commit does
    sink.publish(0, sink.written(0, "a"), sink.written(0, "b", partition=1))
    assert committed(sink.topic) == ["a", "b"]


def test_a_driver_that_dies_before_it_marks_the_batch_published_does_not_publish_it_twice(
    sink, committed, monkeypatch, dies_at
):
    dies_at("mark_published")
    with pytest.raises(Died):
        sink.write_and_publish(0, "a")
    monkeypatch.undo()
    sink.restart()
    sink.write_and_publish(0, "a")
    sink.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_a_failed_attempt_is_aborted_when_its_batch_is_published(sink, committed):
    sink.written(0, "a", "b")  # its task was lost, its report never arrived
    sink.write_and_publish(0, "a", "b")
    assert sink.open() == 0
    assert committed(sink.topic) == ["a", "b"]


def test_a_refused_batch_is_aborted_at_once(sink, committed):
    mark = ControlRow(kind=ControlKind.WATERMARK, channel="t-0", offset=1, key=0, watermark_ms=50)
    sink.publish(0, sink.written(0, "a", control=(mark,)))
    with pytest.raises(RegressionError, match="channel t-0, key 0 went from 50 ms"):
        sink.publish(1, sink.written(1, "b", control=(mark,)))
    assert sink.open() == 0
    assert committed(sink.topic) == ["a"]


def test_a_ledger_that_cannot_be_written_publishes_nothing_and_can_be_tried_again(sink, committed, monkeypatch):
    import os

    sink.publish_and_settle(0, sink.written(0, "a"))
    report = sink.written(1, "b")

    def full(_handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(UnavailableError, match="No space left"):
            sink.publish(1, report)
    assert committed(sink.topic, only_committed=False) == ["a"]
    sink.publish(1, report)
    assert committed(sink.topic) == ["a", "b"]


def test_a_batch_write_needs_no_ledger(sink, committed):
    sink.ledger = None
    sink.publish(None, sink.written(None, "a"), sink.written(None, "b", partition=1))
    assert committed(sink.topic) == ["a", "b"]


def test_what_is_decided_is_never_aborted_even_if_its_end_is_refused(sink, committed, monkeypatch):
    """Rights are taken away between decision and end: the next start, with rights, carries the decision out."""
    import pyspark_wm_sink.kafka.publish as module
    from keyedwm.kafka.client.errors import AccessError

    def reject_end(cluster, transactions, *, commit):
        if commit:
            raise AccessError("not allowed")
        return real(cluster, transactions, commit=commit)

    real = module.end
    with monkeypatch.context() as denied:
        denied.setattr(module, "end", reject_end)
        with pytest.raises(AccessError):
            sink.write_and_publish(0, "a")
    assert sink.open() == 1
    sink.restart()
    assert committed(sink.topic) == ["a"]


def test_a_task_that_fails_aborts_its_transaction(sink):
    def failing():
        yield from [pa.record_batch({"value": ["x" * 1_000] * 1_000})] * 20
        raise OSError("worker lost")

    task = Task(query=sink.query, run=sink.run, batch=0, partition=0, attempt=0, number=1)
    with pytest.raises(OSError, match="worker lost"):
        stage(sink.how.plan, task, failing())
    assert sink.open() == 0


def test_a_new_driver_aborts_what_dead_ones_left_open_before_its_first_batch(sink, committed):
    from pyspark_wm_sink.kafka.ledger import Ledger
    from pyspark_wm_sink.kafka.publish import recover

    recover(sink.cluster, Ledger(sink.ledger), owner="driver-0")
    sink.write_and_publish(0, "a")
    sink.written(1, "b")  # and the driver dies
    assert sink.open() == 1
    recover(sink.cluster, Ledger(sink.ledger), owner="driver-0")  # the same driver plans its next batch
    assert sink.open() == 1
    recover(sink.cluster, Ledger(sink.ledger), owner="driver-1")
    assert sink.open() == 0
    assert committed(sink.topic) == ["a"]


def test_rows_with_the_header_of_control_records_are_refused(sink, committed):
    from keyedwm.core.inline import HEADER

    headers = [[{"key": "mine", "value": b"1"}, {"key": HEADER, "value": b"1"}], None]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch({"value": ["a", "b"], "headers": pa.array(headers, kind)})
    task = Task(query=sink.query, run=sink.run, batch=0, partition=0, attempt=0, number=1)
    plan = replace(sink.how.plan, columns=("value", "headers"))
    with pytest.raises(InputError, match=r"has the header 'keyedwm\.control' in 1 rows: the name is reserved"):
        stage(plan, task, [rows])
    assert sink.open() == 0
    assert committed(sink.topic) == []
