"""O10 to O13: how a batch is cut into tasks."""

from __future__ import annotations

from tests.tools import Stream, events


def ranges(stream: Stream) -> list[list[tuple[int, int, int]]]:
    """(partition, first, end) of every range of every task of the batch planned last."""
    tasks = stream.reader.partitions(stream.log[-2], stream.log[-1])
    return [[(r.channel.partition, r.start, r.end) for r in task.ranges] for task in tasks]


def values(stream: Stream) -> list[int]:
    return sorted(int(row["value"]) for row in events(stream.read()))


def test_min_partitions_makes_at_least_so_many_tasks_and_every_row_comes_once(topic_of, send, open_stream):
    """O10."""
    topic = topic_of(3)
    for partition, numbers in enumerate((range(10), range(10, 20), [20])):
        send(topic, partition, numbers)
    stream = open_stream(topic, minPartitions="6")
    stream.plan()
    assert len(ranges(stream)) >= 6
    assert values(stream) == list(range(21))


def test_max_records_per_partition_bounds_a_task_and_no_record_is_lost_or_doubled(topic_of, send, open_stream):
    """O11."""
    topic = topic_of()
    send(topic, 0, range(5))
    from_one = f'{{"{topic}": {{"0": 1}}}}'
    for most, wanted in (("4", [[(0, 1, 5)]]), ("2", [[(0, 1, 3)], [(0, 3, 5)]])):
        stream = open_stream(topic, startingOffsets=from_one, maxRecordsPerPartition=most)
        stream.plan()
        assert ranges(stream) == wanted
        assert values(stream) == [1, 2, 3, 4]


def test_min_partitions_cuts_large_ranges_only_and_nearly_equally(topic_of, send, open_stream):
    """O12."""
    topic = topic_of(2)
    send(topic, 0, range(4))
    send(topic, 1, range(4, 1_004))
    stream = open_stream(topic, minPartitions="4")
    stream.plan()
    assert ranges(stream) == [[(0, 0, 4)], [(1, 0, 333)], [(1, 333, 666)], [(1, 666, 1_000)]]
    assert values(stream) == list(range(1_004))


def test_a_partition_without_news_gets_no_task(topic_of, send, open_stream):
    """O13."""
    topic = topic_of(2)
    send(topic, 1, range(3))
    for options in ({}, {"minPartitions": "2"}, {"maxRecordsPerPartition": "3"}):
        stream = open_stream(topic, options)
        stream.plan()
        assert {partition for task in ranges(stream) for partition, _, _ in task} == {1}
