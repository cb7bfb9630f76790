"""What the export of metrics costs a query over many partitions: CPU time of its listener and of a scrape, for a batch.

Run: python -m benchmarks.metrics [--partitions 1000] [--rounds 10]
Every partition gets a record before each round, so a round is one batch of all partitions into no sink. `listener` is
the CPU time of the listener's thread from the event's first byte on, with PySpark's own reading of the event;
`scrape` that of this process while Prometheus' text is made; `batch` that of all processes of the query, both included.
"""

from __future__ import annotations

import argparse
import resource
import time
import urllib.request
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import JStreamingQueryListener

from benchmarks.measure import cpu_seconds, median, session
from benchmarks.planning import HEAP_MB, PATIENT, SMALL_LOGS, append, make
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import shared
from keyedwm.spark import metrics
from keyedwm.testing.local import local_broker

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_PATIENCE_S = 600


def timed() -> list[float]:
    """Return a list that gets the CPU seconds of each progress event from now on."""
    taken: list[float] = []
    handle = JStreamingQueryListener.onQueryProgress

    def onQueryProgress(self: JStreamingQueryListener, jevent: JavaObject) -> None:
        began = time.thread_time()
        handle(self, jevent)
        taken.append(time.thread_time() - began)

    JStreamingQueryListener.onQueryProgress = onQueryProgress
    return taken


def main() -> None:
    """Run the rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with local_broker(extra=SMALL_LOGS, heap_mb=HEAP_MB) as broker:
        cluster = shared(ClientConfig.from_options({"bootstrap.servers": broker.bootstrap, **PATIENT}))
        topic = make(cluster, chosen.partitions)
        spark = session()
        events = timed()
        running = metrics(spark, address="127.0.0.1:0")
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        options |= {f"kafka.{name}": value for name, value in PATIENT.items()}
        query = spark.readStream.format("keyedwm").options(**options).load().writeStream.format("noop").start()
        query.processAllAvailable()
        listener, scrapes, batches = [], [], []
        for number in range(chosen.rounds + 1):
            append(cluster, topic, chosen.partitions)
            told, before = len(events), cpu_seconds()
            query.processAllAvailable()
            until = time.monotonic() + _PATIENCE_S
            while len(events) == told and time.monotonic() < until:
                time.sleep(0.05)
            began = time.process_time()
            with urllib.request.urlopen(f"http://{running.place}/metrics") as answer:
                size = len(answer.read())
            scrape, batch = time.process_time() - began, cpu_seconds() - before
            if number:
                listener.append(sum(events[told:]))
                scrapes.append(scrape)
                batches.append(batch)
            figures = f"listener {1e3 * sum(events[told:]):.1f} ms, scrape {1e3 * scrape:.1f} ms of {size:,} bytes"
            print(
                f"{chosen.partitions:,} partitions: {figures}, batch {batch:.2f} s{'' if number else ' (warming up)'}"
            )
        query.stop()
        running.stop()
        spark.stop()
    shares = [100 * (a + b) / c for a, b, c in zip(listener, scrapes, batches, strict=True)]
    print(
        f"median of {chosen.rounds}: listener {1e3 * median(listener):.1f} ms, scrape {1e3 * median(scrapes):.1f} ms, "
        f"batch {median(batches):.2f} s of CPU; together {median(shares):.2f} % of a batch, at most {max(shares):.2f} %"
    )


if __name__ == "__main__":
    main()
