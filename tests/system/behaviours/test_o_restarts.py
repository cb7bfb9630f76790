"""O15 and O16: the checkpoint decides, not the options."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, Row

AVAILABLE_NOW = {"availableNow": True}


def test_a_restart_goes_on_where_it_was_whatever_the_starting_offsets_say(topic_of, send, load, start):
    """O15: the 7 waits already when the query starts again, at `latest`; the 8 comes while it runs."""
    topic = topic_of()
    send(topic, 0, range(7))
    assert start(load(subscribe=topic, startingOffsets="earliest"), **AVAILABLE_NOW).ends().values == list(range(7))
    send(topic, 0, [7])
    run = start(load(subscribe=topic, startingOffsets="latest")).catches_up()
    send(topic, 0, [8])
    assert run.catches_up().values == [7, 8]


def test_a_planned_batch_is_read_again_exactly_as_it_was_planned(topic_of, send, load, start):
    """O16."""
    topic = topic_of()
    frame = load(subscribe=topic, startingOffsets="earliest")
    send(topic, 0, range(5))
    assert start(frame, **AVAILABLE_NOW).ends().full == [[0, 1, 2, 3, 4]]
    send(topic, 0, range(5, 10))

    def out_of_order(rows: DataFrame, number: int) -> list[Row]:
        raise RuntimeError("the sink is out of order")

    with pytest.raises(Exception, match="the sink is out of order"):
        start(frame, out_of_order, **AVAILABLE_NOW).ends()
    log = start.checkpoint / "offsets"
    planned = max(log.iterdir(), key=lambda file: int(file.name) if file.name.isdigit() else -1)
    before = planned.read_text()
    send(topic, 0, range(10, 310))
    again = start(frame, **AVAILABLE_NOW).ends()
    assert again.full == [list(range(5, 10)), list(range(10, 310))]
    assert min(again.batches) == int(planned.name)
    assert planned.read_text() == before
