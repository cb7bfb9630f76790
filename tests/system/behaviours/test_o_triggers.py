"""O01, O02 and O04: what the triggers and the limits make of a backlog."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, Row

from keyedwm.testing.admin import create_partitions
from tests.tools import cluster_at, events, remake, wait_until

AVAILABLE_NOW = {"availableNow": True}
ONCE = {"once": True}


def test_available_now_reads_a_backlog_in_capped_batches_and_stops(topic_of, send, load, start):
    """O01."""
    topic = topic_of(5)
    send(topic, 0, range(15))
    run = start(load(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5"), **AVAILABLE_NOW).ends()
    assert run.full == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]


def test_available_now_ends_with_what_was_there_at_its_start(topic_of, send, load, start):
    """O02."""
    topic = topic_of(5)
    send(topic, 0, range(15))
    frame = load(subscribe=topic, startingOffsets="earliest")

    def meanwhile(rows: DataFrame, number: int) -> list[Row]:
        if number == 0:
            send(topic, 0, range(15, 25))
        return rows.collect()

    assert start(frame, meanwhile, **AVAILABLE_NOW).ends().values == list(range(15))
    assert start(frame, **AVAILABLE_NOW).ends().values == list(range(15, 25))


@pytest.mark.parametrize("partitions", [1, 2], ids=["partition gone", "end shrunk"])
def test_available_now_fails_when_what_it_froze_is_gone_even_if_losses_are_accepted(
    kafka, topic_of, send, load, start, partitions
):
    topic = topic_of(2)
    send(topic, 0, range(15))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"}

    def then_remade(rows: DataFrame, number: int) -> list[Row]:
        found = rows.collect()
        remake(kafka.bootstrap, topic, partitions)
        return found

    run = start(load(options, subscribe=topic), then_remade, **AVAILABLE_NOW)
    with pytest.raises(Exception, match=f"'{topic}' was deleted and recreated.*AvailableNow had planned to read"):
        run.ends()


def test_available_now_starts_again_on_an_unfinished_batch_and_finds_new_partitions(kafka, topic_of, send, load, start):
    topic = topic_of()
    send(topic, 0, range(3))
    frame = load(subscribe=topic, startingOffsets="earliest")
    with pytest.raises(Exception, match="the sink is out of order"):
        start(frame, out_of_order, **AVAILABLE_NOW).ends()
    create_partitions(cluster_at(kafka.bootstrap), topic, 2)
    send(topic, 1, range(10, 13))
    assert start(frame, **AVAILABLE_NOW).ends().full == [[0, 1, 2], [10, 11, 12]]


def out_of_order(rows: DataFrame, number: int) -> list[Row]:
    raise RuntimeError("the sink is out of order")


def test_once_reads_all_there_is_whatever_the_limits(topic_of, send, load, start):
    topic = topic_of()
    send(topic, 0, range(15))
    limits = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "4", "maxTriggerDelay": "1 hour"}
    frame = load(limits, subscribe=topic, startingOffsets="earliest")
    assert start(frame, **ONCE).ends().batches == {0: list(range(15))}
    send(topic, 0, [15])
    assert start(frame, **ONCE).ends().full == [[15]]


@pytest.mark.parametrize(("delay", "released"), [("1 hour", False), ("2 seconds", True)])
def test_a_small_backlog_waits_and_a_large_one_is_capped(topic_of, send, load, start, delay, released):
    """O04: shares are rounded down, so a capped batch may miss its limit by a record and never exceeds it."""
    topic = topic_of(3)
    send(topic, 0, range(100, 121))
    send(topic, 1, range(10, 21))
    send(topic, 2, [1])
    limits = {"minOffsetsPerTrigger": "15", "maxOffsetsPerTrigger": "20", "maxTriggerDelay": delay}
    run = start(load(limits, subscribe=topic, startingOffsets="earliest")).catches_up()
    first = [*range(100, 112), *range(10, 16), 1]  # 20 over backlogs 21, 11, 1
    assert run.full[0] == first
    if not released:
        assert run.full == [first]  # 14 are waiting
        send(topic, 0, range(121, 129))
        send(topic, 1, range(21, 31))
        send(topic, 2, [2])
        second = wait_until(lambda: len(run.full) > 1 and run.full[1], "there are enough for the next batch")
        assert 19 <= len(second) <= 20  # planned with 22, 32 or all 33 of them in sight
        assert run.catches_up().full == [first, second]  # 13 or 14 are waiting
    else:
        rest = [*range(112, 121), *range(16, 21)]
        assert wait_until(lambda: len(run.full) > 1 and run.full[1], "the delay is over") == rest


def test_the_first_read_after_a_restart_never_waits(topic_of, send, open_stream):
    topic = topic_of()
    send(topic, 0, range(3))
    stream = open_stream(topic, minOffsetsPerTrigger="10", maxTriggerDelay="1 hour")
    assert len(events(stream.batch())) == 3
    stream.drain()
    send(topic, 0, [3])
    assert stream.batch() is None
    stream.restart()
    assert [row["value"] for row in events(stream.batch())] == [b"3"]
