"""Transactions that the broker ended before the driver did: the batch runs again, or what was lost is said."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pyarrow as pa
import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import UnavailableError
from keyedwm.core.rows import ControlKind
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.stage import stage
from pyspark_wm_sink.limits import Limits
from tests.sink.kafka_sink import Died
from tests.tools import wait_for_markers, wait_until


def test_a_batch_of_which_a_transaction_expired_before_the_decision_is_aborted_and_runs_again(sink, committed):
    kept_report = sink.written(0, "a")
    expired_report = sink.written_and_expired(0, "b", partition=1)
    with pytest.raises(UnavailableError) as expired:
        sink.publish(0, kept_report, expired_report)
    assert "batch 0 was not published: 1 of 2 transactions were ended by the broker before" in expired.value.message
    assert expired_report.transaction.transactional_id in expired.value.message
    assert sink.open() == 0
    assert committed(sink.topic) == []
    sink.restart()
    sink.publish(0, sink.written(0, "a"), sink.written(0, "b", partition=1))
    sink.write_and_publish(1, "c")
    assert committed(sink.topic) == ["a", "b", "c"]


def test_a_batch_write_of_which_a_transaction_expired_commits_nothing(sink, committed):
    sink.ledger = None
    kept_report = sink.written(None, "a")
    expired_report = sink.written_and_expired(None, "b", partition=1)
    with pytest.raises(UnavailableError, match="the batch write was not published: 1 of 2 transactions"):
        sink.publish(None, kept_report, expired_report)
    assert committed(sink.topic) == []


def test_a_decision_of_which_a_part_expired_and_nothing_was_committed_is_aborted_and_runs_again(
    sink, committed, monkeypatch, dies_at
):
    from keyedwm.kafka.requests.transactions import end

    dies_at("decide", after=True)
    kept_report, expired_report = sink.written(0, "a"), sink.written(0, "b", partition=1)
    with pytest.raises(Died):
        sink.publish(0, kept_report, expired_report)
    monkeypatch.undo()
    end(sink.cluster, [expired_report.transaction], commit=False)  # as the broker does when the time is up
    sink.restart()
    assert sink.open() == 0
    assert committed(sink.topic) == []
    sink.publish(0, sink.written(0, "a"), sink.written(0, "b", partition=1))
    assert committed(sink.topic) == ["a", "b"]


def test_a_decided_transaction_that_was_lost_after_another_was_committed_is_a_loud_error(
    sink, committed, monkeypatch, dies_at
):
    """Half of the batch is visible, the other half is gone: neither repeating nor going on would be right."""
    from keyedwm.kafka.requests.transactions import end
    from pyspark_wm_sink.kafka.publish import LostTransactionError

    dies_at("decide", after=True)
    kept_report, expired_report = sink.written(0, "a"), sink.written(0, "b", partition=1)
    with pytest.raises(Died):
        sink.publish(0, kept_report, expired_report)
    monkeypatch.undo()
    end(sink.cluster, [kept_report.transaction], commit=True)
    end(sink.cluster, [expired_report.transaction], commit=False)
    sink.restart()
    with pytest.raises(LostTransactionError) as error:
        sink.write_and_publish(0, "a", "b")
    assert "1 of 2 transactions were not committed before the broker ended them" in error.value.message
    assert expired_report.transaction.transactional_id in error.value.message
    assert "docs/how-to/runbook.md" in str(error.value)
    with pytest.raises(LostTransactionError):
        sink.write_and_publish(1, "c")
    assert committed(sink.topic) == ["a"]


def test_a_batch_that_used_half_of_its_timeout_is_warned_about(sink, caplog, monkeypatch):
    import pyspark_wm_sink.kafka.publish as module

    report = sink.written(0, "a")
    late_ns = module.time.time_ns() + sink.timeout_ms * 600_000  # 60 % of the time-out later
    monkeypatch.setattr(module.time, "time_ns", lambda: late_ns)
    with caplog.at_level(logging.WARNING, "keyedwm.sink"):
        sink.publish(0, report)
    (share,) = re.findall(r"has been open for (\d+) % of transactionTimeout", caplog.text)
    assert 60 <= int(share) < 100


def test_a_decision_of_which_nothing_became_visible_is_replaced_by_the_batchs_next_attempt(
    sink, committed, monkeypatch, dies_at, caplog
):
    from keyedwm.kafka.requests.transactions import end

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


def test_rows_whose_control_transaction_was_lost_are_published_and_the_query_goes_on(
    sink, committed, monkeypatch, dies_at, caplog
):
    from keyedwm.kafka.requests.transactions import end
    from pyspark_wm_sink.kafka.ledger import Ledger

    sink.inline = True
    mark = ControlRow(kind=ControlKind.WATERMARK, channel="t-0", offset=1, key=0, watermark_ms=50)
    dies_at("decide", after=True)
    with pytest.raises(Died):
        sink.publish(0, sink.written(0, "a", control=(mark,)))
    monkeypatch.undo()
    (control,) = Ledger(sink.ledger).newest().control
    end(sink.cluster, [control], commit=False)  # as the broker does when the time is up
    with caplog.at_level(logging.WARNING, "keyedwm.sink"):
        sink.restart()
    assert "batch 0: the control rows were lost" in caplog.text
    sink.inline = False
    sink.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_a_task_whose_transaction_timed_out_says_so_and_names_no_other_producer(sink, monkeypatch):
    import pyspark_wm_sink.kafka.stage as module
    from keyedwm.kafka.requests.transactions import Fate, begin, fate

    transactions = []

    def begin_and_record(*arguments):
        transactions.append(begin(*arguments))
        return transactions[-1]

    def slow():
        yield pa.record_batch({"value": ["a"]})
        wait_until(
            lambda: transactions and fate(sink.cluster, transactions[0]) is Fate.ABORTED, "the broker's time-out"
        )
        wait_for_markers(
            sink.bootstrap, sink.topic
        )  # until the markers are written, rows still belong to the transaction
        yield pa.record_batch({"value": ["b"]})

    monkeypatch.setattr(module, "begin", begin_and_record)
    sink.timeout_ms = 1
    task = Task(query=sink.query, run=sink.run, batch=0, partition=3, attempt=0, number=1)
    with pytest.raises(UnavailableError, match=r"was ended by the broker before all its rows were written: .* is 1 ms"):
        stage(replace(sink.how.plan, limits=Limits(kafka_group_bytes=1)), task, slow())
