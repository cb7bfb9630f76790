"""How fast the wire is: records of 100 bytes, encoded, written, fetched and decoded by one process.

    python benchmarks/wire.py [RECORDS] [CODEC]

Starts a broker (or takes KEYEDWM_BOOTSTRAP); everything shares this machine's cores. Prints the best of three rounds:
million records a second of wall time, and CPU seconds per million in this process.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import Codec, TopicPartition
from keyedwm.kafka.records.batches import find_batches, verify
from keyedwm.kafka.records.encode import encode
from keyedwm.kafka.records.read import ColumnSelection, read_records
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import send, to_rows
from keyedwm.testing import admin
from keyedwm.testing.broker import broker

PARTITIONS = 4
ROUNDS = 3


def hundred_bytes(records: int) -> pa.Table:
    """Keys of three bytes, values of 97 that compress to about a half."""
    chance = np.random.default_rng(0)
    letters = chance.integers(48, 64, (1_000, 97), np.uint8)
    values = pa.array([row.tobytes() for row in letters]).take(pa.array(np.arange(records) % 1_000))
    keys = pa.array([b"%03d" % i for i in range(1_000)]).take(pa.array(np.arange(records) % 1_000))
    return pa.table({"key": keys, "value": values, "timestamp": 1_700_000_000_000 + np.arange(records)})


def measured(case: str, records: int, work: Callable[[], int]) -> None:
    """Run some rounds and print the best."""
    rounds = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        assert work() == records, case  # noqa: S101 (a benchmark that loses records says nothing)
        rounds.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = min(rounds)
    print(f"{case:44} {records / wall / 1e6:6.2f} M records/s   {cpu / records * 1e6:5.2f} CPU s per million")


def main(records: int = 2_000_000, codec: Codec = Codec.NONE) -> None:
    """Measure the four steps."""
    table = hundred_bytes(records // PARTITIONS)
    piece = table.slice(0, 40_000)
    raw = b"".join(batch.data for batch in encode(to_rows(piece), codec=codec))
    spans = (0, 2**62)
    print(f"{records} records of 100 bytes, {PARTITIONS} partitions, codec {codec.name.lower()}")

    def decode(columns: ColumnSelection) -> int:
        rows = 0
        for _ in range(20):
            # every batch starts at offset 0 here, so each stands alone
            at = 0
            while at < len(raw):
                size = 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
                batches = find_batches(TopicPartition("t", 0), raw[at : at + size], 0)
                batches = verify(batches, 0)
                rows += sum(batch.count for batch in read_records(batches, spans, columns))
                at += size
        return rows

    measured(
        "encode", len(piece) * 20, lambda: sum(b.count for _ in range(20) for b in encode(to_rows(piece), codec=codec))
    )
    measured("decode, key and value", len(piece) * 20, lambda: decode(ColumnSelection()))
    measured(
        "decode, offsets and timestamps only", len(piece) * 20, lambda: decode(ColumnSelection(key=False, value=False))
    )
    with broker() as running:
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": running.bootstrap}))
        topic = f"wire-{uuid.uuid4().hex[:12]}"
        admin.create_topic(cluster, topic, PARTITIONS)
        ranges = [OffsetRange(topic, p, 0, len(table)) for p in range(PARTITIONS)]

        def write() -> int:
            before = cluster.latest([(topic, p) for p in range(PARTITIONS)])
            after = send(cluster, topic, dict.fromkeys(range(PARTITIONS), table), codec)
            return sum(after[place] - before[place] for place in before)

        def read() -> int:
            return sum(part.records.count for part in read_ranges(cluster, ranges))

        measured("encode and write, all acknowledged", records, write)
        measured("fetch and decode, key and value", records, read)
        admin.delete_topic(cluster, topic)
        cluster.close()


if __name__ == "__main__":
    main(*(int(n) for n in sys.argv[1:2]), *(Codec[name.upper()] for name in sys.argv[2:3]))
