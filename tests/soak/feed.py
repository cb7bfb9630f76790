"""The producer of a soak: `python -m tests.soak.feed BOOTSTRAP TOPIC STREAM`, with the stream as JSON.

Rule: a record's event time is the time at which it was due. After an outage of the broker the rest follows at once.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender, new_producer
from tests.soak.stream import CHUNK_MS, Stream

# The producer outlasts every outage.
PATIENT = {"default.api.timeout.ms": "240000", "request.timeout.ms": "5000"}


def command(bootstrap: str, topic: str, stream: Stream) -> list[str]:
    """Return the command of this program."""
    return [sys.executable, "-m", "tests.soak.feed", bootstrap, topic, json.dumps(asdict(stream))]


def main(bootstrap: str, topic: str, stream: Stream) -> None:
    """Send all chunks, each when it is due."""
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap, **PATIENT}))
    sender = Sender(cluster, new_producer(cluster))
    names = pa.array([b"%06d" % number for number in range(stream.keys)], pa.binary())
    for chunk in range(stream.chunks):
        due_ms = stream.first_ms + chunk * CHUNK_MS
        offsets = np.arange(chunk * stream.chunk_records, (chunk + 1) * stream.chunk_records)
        stamps = pa.array(stream.times_ms(offsets))
        tables = {
            partition: pa.table({"key": names.take(pa.array(stream.keys_of(partition, offsets))), "timestamp": stamps})
            for partition in range(stream.partitions)
        }
        time.sleep(max(due_ms / 1e3 - time.time(), 0))
        sender.send(topic, tables)
    cluster.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Stream(**json.loads(sys.argv[3])))
