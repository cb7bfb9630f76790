"""The offset log alone makes a batch: read again later, by another reader, it is the same to the bit."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from tests.tools import NO_TIMESTAMP, Record, produce


def as_bytes(table: pa.Table) -> bytes:
    """Values, validity and layout of every column, as Arrow writes them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def some(rng: random.Random, count: int) -> list[Record]:
    return [
        Record(
            rng.randrange(3), rng.choice([NO_TIMESTAMP, rng.randrange(10**6)]), rng.randbytes(20), None, (("h", b"1"),)
        )
        for _ in range(count)
    ]


def test_every_batch_of_a_log_is_read_again_bit_for_bit(kafka, topic_of, open_stream, seed):
    rng = random.Random(f"{seed} replay")
    topic = topic_of(3)
    options = {
        "includeHeaders": "true", "maxOffsetsPerTrigger": "25", "watermarkLag": "50 milliseconds",
        "idleTimeout": "1 milliseconds",
    }  # fmt: skip
    stream = open_stream(topic, options)
    first: list[bytes] = []
    for _ in range(3):
        produce(kafka.bootstrap, topic, some(rng, 40))
        first += [as_bytes(batch) for batch in stream.drain()]
    assert len(first) == len(stream.log) - 1
    # Later, elsewhere, with more in the log, in any order.
    produce(kafka.bootstrap, topic, some(rng, 40))
    stream.restart()
    for number in rng.sample(range(1, len(stream.log)), len(stream.log) - 1):
        assert as_bytes(stream.read(number)) == first[number - 1]


def test_a_batch_is_planned_the_same_way_after_a_restart_at_any_step(kafka, topic_of, open_stream, seed):
    """What a restart may change is the clock alone; no batch is cut elsewhere, no row comes twice or never."""
    rng = random.Random(f"{seed} steps")
    topic = topic_of(3)
    produce(kafka.bootstrap, topic, some(rng, 100))
    stream = open_stream(topic, maxOffsetsPerTrigger="9")
    rows: Counter = Counter()
    while (batch := stream.batch()) is not None:
        table = batch.filter(batch.column("control").is_null())
        rows.update(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))
        if rng.random() < 0.5:
            stream.restart()
    assert rows.total() == len(rows) == 100
