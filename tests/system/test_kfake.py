"""Source and sink against a second implementation of Kafka's protocol, two brokers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from keyedwm.kafka.requests.cluster import close_shared
from tests.sink.conftest import records_of
from tests.sink.kafka_sink import Sink
from tests.support.kfake_server import kfake
from tests.tools import Record, Stream, events, make_topic, produce

pytestmark = pytest.mark.starts

RECORDS, PARTITIONS = 900, 3


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with kfake(brokers=2) as addresses:
        yield addresses
        close_shared()


def test_every_record_comes_once_through_source_and_sink_over_restarts_and_replays(
    bootstrap: str, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic, target = (make_topic(bootstrap, new_topic(), PARTITIONS) for _ in range(2))
    records = [Record(n % PARTITIONS, 1_000 + n, b"%d" % n) for n in range(RECORDS)]
    stream = Stream(**{
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "200",
    })  # fmt: skip
    sink = Sink(bootstrap, target, tmp_path, "query")
    numbers = count()
    for half in (records[: RECORDS // 2], records[RECORDS // 2 :]):
        produce(bootstrap, topic, half)
        stream.restart()
        for rows in stream.drain():
            batch = next(numbers)
            written = sink.written(batch, *(row["value"].decode() for row in events(rows)))
            sink.publish_and_settle(batch, written)
            sink.publish(batch, written)  # Spark runs it again
    found = [value for _, _, value, _ in records_of(bootstrap, target)]
    assert sorted(map(int, found)) == list(range(RECORDS))
