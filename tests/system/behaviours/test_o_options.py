"""O21 and O22: refused bounds and odd spellings, through Spark."""

from __future__ import annotations

import json

import pytest

LARGEST = str(2**63 - 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "option startingOffsets: 'latest' is wrong"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, r"option startingOffsets: t-0 has -1 \(latest\)"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: 'earliest' is wrong"),
        ({"endingOffsets": '{"t": {"3": -2}}'}, r"option endingOffsets: t-3 has -2 \(earliest\)"),
    ],
)
def test_bounds_that_a_batch_read_cannot_have_are_refused_when_it_is_planned(kafka, spark, options, sentence):
    """O21: not at load(), where Spark does not yet tell a batch read from a stream."""
    reader = spark.read.format("keyedwm").option("kafka.bootstrap.servers", kafka.bootstrap).option("subscribe", "t")
    frame = reader.options(**options).load()
    with pytest.raises(Exception, match=sentence):
        frame.count()


@pytest.mark.parametrize(
    ("option", "value"),
    [("endingOffsets", "latest"), ("endingTimestamp", "5"), ("endingOffsetsByTimestamp", '{"t": {"0": 5}}')],
)
def test_a_stream_takes_no_end(load, start, option, value):
    """O21: refused when the query starts, for the same reason."""
    frame = load({option: value}, subscribe="t")
    with pytest.raises(Exception, match=f"option {option} is for batch reads, a stream has no end"):
        start(frame, availableNow=True).ends()


def test_names_and_words_are_read_whatever_their_case(kafka, spark, topic_of, send, start):
    """O22: and the largest cap passes through Spark."""
    topic = topic_of()
    send(topic, 0, range(4))
    shouted = {"KAFKA.Bootstrap.SERVERS": kafka.bootstrap, "SubScribe": topic, "MaxOffsetsPerTrigger": LARGEST}
    reader = spark.readStream.format("KeyedWM").options(**shouted)
    assert start(reader.option("STARTINGOFFSETS", "EarLiEst").load(), availableNow=True).ends().values == [0, 1, 2, 3]
    start.anew()
    run = start(reader.option("startingoffsets", "laTest").load()).catches_up()
    send(topic, 0, [4])
    assert run.catches_up().values == [4]
    batch = spark.read.format("KEYEDWM").options(**shouted, STARTINGOFFSETS="EARLIEST", endingoffsets="LATEST").load()
    assert batch.count() == 5
    ends = json.dumps({topic: {"0": 2}})
    assert spark.read.format("keyedwm").options(**shouted, ENDINGOFFSETS=ends).load().count() == 2
