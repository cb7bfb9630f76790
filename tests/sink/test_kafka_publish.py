"""The driver's commit against a real Kafka, step by step, broken off in every place where a driver can die."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace

import pytest

from keyedwm.arrow.rows import ControlRow
from keyedwm.core.errors import FencedError, InputError, RegressionError, UnavailableError
from keyedwm.core.rows import Kind
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.options import SnapshotMode
from tests.sink.conftest import records_of
from tests.sink.kafka_sink import Sink
from tests.tools import wait_until


class Died(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.fixture
def sink(kafka, topic_of, tmp_path):
    return Sink(kafka.bootstrap, topic_of(2), tmp_path / "ledger", f"q-{uuid.uuid4().hex}")


@pytest.fixture
def dies_at(monkeypatch):
    """Let the driver die instead of doing a step of its commit."""

    def at(step: str, *, after: bool = False) -> pytest.MonkeyPatch:
        import pyspark_wm_sink.kafka_publish as module

        place = module if hasattr(module, step) else module.Ledger
        real = getattr(place, step)

        def die(*args, **named):
            if after:
                real(*args, **named)
            raise Died

        monkeypatch.setattr(place, step, die)

    return at


def test_a_batch_is_invisible_until_it_is_published_and_then_there_once(sink, committed):
    reports = [sink.written(0, "a", "b"), sink.written(0, "c", partition=1), sink.written(0, partition=2)]
    assert reports[2].transaction is None
    assert committed(sink.topic, settled=False) == []
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
        alone = Sink(kafka.bootstrap, topic, None, f"write-{n}")
        alone.publish(None, alone.written(None, "c"))
    assert {place for place, *_ in records_of(kafka.bootstrap, topic)} == {0, 1}


def test_a_batch_that_comes_again_after_its_publication_adds_nothing(sink, committed):
    sink.write_and_publish(0, "a")
    sink.restart()
    sink.write_and_publish(0, "a")
    assert committed(sink.topic) == ["a"]
    assert sink.open() == 0


@pytest.mark.parametrize("step", ["decide", "seal"])
def test_a_driver_that_dies_before_its_decision_has_published_nothing(sink, committed, monkeypatch, dies_at, step):
    sink.write_and_publish(0, "a")
    with monkeypatch.context():
        dies_at(step)
        with pytest.raises(Died):
            sink.write_and_publish(1, "b")
        monkeypatch.undo()
    assert sink.open() == 1
    sink.restart()
    assert committed(sink.topic, settled=False) == ["a"]
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
    import pyspark_wm_sink.kafka_publish as module

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
    mark = ControlRow(kind=Kind.WATERMARK, channel="t-0", offset=1, key=0, watermark_ms=50)
    sink.publish(0, sink.written(0, "a", control=(mark,)))
    with pytest.raises(RegressionError, match="channel t-0, key 0 went from 50 ms"):
        sink.publish(1, sink.written(1, "b", control=(mark,)))
    assert sink.open() == 0
    assert committed(sink.topic) == ["a"]


def test_a_decided_transaction_that_the_broker_timed_out_is_a_loud_error(sink, committed, monkeypatch, dies_at):
    """Half of the batch is visible, the other half is gone: neither repeating nor going on would be right."""
    from pyspark_wm_sink.kafka_publish import LostTransactionError

    kept = sink.written(0, "a")
    sink.timeout_ms = 1
    gone = sink.written(0, "b", partition=1)
    wait_until(lambda: sink.open() == 1, "the broker's time-out")
    with pytest.raises(LostTransactionError) as lost:
        sink.publish(0, kept, gone)
    assert "1 of 2 transactions were not committed before the broker ended them" in lost.value.message
    assert gone.transaction.transactional_id in lost.value.message
    assert "docs/delivery.md" in str(lost.value)
    sink.timeout_ms = 60_000
    sink.restart()
    with pytest.raises(LostTransactionError):
        sink.write_and_publish(0, "a", "b")
    with pytest.raises(LostTransactionError):
        sink.write_and_publish(1, "c")
    assert committed(sink.topic) == ["a"]


def test_a_decision_of_which_nothing_became_visible_is_replaced_by_the_batchs_next_attempt(
    sink, committed, monkeypatch, dies_at, caplog
):
    from keyedwm.kafka.transactions import end

    sink.write_and_publish(0, "a")
    dies_at("decide", after=True)
    report = sink.written(1, "b")
    with pytest.raises(Died):
        sink.publish(1, report)
    monkeypatch.undo()
    end(sink.cluster, [report.transaction], commit=False)  # as the broker does when the time is up
    sink.restart()
    with caplog.at_level(logging.WARNING, "keyedwm.sink"):
        sink.write_and_publish(1, "b")
    assert "the broker had aborted all of it" in caplog.text
    assert committed(sink.topic) == ["a", "b"]


def test_a_run_that_was_replaced_is_fenced(sink, committed):
    sink.write_and_publish(0, "a")
    zombie = replace(sink)
    sink.restart()
    sink.write_and_publish(1, "b")
    with pytest.raises(FencedError, match=rf"run {sink.run} of query {sink.query} has taken over the ledger"):
        zombie.write_and_publish(1, "z")
    assert sink.open() == 0
    assert committed(sink.topic) == ["a", "b"]


def test_a_copy_of_the_checkpoint_fences_the_query_it_was_copied_from(sink, committed, tmp_path):
    import shutil

    sink.write_and_publish(0, "a")
    copy = replace(sink, ledger=tmp_path / "copy", run="run-copy")
    shutil.copytree(sink.ledger, copy.ledger)
    copy.write_and_publish(1, "b")
    with pytest.raises(FencedError, match="two queries run from copies of one checkpoint"):
        sink.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_a_ledger_that_lacks_batches_is_refused_and_goes_on_without_its_entries(sink, committed):
    def cut(batch: int) -> None:
        barrier = ControlRow(kind=Kind.BARRIER, offset=batch, channel="t-0", snapshot=batch, channels=1)
        sink.publish(batch, sink.written(batch, f"{batch}", control=(barrier,)))

    sink.mode = SnapshotMode.BARRIER
    cut(0)
    sink.guarantee, ledger, sink.ledger = Guarantee.AT_LEAST_ONCE, sink.ledger, None
    cut(1)
    sink.guarantee, sink.ledger = Guarantee.EXACTLY_ONCE, ledger
    with pytest.raises(InputError, match=r"where 1 was to come: .* were written at-least-once \(see the runbook"):
        cut(2)
    for entry in ledger.glob("*.published.json"):
        entry.unlink()
    cut(2)
    assert committed(sink.topic) == ["0", "1", "2"]


def test_a_published_batch_that_comes_with_other_offsets_is_refused(sink, committed):
    def barrier(offset):
        return ControlRow(kind=Kind.BARRIER, channel="t-0", snapshot=0, channels=1, offset=offset)

    sink.mode = SnapshotMode.BARRIER
    sink.publish(0, sink.written(0, "a", control=(barrier(1),)))
    sink.restart()
    with pytest.raises(FencedError, match=r"is in the ledger .* with snapshot 0 at next offset 1 for channel t-0"):
        sink.publish(0, sink.written(0, "x", control=(barrier(2),)))
    assert sink.open() == 0
    assert committed(sink.topic) == ["a"]


def test_a_ledger_belongs_to_one_query(sink):
    sink.write_and_publish(0, "a")
    with pytest.raises(InputError, match=f"belongs to query {sink.query}, this is query other"):
        replace(sink, query="other").write_and_publish(0, "b")


def test_a_ledger_that_cannot_be_written_publishes_nothing_and_can_be_tried_again(sink, committed, monkeypatch):
    import os

    sink.write_and_publish(0, "a")
    report = sink.written(1, "b")

    def full(_handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(UnavailableError, match="No space left"):
            sink.publish(1, report)
    assert committed(sink.topic, settled=False) == ["a"]
    sink.publish(1, report)
    assert committed(sink.topic) == ["a", "b"]


def test_a_batch_write_needs_no_ledger(sink, committed):
    sink.ledger = None
    sink.publish(None, sink.written(None, "a"), sink.written(None, "b", partition=1))
    assert committed(sink.topic) == ["a", "b"]


def test_what_is_decided_is_never_aborted_even_if_its_end_is_refused(sink, committed, monkeypatch):
    """Rights are taken away between decision and end: the next start, with rights, carries the decision out."""
    import pyspark_wm_sink.kafka_publish as module
    from keyedwm.kafka.errors import AccessError

    def refused(cluster, transactions, *, commit):
        if commit:
            raise AccessError("not allowed")
        return real(cluster, transactions, commit=commit)

    real = module.end
    with monkeypatch.context() as denied:
        denied.setattr(module, "end", refused)
        with pytest.raises(AccessError):
            sink.write_and_publish(0, "a")
    assert sink.open() == 1
    sink.restart()
    assert committed(sink.topic) == ["a"]
