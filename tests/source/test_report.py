"""What the user is told: who holds the watermark, and why."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from keyedwm.testing.broker import Broker
from tests.tools import Record, Stream, produce


def test_the_slowest_partition_and_its_backlog_are_named(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 50_000 + n) for n in range(10)] + [Record(1, n) for n in range(90)])
    stream = open_stream(topic, {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"})
    for _ in range(2):
        stream.batch()
    facts = stream.reader.reportLatestOffset()
    assert facts["offsets"] == {topic: {"0": 10, "1": 90}}
    assert facts["held_by"] == {"0": f"{topic}-1 at 1970-01-01T00:00:00.008Z: backlog 81"}
    assert (facts["batch"], facts["reads"], facts["idle"]) == (1, 10, 0)


def test_a_partition_without_any_watermark_holds_first(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 50_000)])
    stream = open_stream(topic, {"startingOffsets": "earliest"})
    stream.drain()
    blocking_partition = stream.reader.reportLatestOffset()["held_by"]["0"]
    assert blocking_partition.startswith(f"{topic}-1 without a watermark: no record since 20")


def test_unreadable_event_times_are_named_as_the_reason(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [Record(0, 1, b"no json")] * 3)
    stream = open_stream(topic, {"startingOffsets": "earliest", "eventTime": "json:$.t"})
    stream.drain()
    facts = stream.reader.reportLatestOffset()
    assert facts["bad_event_times"] == {topic: {"0": 3}}
    assert facts["held_by"]["0"] == f"{topic}-0 without a watermark: none of its 3 event times could be read"


def test_unreadable_event_times_are_named_in_spite_of_a_backlog_once_there_was_a_watermark(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [Record(0, 1, b'{"t": 5}')] + [Record(0, 1, b"no json")] * 40)
    stream = open_stream(topic, {"startingOffsets": "earliest", "eventTime": "json:$.t", "maxOffsetsPerTrigger": "10"})
    causes = []
    for _ in range(4):
        stream.batch()
        causes.append(stream.reader.reportLatestOffset()["causes"]["0"])
    assert causes == [{"backlog": 1}, {"backlog": 1}, {"unreadable event times": 1}, {"unreadable event times": 1}]
    blocking_partition = stream.reader.reportLatestOffset()["held_by"]["0"]
    assert blocking_partition.endswith(": none of the 10 event times of the batch before could be read")


def test_late_events_are_counted_by_partition_over_batches_and_restarts(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 1_000), Record(1, 1_000)])
    stream = open_stream(topic, {"startingOffsets": "earliest", "watermarkLag": "100 milliseconds"})
    stream.drain()
    assert stream.watermark_ms() == 900
    for late in (1, 2):
        produce(kafka.bootstrap, topic, [Record(0, 900), Record(1, 5), Record(1, 899), Record(1, 2_000)])
        stream.restart()
        stream.drain()
        assert stream.reader.reportLatestOffset()["late_events"] == {topic: {"1": 2 * late}}
    assert stream.reader.reportLatestOffset()["recovery_reads"] == 0


def test_parts_of_a_range_count_late_events_as_the_whole_does(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    late_counts = []
    produce(kafka.bootstrap, topic, [Record(0, 1_000)] * 3 + [Record(0, n) for n in range(90)])
    for options in ({}, {"maxRecordsPerPartition": "7"}):
        stream = open_stream(topic, {"maxOffsetsPerTrigger": "30", **options})
        stream.drain()
        late_counts.append(stream.reader.reportLatestOffset()["late_events"])
    assert late_counts == [{topic: {"0": 63}}] * 2


def test_the_line_of_a_batch_is_json_and_says_what_progress_says(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [Record(0, 1)])
    stream = open_stream(topic)
    with caplog.at_level(logging.DEBUG, "keyedwm.source"):
        stream.plan()
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("planned ")]
    report = json.loads(line.removeprefix("planned "))
    assert report == {**stream.reader.reportLatestOffset(), "group": stream.log[0]["group"]}
    assert list(report) == [
        "offsets", "batch", "reads", "watermark", "held_by", "causes", "idle", "bad_event_times",
        "late_events", "future_event_times", "control_records", "bad_values", "resets", "backlog",
        "recovery_reads", "group",
    ]  # fmt: skip
