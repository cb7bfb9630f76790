"""O06, O07 and O17: topics that come, go and grow while a query runs."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, Row

from keyedwm.testing.admin import create_partitions, delete_topic
from tests.tools import cluster_at, make_topic, remake, wait_until

LENIENT = {"failOnDataLoss": "false"}


def test_a_pattern_survives_a_deleted_topic_and_finds_the_next_one(kafka, new_topic, send, load, start):
    """O06."""
    stem = new_topic()
    make_topic(kafka.bootstrap, f"{stem}-a")
    send(f"{stem}-a", 0, [1, 2, 3])
    run = start(load(LENIENT, subscribePattern=f"{stem}-.*", startingOffsets="earliest")).catches_up()
    delete_topic(cluster_at(kafka.bootstrap), f"{stem}-a")
    make_topic(kafka.bootstrap, f"{stem}-b")
    send(f"{stem}-b", 0, [4, 5, 6])
    wait_until(lambda: run.values == [1, 2, 3, 4, 5, 6], "the records of the second topic")
    assert run.query.isActive


@pytest.mark.parametrize("again", [0, 3], ids=["empty", "shorter"])
def test_a_topic_made_anew_while_tasks_read_it_does_not_fail_the_query(kafka, topic_of, send, load, start, again):
    """O07: five tasks of two records, run one after the other; the topic goes when the first is through."""
    topic = topic_of()
    send(topic, 0, range(10))

    def one_by_one(rows: DataFrame, number: int) -> list[Row]:
        found = []
        for row in rows.toLocalIterator():
            if number == 0 and not found:
                remake(kafka.bootstrap, topic, 1)
                send(topic, 0, range(100, 100 + again))
            found.append(row)
        return found

    options = LENIENT | {"maxRecordsPerPartition": "2", "kafkaConsumer.pollTimeoutMs": "1000"}
    run = start(load(options, subscribe=topic, startingOffsets="earliest"), one_by_one)
    wait_until(lambda: ends_at(run) == again, "the query stands at the new topic's end")
    # The topic's id tells the two apart: what was left of the first is lost, and the second is read from its beginning.
    # Spark's own source passes over records 100 and 101, whose offsets it read in the first topic.
    assert run.values == [0, 1, *range(100, 100 + again)]
    send(topic, 0, [200, 201])
    wait_until(lambda: run.values[-2:] == [200, 201], "the new topic's records")
    assert run.query.isActive


def ends_at(run) -> int | None:
    told = [progress["sources"][0].get("endOffset") for progress in run.progress]
    newest = next((end for end in reversed(told) if end), None)  # an idle query tells none
    return next(iter(newest["offsets"].values()))["0"] if newest else None


def test_new_partitions_are_read_from_their_beginning_though_the_query_starts_at_latest(
    kafka, topic_of, send, load, start
):
    """O17."""
    topic = topic_of(3)
    run = start(load(subscribe=topic, startingOffsets="latest")).catches_up()
    create_partitions(cluster_at(kafka.bootstrap), topic, 6)
    for partition in (3, 4, 5):
        send(topic, partition, range(partition * 20, partition * 20 + 20))
    wait_until(lambda: len(run.values) >= 60, "the records of the new partitions")
    assert sorted(run.catches_up().values) == list(range(60, 120))
