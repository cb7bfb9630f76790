"""O05 and O23: what Spark's progress shows of the source."""

from __future__ import annotations

from statistics import mean
from typing import Any

from tests.tools import wait_until


def backlogs(progress: dict[str, Any]) -> list[int]:
    """Unread records of every partition: newest log ends minus next offsets, both as the source gives them."""
    (source,) = progress["sources"]
    read, ends = source["endOffset"]["offsets"], source["latestOffset"]["offsets"]
    return [ends[topic][p] - read[topic][p] for topic in ends for p in ends[topic]]


def test_num_input_rows_counts_the_records(topic_of, send, load, start):
    """O05: without control rows the count is the records' own; with them it is theirs too, and a filter tells."""
    topic = topic_of(5)
    send(topic, 0, [0])
    for options in ({"emitControl": "false"}, {}):
        counted = {"rows": 0}

        def count(rows: Any, number: int, counted: dict[str, int] = counted) -> list[Any]:
            found = rows.collect()
            counted["rows"] += len(found)
            return found

        run = start(load(options, subscribe=topic, startingOffsets="latest"), count).catches_up()
        send(topic, 0, [1, 2, 3])
        wait_until(lambda run=run: run.values == [1, 2, 3], "three records")
        run.catches_up()
        assert counted["rows"] == 3
        total = sum(progress["numInputRows"] for progress in run.progress)
        assert total == 3 if options else total > 3
        run.query.stop()
        start.anew()


def test_the_backlog_shows_under_a_cap_and_is_zero_without(topic_of, send, load, start):
    """O23."""
    topic = topic_of(2)
    for partition in (0, 1):
        send(topic, partition, range(5))
    everything = {"subscribe": topic, "startingOffsets": "earliest"}
    capped = start(load(everything, maxOffsetsPerTrigger="1"), availableNow=True).ends()
    seen = [backlogs(progress) for progress in capped.progress]
    assert any(min(found) > 0 and max(found) > 0 and mean(found) > 0 for found in seen)
    assert seen[-1] == [0, 0]
    start.anew()
    free = start(load(everything), availableNow=True).ends()
    assert free.values == [*range(5), *range(5)]
    assert [backlogs(progress) for progress in free.progress] == [[0, 0]] * len(free.progress)
