"""A batch damaged on the broker's disk: an error by name, or just that batch is skipped when the user asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyedwm.kafka.client.errors import CorruptRecordError
from keyedwm.kafka.client.values import Codec
from keyedwm.testing.local import LocalBroker, local_broker
from tests.tools import Record, Stream, cluster_at, events, make_internal_topics, make_topic, produce

pytestmark = pytest.mark.starts

TOPIC = "damaged"


@pytest.fixture(scope="module")
def damaged() -> Iterator[LocalBroker]:
    """Four batches of two records, the third one with a flipped byte in the log file."""
    with local_broker() as broker:
        make_topic(broker.bootstrap, TOPIC)
        for batch in range(4):
            two = [Record(0, 1_000 * batch + n, b"batch-%d-record-%d" % (batch, n)) for n in range(2)]
            produce(broker.bootstrap, TOPIC, two, Codec.NONE)
        broker.stop()
        (segment,) = Path(broker._home, "data", f"{TOPIC}-0").glob("*.log")
        log = bytearray(segment.read_bytes())
        at = log.index(b"batch-2-record-1")
        log[at] ^= 1
        segment.write_bytes(log)
        broker.start()
        make_internal_topics(broker.bootstrap)  # a state that is not committed in time would be read again, with a note
        yield broker
        # A connection left behind looks for its broker for ever, and disturbs the tests that follow.
        cluster_at(broker.bootstrap).close()


def stream_of(broker: LocalBroker, **options: str) -> Stream:
    common = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
    return Stream(**{**common, **options})


def test_a_damaged_batch_fails_by_topic_partition_and_offset(damaged: LocalBroker) -> None:
    stream = stream_of(damaged)
    stream.plan()
    with pytest.raises(CorruptRecordError, match=f"the record batch at offset 4 of {TOPIC}-0 has a wrong checksum"):
        stream.read()


def test_only_the_damaged_batch_is_skipped_when_the_user_accepts_loss(
    damaged: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_of(damaged, failOnDataLoss="false")
    assert [e["offset"] for table in stream.drain() for e in events(table)] == [0, 1, 2, 3, 6, 7]
    assert stream.watermark_ms() == 3_001
    # A commit that a slow broker refuses brings a recovery read, with a sentence of its own.
    noted = [r.message for r in caplog.records if "wrong checksum" in r.message and "recovery" not in r.message]
    assert noted
    assert all("is skipped (failOnDataLoss=false)" in message for message in noted)


def test_a_read_that_begins_or_ends_inside_the_damage_skips_the_rest_of_it(damaged: LocalBroker) -> None:
    for first, cap, offsets_read in ((5, "9", [6, 7]), (3, "2", [3, 6, 7])):
        start = f'{{"{TOPIC}": {{"0": {first}}}}}'
        stream = stream_of(damaged, failOnDataLoss="false", startingOffsets=start, maxOffsetsPerTrigger=cap)
        assert [e["offset"] for table in stream.drain() for e in events(table)] == offsets_read
