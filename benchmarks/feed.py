"""Events at a steady rate, from a process of its own: `python -m benchmarks.feed BOOTSTRAP TOPIC FIRST_MS SECONDS`.

Rule: the event time of a record is the wall-clock time at which it was due to be produced, and it is sent at once
then; by how many ms the acknowledgements trailed (p99) is printed at the end.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

from benchmarks.measure import KEYS, PARTITIONS, VALUE
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender, new_producer

RATE = 20_000
CHUNK_MS = 20
CHUNK_ROWS = RATE * CHUNK_MS // 1_000


def main(bootstrap: str, topic: str, first_ms: int, seconds: int) -> None:
    """Send a chunk every 20 ms, its records over all partitions."""
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
    sender = Sender(cluster, new_producer(cluster))
    names = pa.array([b"%06d" % number for number in range(KEYS)], pa.binary())
    values = pa.array([VALUE] * (CHUNK_ROWS // PARTITIONS), pa.binary())
    trailed_ms = []
    for number in range(seconds * 1_000 // CHUNK_MS):
        due_ms = first_ms + number * CHUNK_MS
        tables = {}
        for partition in range(PARTITIONS):
            keys = (np.arange(len(values)) * PARTITIONS + partition + number * CHUNK_ROWS) % KEYS
            stamps = pa.array(np.full(len(values), due_ms))
            tables[partition] = pa.table({"key": names.take(pa.array(keys)), "value": values, "timestamp": stamps})
        time.sleep(max(due_ms / 1e3 - time.time(), 0))
        sender.send(topic, tables)
        trailed_ms.append(time.time() * 1e3 - due_ms)
    cluster.close()
    print(float(np.quantile(trailed_ms, 0.99)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
