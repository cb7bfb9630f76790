"""What the user is told: who holds the watermark, and why."""

from __future__ import annotations

from collections.abc import Callable

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
    held = stream.reader.reportLatestOffset()["held_by"]["0"]
    assert held.startswith(f"{topic}-1 without a watermark: no record since 20")


def test_unreadable_event_times_are_named_as_the_reason(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [Record(0, 1, b"no json")] * 3)
    stream = open_stream(topic, {"startingOffsets": "earliest", "eventTime": "json:$.t"})
    stream.drain()
    facts = stream.reader.reportLatestOffset()
    assert facts["bad_event_times"] == 3
    assert facts["held_by"]["0"] == f"{topic}-0 without a watermark: none of its 3 event times could be read"
