"""What the export of metrics costs a query over many partitions: CPU time of its listener and of a scrape, for a batch.

Run: python -m benchmarks.metrics [--partitions 1000] [--rounds 10]
Every partition gets a record before each round, so a round is one batch of all partitions into no sink. CPU times:
`listener` is that of keyedwm's listener for the batch's event; `event` that of PySpark, which reads the event from the
JVM for any listener in Python; `scrape` that of this process while Prometheus' text is made, once in a scrape interval;
`batch` that of all processes of the query, all of these included.
"""

from __future__ import annotations

import argparse
import resource
import time
import urllib.request

from pyspark.sql.streaming.listener import JStreamingQueryListener

from benchmarks.cpu import cpu_seconds
from benchmarks.measure import how_many, median, session
from benchmarks.planning import HEAP_MB, PATIENT, SMALL_LOGS, append, make
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import shared
from keyedwm.spark import metrics
from keyedwm.spark.metrics.exporter import MetricsListener
from keyedwm.testing.local import local_broker

_PATIENCE_S = 600


def timed(kind: type) -> list[float]:
    """Return a list that gets the CPU seconds of each progress event in this class's handler from now on."""
    seconds: list[float] = []
    handle = kind.onQueryProgress

    def onQueryProgress(self: object, event: object) -> None:
        began = time.thread_time()
        handle(self, event)
        seconds.append(time.thread_time() - began)

    kind.onQueryProgress = onQueryProgress
    return seconds


def main() -> None:
    """Run the rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=how_many, default=1_000)
    parser.add_argument("--rounds", type=how_many, default=10)
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with local_broker(extra=SMALL_LOGS, heap_mb=HEAP_MB) as broker:
        cluster = shared(ClientConfig.from_options({"bootstrap.servers": broker.bootstrap, **PATIENT}))
        topic = make(cluster, arguments.partitions)
        spark = session()
        events, listener_s = timed(JStreamingQueryListener), timed(MetricsListener)
        running = metrics(spark, address="127.0.0.1:0")
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        options |= {f"kafka.{name}": value for name, value in PATIENT.items()}
        query = spark.readStream.format("keyedwm").options(**options).load().writeStream.format("noop").start()
        query.processAllAvailable()
        rounds: list[dict[str, float]] = []
        for number in range(arguments.rounds + 1):
            append(cluster, topic, arguments.partitions)
            seen_events, before = len(events), cpu_seconds()
            query.processAllAvailable()
            until = time.monotonic() + _PATIENCE_S
            while len(events) == seen_events and time.monotonic() < until:
                time.sleep(0.05)
            began = time.process_time()
            with urllib.request.urlopen(f"http://{running.place}/metrics") as answer:
                answer.read()
            handled = sum(listener_s[seen_events:])
            figures = {
                "listener": handled, "event": sum(events[seen_events:]) - handled,
                "scrape": time.process_time() - began,
                "batch": cpu_seconds() - before,
            }  # fmt: skip
            figures_text = ", ".join(f"{name} {1e3 * seconds:,.1f} ms" for name, seconds in figures.items())
            print(f"{arguments.partitions:,} partitions: {figures_text}{'' if number else ' (warming up)'}", flush=True)
            rounds += [figures] if number else []
        query.stop()
        running.stop()
        spark.stop()
    for name in ("listener", "event", "scrape"):
        shares = [100 * one[name] / one["batch"] for one in rounds]
        took_ms = 1e3 * median(one[name] for one in rounds)
        print(f"{name}: median {took_ms:.1f} ms, {median(shares):.2f} % of a batch (at most {max(shares):.2f} %)")


if __name__ == "__main__":
    main()
