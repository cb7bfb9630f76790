"""Where a query begins, which partitions it reads, and what it says when that cannot be done."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import DataLossError, FormatError, OptionError, UnavailableError
from keyedwm.kafka.client.errors import TopicRecreatedError, UnknownTopicError
from keyedwm.testing.admin import create_partitions, delete_topic
from pyspark_wm_source.values.offsets import OFFSET_VERSION
from tests.tools import Record, Stream, cluster_at, events, make_topic, produce, remake, wait_until


def values(batch) -> list[bytes]:
    return sorted(row["value"] for row in events(batch))


def first_values(stream: Stream) -> list[bytes]:
    return values(stream.batch())


@pytest.fixture
def pair(kafka, topic_of) -> str:
    """Two partitions with records a0 a1 a2 and b0 b1 b2, at 1,000, 2,000 and 3,000 ms."""
    topic = topic_of(2)
    for at, ms in enumerate((1_000, 2_000, 3_000)):
        produce(kafka.bootstrap, topic, [Record(0, ms, b"a%d" % at), Record(1, ms, b"b%d" % at)])
    return topic


def test_latest_is_the_default_and_reads_only_what_comes_later(kafka, pair, open_stream):
    stream = open_stream(pair, startingOffsets="latest")
    assert first_values(stream) == []
    produce(kafka.bootstrap, pair, [Record(1, 4_000, b"b3")])
    assert values(stream.batch()) == [b"b3"]


def test_starting_offsets_per_partition(pair, open_stream):
    offsets_text = json.dumps({pair: {"0": 1, "1": -2}})
    assert first_values(open_stream(pair, startingOffsets=offsets_text)) == [b"a1", b"a2", b"b0", b"b1", b"b2"]
    offsets_text = json.dumps({pair: {"0": -1, "1": 2}})
    assert first_values(open_stream(pair, startingOffsets=offsets_text)) == [b"b2"]


def test_starting_offsets_must_name_every_partition_read(pair, open_stream):
    with pytest.raises(OptionError, match=rf"option startingOffsets: it must name exactly .*; {pair}-1 is missing"):
        open_stream(pair, startingOffsets=json.dumps({pair: {"0": 1}})).batch()
    with pytest.raises(OptionError, match=rf"{pair}-2 is not read"):
        open_stream(pair, startingOffsets=json.dumps({pair: {"0": 1, "1": 1, "2": 1}})).batch()


def test_starting_by_timestamp(pair, open_stream):
    assert first_values(open_stream(pair, startingTimestamp="1500")) == [b"a1", b"a2", b"b1", b"b2"]
    offsets_text = json.dumps({pair: {"0": 3_000, "1": 2_500}})
    assert first_values(open_stream(pair, startingOffsetsByTimestamp=offsets_text)) == [b"a2", b"b2"]


def test_a_timestamp_without_a_record_fails_or_starts_at_the_end(kafka, pair, open_stream):
    with pytest.raises(OptionError, match=rf"{pair}-0 has no record at or after the starting timestamp 9000 ms"):
        open_stream(pair, startingTimestamp="9000").batch()
    stream = open_stream(pair, startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest")
    assert first_values(stream) == []
    produce(kafka.bootstrap, pair, [Record(0, 10_000, b"a3")])
    assert values(stream.batch()) == [b"a3"]


def test_a_pattern_reads_what_matches_and_finds_new_topics(kafka, topic_of, new_topic, open_stream):
    stem = new_topic()
    for name in (f"{stem}-a", f"{stem}-b"):
        make_topic(kafka.bootstrap, name)
        produce(kafka.bootstrap, name, [Record(0, 1, name[-1:].encode())])
    stream = Stream(**{
        "kafka.bootstrap.servers": kafka.bootstrap, "subscribePattern": f"{stem}-[a-y]", "startingOffsets": "earliest",
    })  # fmt: skip
    assert first_values(stream) == [b"a", b"b"]
    for name in (f"{stem}-c", f"{stem}-z"):
        make_topic(kafka.bootstrap, name)
        produce(kafka.bootstrap, name, [Record(0, 1, name[-1:].encode())])
    assert wait_until(lambda: (b := stream.batch()) and values(b), "the new topic is found") == [b"c"]


def test_assigned_partitions_are_read_and_no_others(pair, open_stream, kafka):
    base = {"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "earliest"}
    assert first_values(Stream(**base, assign=json.dumps({pair: [1]}))) == [b"b0", b"b1", b"b2"]
    with pytest.raises(OptionError, match=rf"option assign: topic {pair} has no partition 7"):
        Stream(**base, assign=json.dumps({pair: [1, 7]})).batch()


def test_new_partitions_are_read_from_their_beginning(kafka, pair, open_stream):
    stream = open_stream(pair, startingOffsets="latest")
    stream.drain()
    create_partitions(cluster_at(kafka.bootstrap), pair, 3)
    produce(kafka.bootstrap, pair, [Record(2, 5_000, b"c0"), Record(2, 6_000, b"c1")])
    assert wait_until(lambda: (b := stream.batch()) and values(b), "the new partition is found") == [b"c0", b"c1"]


def test_an_absent_topic_is_named_in_sparks_words(kafka, topic, open_stream):
    sentence = rf"This server does not host this topic-partition: topic '{topic}' does not exist"
    with pytest.raises(UnknownTopicError, match=sentence):
        open_stream(topic).batch()


def test_no_broker_is_named_with_its_address(open_stream):
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.default.api.timeout.ms": "1000"}
    with pytest.raises(UnavailableError, match=r"no Kafka broker answered at 127\.0\.0\.1:9 within 1000 ms .*check"):
        open_stream("t", nobody).batch()


def test_a_newer_checkpoint_is_refused_before_kafka_is_asked(open_stream):
    stream = open_stream("t", {"kafka.bootstrap.servers": "127.0.0.1:9"})
    stream.offset = {"version": OFFSET_VERSION + 1, "batch": 3}
    sentence = f"has version {OFFSET_VERSION + 1}; this keyedwm reads versions 3 to {OFFSET_VERSION}"
    with pytest.raises(FormatError, match=sentence):
        stream.plan()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_deleted_topic_fails_the_query_naming_it(kafka, pair, open_stream, restarted):
    stream = open_stream(pair)
    stream.drain()
    delete_topic(cluster_at(kafka.bootstrap), pair)
    if restarted:
        stream.restart()

    def planned() -> None:
        wait_until(stream.plan, "the loss is noticed")

    with pytest.raises(DataLossError, match=rf"{pair}-0, {pair}-1 is gone: the topic was deleted"):
        planned()


def test_a_deleted_topic_is_let_go_when_losses_are_accepted(kafka, pair, topic_of, open_stream, caplog):
    other = topic_of()
    stream = open_stream(f"{pair},{other}", failOnDataLoss="false")
    stream.drain()
    delete_topic(cluster_at(kafka.bootstrap), pair)
    wait_until(stream.plan, "the loss is noticed")
    assert list(stream.offset["offsets"]) == [other]
    assert "is gone: the topic was deleted" in caplog.text
    produce(kafka.bootstrap, other, [Record(0, 9_000, b"x")])
    assert values(stream.batch()) == [b"x"]


def test_a_topic_made_anew_fails_the_query_as_recreated(kafka, pair, open_stream):
    stream = open_stream(pair)
    stream.drain()
    remake(kafka.bootstrap, pair, 2)
    with pytest.raises(TopicRecreatedError, match=rf"topic '{pair}' was deleted and recreated"):
        stream.plan()


def test_a_topic_made_anew_is_read_on_when_losses_are_accepted(kafka, pair, open_stream):
    stream = open_stream(pair, failOnDataLoss="false")
    stream.drain()
    remake(kafka.bootstrap, pair, 2)
    stream.drain()
    produce(kafka.bootstrap, pair, [Record(0, 4_000, b"a'"), Record(1, 4_000, b"b'")])
    assert [row["value"] for batch in stream.drain() for row in events(batch)] == [b"a'", b"b'"]


def test_a_planned_batch_whose_topic_went_away_fails_or_is_skipped(kafka, pair, open_stream):
    strict, lenient = open_stream(pair), open_stream(pair, failOnDataLoss="false")
    for stream in (strict, lenient):
        assert stream.plan()
    delete_topic(cluster_at(kafka.bootstrap), pair)
    with pytest.raises(DataLossError, match=pair):
        strict.read()
    assert events(lenient.read()) == []
